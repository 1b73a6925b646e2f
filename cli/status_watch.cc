#include "cli/status_watch.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/interrupt.h"
#include "cli/keys.h"
#include "cli/repaint.h"

namespace macrame::cli {
namespace {

constexpr uint32_t kWatchIntervalMs = 1000;
constexpr std::chrono::milliseconds kReconnectPauseMs{500};

// Shows one status after the other, across restarts of the agent.
class StatusWatcher {
 public:
  StatusWatcher(const Invocation& run, StatusAsText view, bool until_key)
      : run_(run),
        view_(std::move(view)),
        until_key_(until_key),
        client_(run.options.agent),
        screen_(run.environment) {}

  int Run() {
    InterruptWatch interrupt([this] { client_.Cancel(); });
    const KeyWatch keys(until_key_ && run_.environment.in_is_terminal, [this](char key) {
      if (key != 'q' && key != 'Q') return;
      is_left_ = true;
      client_.Cancel();
    });
    const auto is_over = [&] {
      return interrupt.interrupted() || is_left_ || !run_.environment.out->good();
    };
    v1::WatchStatusRequest request;
    request.set_interval_ms_max(kWatchIntervalMs);
    while (!is_over()) {
      const absl::Status ended = client_.WatchStatus(request, [&](const v1::ClusterStatus& status) {
        Show(status);
        return !is_over();
      });
      if (is_over()) break;
      // A key that was revoked, or a socket of somebody else's, does not come back.
      const bool is_refused = absl::IsUnauthenticated(ended) || absl::IsPermissionDenied(ended);
      if (!shown_ || is_refused) return run_.Fail(ended);
      ShowLost(ended);
      for (int i = 0; i < 10 && !is_over(); ++i) {
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
      screen_.Show(view_(status));
    }
  }

  void ShowLost(const absl::Status& ended) {
    if (!run_.wants_table()) return;
    const std::string notice = run_.style.Bad(
        absl::StrCat("agentd does not answer; this is what it last said. Trying again ...",
                     ended.ok() ? " (stream ended)" : ""));
    // An old "healthy" must not be taken for a present one.
    last_.set_healthy(false);
    screen_.Show(notice + "\n" + view_(last_));
  }

  const Invocation& run_;
  const StatusAsText view_;
  const bool until_key_;
  std::atomic<bool> is_left_{false};
  AgentClient client_;
  Repainter screen_;
  v1::ClusterStatus last_;
  bool shown_ = false;
};

}  // namespace

Json StatusDocument(v1::ClusterStatus status) {
  status.mutable_aggregate_load();  // always there, also when the agent left it out
  return Document("ClusterStatus", status);
}

int WatchStatusAs(const Invocation& run, StatusAsText view, bool until_key) {
  return StatusWatcher(run, std::move(view), until_key).Run();
}

}  // namespace macrame::cli
