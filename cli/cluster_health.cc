#include "cli/command.h"
#include "cli/format/cluster_view.h"

namespace macrame::cli {
namespace {

int RunHealth(const Invocation& run) {
  AgentClient client(run.options.agent);
  const auto status = client.GetStatus();
  if (!status.ok()) return run.Fail(status.status());
  if (run.wants_table()) {
    *run.environment.out << HealthView(*status, run.style);
  } else {
    const Json whole = MessageToJson(*status);
    Json document = Document("ClusterHealth");
    document["healthy"] = status->healthy();
    document["problems"] = whole["problems"];
    document["nodes_alive"] = status->aggregate_load().nodes_alive();
    document["nodes_total"] = status->nodes_size();
    run.PrintDocument(document);
  }
  return status->healthy() ? kExitOk : kExitFailure;
}

}  // namespace

void AddClusterHealth(CommandTree& tree, CLI::App* cluster) {
  CLI::App* command =
      tree.Add(cluster, "health", "Print 'All nodes healthy' or the problems, with an exit code");
  tree.OnChosen(command, RunHealth);
}

}  // namespace macrame::cli
