#include "agentd/cores/crash_log.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/backends.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

constexpr size_t kNodesMax = 1024;

}  // namespace

void CrashLog::NoteLost(const NodeId& node, const std::string& backend, MonotonicTime now) {
  if (lost_.size() >= kNodesMax) lost_.clear();
  lost_[node] = {backend, now};
}

std::optional<std::string> CrashLog::NoteBoot(const NodeId& node, uint64_t boot_time_unix_seconds,
                                              MonotonicTime now) {
  if (boot_time_unix_seconds == 0) return std::nullopt;
  if (boots_.size() >= kNodesMax) boots_.clear();
  uint64_t& known = boots_[node];
  const bool restarted = known != 0 && boot_time_unix_seconds > known + kBootTimeSlackSeconds;
  known = boot_time_unix_seconds;
  const auto loss = lost_.find(node);
  if (loss == lost_.end()) return std::nullopt;
  const Loss last = loss->second;
  if (now - last.at > kCrashWindow) {
    lost_.erase(loss);
    return std::nullopt;
  }
  if (!restarted) return std::nullopt;
  lost_.erase(loss);
  return last.backend;
}

void AddCrash(v1::NodeCrashes& crashes, const std::string& backend, uint64_t unix_ms) {
  if (crashes.crashes_size() >= kCrashesKept) crashes.mutable_crashes()->DeleteSubrange(0, 1);
  v1::NodeCrash& crash = *crashes.add_crashes();
  crash.set_seen_unix_ms(unix_ms);
  crash.set_backend(backend);
}

bool IsQuarantined(const v1::NodeCrashes& crashes) {
  const int count = crashes.crashes_size();
  if (count < kQuarantineCrashes) return false;
  // Another coordinator's clock may be behind that of the one before it.
  const auto [first, last] =
      std::minmax({crashes.crashes(count - kQuarantineCrashes).seen_unix_ms(),
                   crashes.crashes(count - 1).seen_unix_ms()});
  return last - first <= kQuarantineWindowMs;
}

bool WantsCordon(const v1::NodeCrashes& crashes) {
  if (!IsQuarantined(crashes)) return false;
  const int count = crashes.crashes_size();
  for (int i = count - kQuarantineCrashes; i < count; ++i) {
    if (IsRdma(BackendNamed(crashes.crashes(i).backend()))) return false;
  }
  return true;
}

v1::Reason CrashReason(const v1::NodeCrashes& crashes, const std::string& hostname) {
  const int count = crashes.crashes_size();
  const std::string& backend = crashes.crashes(count - 1).backend();
  v1::Reason reason = MakeReason(
      reasons::kNodeCrashed,
      absl::StrCat(
          hostname, " restarted ", count == 1 ? std::string("once") : absl::StrCat(count, " times"),
          " while it held a rank", backend.empty() ? "" : absl::StrCat(", last over ", backend)),
      crashes.node_id());
  if (WantsCordon(crashes)) {
    reason.set_remedy(
        "it was cordoned: look for the cause (on a Mac the newest panic-full-DATE.panic in "
        "/Library/Logs/DiagnosticReports, elsewhere 'journalctl -k -b -1'), then 'clusterctl "
        "uncordon NODE'");
  }
  return reason;
}

}  // namespace macrame::agentd
