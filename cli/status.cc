#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/format/cluster_view.h"
#include "cli/interrupt.h"
#include "cli/repaint.h"

namespace macrame::cli {
namespace {

constexpr uint32_t kWatchIntervalMs = 1000;
constexpr std::chrono::milliseconds kReconnectPauseMs{500};

struct StatusOptions {
  bool watch = false;
};

Json StatusDocument(v1::ClusterStatus status) {
  status.mutable_aggregate_load();  // always there, also when the agent left it out
  return Document("ClusterStatus", status);
}

int RunOnce(const Invocation& run) {
  AgentClient client(run.options.socket_path);
  const auto status = client.GetStatus();
  if (!status.ok()) return run.Fail(status.status());
  if (run.wants_table()) {
    *run.environment.out << StatusView(*status, OutputColumns(run.environment), run.style);
  } else {
    run.PrintDocument(StatusDocument(*status));
  }
  return kExitOk;
}

// Shows one status after the other, across restarts of the agent.
class StatusWatcher {
 public:
  explicit StatusWatcher(const Invocation& run)
      : run_(run), client_(run.options.socket_path), screen_(run.environment) {}

  int Run() {
    InterruptWatch interrupt([this] { client_.Cancel(); });
    v1::WatchStatusRequest request;
    request.set_interval_ms_max(kWatchIntervalMs);
    while (!interrupt.interrupted()) {
      const absl::Status ended = client_.WatchStatus(request, [&](const v1::ClusterStatus& status) {
        Show(status);
        return !interrupt.interrupted() && run_.environment.out->good();
      });
      if (interrupt.interrupted() || !run_.environment.out->good()) break;
      if (!shown_) return run_.Fail(ended);
      ShowLost(ended);
      for (int i = 0; i < 10 && !interrupt.interrupted(); ++i) {
        std::this_thread::sleep_for(kReconnectPauseMs / 10);
      }
    }
    return interrupt.interrupted() ? interrupt.exit_code() : kExitOk;
  }

 private:
  void Show(const v1::ClusterStatus& status) {
    shown_ = true;
    if (run_.options.output == OutputFormat::kJson) {
      *run_.environment.out << ToJsonText(StatusDocument(status), true) << std::flush;
    } else if (run_.options.output == OutputFormat::kYaml) {
      *run_.environment.out << "---\n" << ToYamlText(StatusDocument(status)) << std::flush;
    } else {
      last_ = status;
      screen_.Show(StatusView(status, OutputColumns(run_.environment), run_.style));
    }
  }

  void ShowLost(const absl::Status& ended) {
    if (!run_.wants_table()) return;
    const std::string notice = run_.style.Bad(
        absl::StrCat("agentd does not answer; this is what it last said. Trying again ...",
                     ended.ok() ? " (stream ended)" : ""));
    // An old "healthy" must not be taken for a present one.
    last_.set_healthy(false);
    screen_.Show(notice + "\n" + StatusView(last_, OutputColumns(run_.environment), run_.style));
  }

  const Invocation& run_;
  AgentClient client_;
  Repainter screen_;
  v1::ClusterStatus last_;
  bool shown_ = false;
};

void AddStatusTo(CommandTree& tree, CLI::App* parent) {
  CLI::App* command = tree.Add(parent, "status", "Nodes, models, ranks, problems");
  auto options = std::make_shared<StatusOptions>();
  command->add_flag("-w,--watch", options->watch, "Go on showing changes until Ctrl-C");
  tree.OnChosen(command, [options](const Invocation& run) {
    return options->watch ? StatusWatcher(run).Run() : RunOnce(run);
  });
}

}  // namespace

void AddStatus(CommandTree& tree) { AddStatusTo(tree, tree.root); }
void AddClusterStatus(CommandTree& tree, CLI::App* cluster) { AddStatusTo(tree, cluster); }

}  // namespace macrame::cli
