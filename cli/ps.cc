#include "cli/command.h"
#include "cli/format/model_view.h"

namespace macrame::cli {
namespace {

int RunPs(const Invocation& run) {
  AgentClient client(run.options.agent);
  const auto status = client.GetStatus();
  if (!status.ok()) return run.Fail(status.status());
  if (run.wants_table()) {
    *run.environment.out << LoadedView(*status, OutputColumns(run.environment), run.style);
    return kExitOk;
  }
  Json document = Document("DeploymentList");
  document["items"] = MessageToJson(*status)["deployments"];
  run.PrintDocument(document);
  return kExitOk;
}

}  // namespace

void AddPs(CommandTree& tree) {
  CLI::App* command =
      tree.Add(tree.root, "ps", "List loaded models: nodes, memory, speed, requests");
  tree.OnChosen(command, RunPs);
}

}  // namespace macrame::cli
