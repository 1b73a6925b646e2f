#include "cli/command.h"
#include "cli/format/top_view.h"
#include "cli/status_watch.h"

namespace macrame::cli {
namespace {

// The other screen of the terminal, so that what stood there is back afterwards.
constexpr char kOtherScreen[] = "\x1b[?1049h\x1b[H";
constexpr char kFirstScreen[] = "\x1b[?1049l";

int RunTop(const Invocation& run) {
  const Environment& environment = run.environment;
  if (!environment.out_is_terminal || !run.wants_table()) {
    *environment.err << "error: top needs a terminal\n"
                        "  next:   clusterctl status, or clusterctl status --watch\n";
    return kExitUsage;
  }
  const auto view = [&run](const v1::ClusterStatus& status) {
    return TopView(status, OutputColumns(run.environment), run.style);
  };
  *environment.out << kOtherScreen << std::flush;
  const int code = WatchStatusAs(run, view, /*until_key=*/true);
  *environment.out << kFirstScreen << std::flush;
  return code;
}

}  // namespace

void AddTop(CommandTree& tree) {
  CLI::App* command =
      tree.Add(tree.root, "top", "Watch nodes, memory, models and speed full screen (q quits)");
  tree.OnChosen(command, RunTop);
}

}  // namespace macrame::cli
