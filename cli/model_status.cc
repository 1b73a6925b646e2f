#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/format/model_view.h"
#include "cli/model_name.h"
#include "proto/reasons.h"
#include "proto/replicas.h"
#include "proto/suggestions.h"

namespace macrame::cli {
namespace {

struct ModelStatusOptions {
  std::string model;
  bool detail = false;
};

int RunModelStatus(const Invocation& run, const ModelStatusOptions& options) {
  AgentClient client(run.options.agent);
  const auto status = client.GetStatus();
  if (!status.ok()) return run.Fail(status.status());
  const std::string name = ModelMeantBy(client, options.model);
  v1::ClusterStatus chosen;
  std::vector<std::string> names;
  for (const v1::DeploymentStatus& one : status->deployments()) {
    const std::string& own = one.deployment().name();
    names.push_back(own);
    if (name.empty() || own == name || DeploymentOfReplica(own) == name) {
      *chosen.add_deployments() = one;
    }
  }
  if (chosen.deployments().empty() && !name.empty()) {
    return run.Fail(
        ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotLoaded,
                     absl::StrCat("no model '", name, "' is loaded", DidYouMean(name, names))));
  }
  if (!run.wants_table()) {
    Json document = Document("DeploymentList");
    document["items"] = MessageToJson(chosen)["deployments"];
    run.PrintDocument(document);
    return kExitOk;
  }
  const int width = OutputColumns(run.environment);
  if (!options.detail || chosen.deployments().empty()) {
    *run.environment.out << (chosen.deployments().empty()
                                 ? LoadedView(chosen, width, run.style)
                                 : DeploymentsView(chosen, width, run.style));
    return kExitOk;
  }
  for (int i = 0; i < chosen.deployments_size(); ++i) {
    v1::ClusterStatus one;
    *one.add_deployments() = chosen.deployments(i);
    *run.environment.out << (i == 0 ? "" : "\n") << DeploymentsView(one, width, run.style) << "\n"
                         << BalanceView(chosen.deployments(i), width, run.style);
  }
  return kExitOk;
}

}  // namespace

void AddModelStatus(CommandTree& tree, CLI::App* model) {
  CLI::App* command = tree.Add(model, "status",
                               "Show how a loaded model is served; --detail: what each node holds");
  auto options = std::make_shared<ModelStatusOptions>();
  command->add_option("model", options->model, "Name of a loaded model (default: all)");
  command->add_flag("--detail", options->detail,
                    "Show layers, weights, cache and memory of each rank, planned and used");
  tree.OnChosen(command,
                [options](const Invocation& run) { return RunModelStatus(run, *options); });
}

}  // namespace macrame::cli
