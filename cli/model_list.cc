#include "cli/command.h"
#include "cli/format/model_view.h"

namespace macrame::cli {
namespace {

int RunModelList(const Invocation& run) {
  AgentClient client(run.options.agent);
  const auto models = client.ListModels();
  if (!models.ok()) return run.Fail(models.status());
  if (run.wants_table()) {
    *run.environment.out << ModelsView(*models, OutputColumns(run.environment), run.style);
    return kExitOk;
  }
  Json document = Document("ModelList");
  document["items"] = MessageToJson(*models)["models"];
  run.PrintDocument(document);
  return kExitOk;
}

}  // namespace

void AddModelList(CommandTree& tree, CLI::App* model) {
  CLI::App* command = tree.Add(model, "list", "Models on the nodes' disks and those loaded");
  tree.OnChosen(command, RunModelList);
}

void AddLs(CommandTree& tree) {
  CLI::App* command = tree.Add(tree.root, "ls", "Models on the nodes' disks, as 'model list'");
  tree.OnChosen(command, RunModelList);
}

}  // namespace macrame::cli
