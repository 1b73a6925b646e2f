#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/format/timings_view.h"
#include "cli/model_name.h"
#include "proto/reasons.h"
#include "proto/replicas.h"

namespace macrame::cli {
namespace {

int RunModelStats(const Invocation& run, const std::string& typed) {
  AgentClient client(run.options.agent);
  const auto status = client.GetStatus();
  if (!status.ok()) return run.Fail(status.status());
  const std::string name = ModelMeantBy(client, typed);
  Json document = Document("ModelStats");
  document["items"] = Json::array();
  std::string text;
  for (const v1::DeploymentStatus& deployment : status->deployments()) {
    const std::string& own = deployment.deployment().name();
    if (!name.empty() && own != name && DeploymentOfReplica(own) != name) continue;
    absl::StrAppend(&text, text.empty() ? "" : "\n",
                    TimingsView(*status, deployment, OutputColumns(run.environment), run.style));
    document["items"].push_back(TimingsJson(deployment));
  }
  if (text.empty() && !name.empty()) {
    return run.Fail(ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotLoaded,
                                 absl::StrCat("no model '", name.substr(0, 128), "' is loaded")));
  }
  if (!run.wants_table()) {
    run.PrintDocument(document);
  } else {
    *run.environment.out << (text.empty() ? "no model is loaded\n" : text);
  }
  return kExitOk;
}

}  // namespace

void AddModelStats(CommandTree& tree, CLI::App* model) {
  CLI::App* command = tree.Add(
      model, "stats", "Show the time of requests and steps: queue, prefill, decode, collectives");
  auto name = std::make_shared<std::string>();
  command->add_option("model", *name, "Loaded model (default: all)");
  tree.OnChosen(command, [name](const Invocation& run) { return RunModelStats(run, *name); });
}

}  // namespace macrame::cli
