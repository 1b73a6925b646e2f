#include "cli/load_wait.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "cli/coordinator_change.h"
#include "cli/format/load_progress.h"
#include "cli/interrupt.h"
#include "cli/repaint.h"
#include "proto/reasons.h"

namespace macrame::cli {
namespace {

constexpr std::chrono::seconds kCoordinatorLimit{10};

absl::Status NotReady(const v1::DeploymentStatus& status) {
  v1::Reason reason = status.failure();
  if (reason.code().empty()) {
    reason =
        MakeReason(reasons::kNotReady, "the agent stopped telling of the load before it was ready");
  }
  return ReasonStatus(absl::StatusCode::kInternal, reason);
}

}  // namespace

int LoadAndWait(const Invocation& run, AgentClient& client, const v1::LoadModelRequest& request,
                v1::DeploymentStatus* loaded) {
  const Environment& environment = run.environment;
  v1::LoadModelProgress last;
  absl::Status ended;
  InterruptWatch interrupt([&] { client.Cancel(); });
  {
    Repainter bars(environment, true);
    ProgressLines lines;
    const auto show = [&](const v1::LoadModelProgress& progress) {
      last = progress;
      if (run.options.quiet) return;
      if (environment.err_is_terminal) {
        bars.Show(ProgressBars(progress, environment.terminal_size().columns, run.err_style));
      } else {
        *environment.err << lines.Update(progress) << std::flush;
      }
    };
    // Agents that were just started agree on a coordinator within a second or two.
    const auto patience = std::min<std::chrono::milliseconds>(
        kCoordinatorLimit, std::chrono::milliseconds(request.timeout_ms()));
    ended = GiveOrder([&] { return client.LoadModel(request, show); }, patience,
                      [&] { return interrupt.interrupted(); });
  }
  if (interrupt.interrupted()) {
    // A load that waits for memory ends with its caller; no deployment was written yet.
    const bool goes_on = !last.status().deployment().model_name().empty();
    *environment.err << "Not waiting any longer; "
                     << (goes_on ? absl::StrCat("the load goes on. 'clusterctl model unload ",
                                                Printable(last.status().deployment().name()),
                                                "' ends it.\n")
                                 : std::string("nothing is loaded.\n"));
    return interrupt.exit_code();
  }
  if (!ended.ok()) return run.Fail(ended);
  if (last.status().state() != v1::DEPLOYMENT_STATE_READY) return run.Fail(NotReady(last.status()));
  *loaded = last.status();
  return kExitOk;
}

}  // namespace macrame::cli
