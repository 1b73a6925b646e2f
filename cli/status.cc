#include <memory>

#include "cli/command.h"
#include "cli/format/cluster_view.h"
#include "cli/status_watch.h"

namespace macrame::cli {
namespace {

struct StatusOptions {
  bool watch = false;
};

int RunOnce(const Invocation& run) {
  AgentClient client(run.options.agent);
  const auto status = client.GetStatus();
  if (!status.ok()) return run.Fail(status.status());
  if (run.wants_table()) {
    *run.environment.out << StatusView(*status, OutputColumns(run.environment), run.style);
  } else {
    run.PrintDocument(StatusDocument(*status));
  }
  return kExitOk;
}

void AddStatusTo(CommandTree& tree, CLI::App* parent) {
  CLI::App* command = tree.Add(parent, "status", "Show nodes, models, ranks and problems");
  auto options = std::make_shared<StatusOptions>();
  command->add_flag("-w,--watch", options->watch, "Follow changes until Ctrl-C");
  tree.OnChosen(command, [options](const Invocation& run) {
    if (!options->watch) return RunOnce(run);
    const auto view = [&run](const v1::ClusterStatus& status) {
      return StatusView(status, OutputColumns(run.environment), run.style);
    };
    return WatchStatusAs(run, view, /*until_key=*/false);
  });
}

}  // namespace

void AddStatus(CommandTree& tree) { AddStatusTo(tree, tree.root); }
void AddClusterStatus(CommandTree& tree, CLI::App* cluster) { AddStatusTo(tree, cluster); }

}  // namespace macrame::cli
