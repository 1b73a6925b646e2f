#include "agentd/cores/crash_log.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/backends.h"
#include "proto/reasons.h"
#include "proto/utf8.h"

namespace macrame::agentd {
namespace {

constexpr size_t kNodesMax = 1024;

uint64_t Apart(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

// Gives each panic of `panics` that has none yet the crash that is nearest to it, nearest pairs
// first: of the same words, or, where `same_words` is false, one that has none.
void Match(const std::vector<v1::PanicReport>& panics, bool same_words, v1::NodeCrashes& crashes,
           std::vector<bool>& matched, std::vector<bool>& taken) {
  for (;;) {
    size_t panic = 0;
    int crash = -1;
    uint64_t least = kPanicMatchMs;
    for (size_t i = 0; i < panics.size(); ++i) {
      for (int at = 0; at < crashes.crashes_size(); ++at) {
        const v1::NodeCrash& known = crashes.crashes(at);
        const uint64_t apart = Apart(known.seen_unix_ms(), panics[i].unix_ms());
        if (matched[i] || taken[at] || apart > least) continue;
        if (known.panic() != (same_words ? panics[i].text() : "")) continue;
        panic = i;
        crash = at;
        least = apart;
      }
    }
    if (crash < 0) return;
    matched[panic] = taken[crash] = true;
    crashes.mutable_crashes(crash)->set_panic(panics[panic].text());
  }
}

// The newest, with so much of their words as is kept.
std::vector<v1::PanicReport> Bounded(const std::vector<v1::PanicReport>& panics) {
  const auto kept = static_cast<ptrdiff_t>(std::min(panics.size(), kPanicsTakenMax));
  std::vector<v1::PanicReport> bounded(panics.end() - kept, panics.end());
  for (v1::PanicReport& panic : bounded) {
    panic.set_text(std::string(CutToBytes(panic.text(), kPanicBytesMax)));
  }
  return bounded;
}

// In the order of time. The oldest goes where there are too many.
void InsertCrash(v1::NodeCrashes& crashes, v1::NodeCrash crash) {
  if (crashes.crashes_size() >= kCrashesKept) crashes.mutable_crashes()->DeleteSubrange(0, 1);
  int at = crashes.crashes_size();
  *crashes.add_crashes() = std::move(crash);
  for (; at > 0 && crashes.crashes(at - 1).seen_unix_ms() > crashes.crashes(at).seen_unix_ms();
       --at) {
    crashes.mutable_crashes()->SwapElements(at - 1, at);
  }
}

bool WasOverRdma(const v1::NodeCrash& crash) {
  if (!crash.backend().empty()) return IsRdma(BackendNamed(crash.backend()));
  return absl::StrContains(crash.panic(), "RDMA") || absl::StrContains(crash.panic(), "DART");
}

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

PanicsTaken TakePanics(const std::vector<v1::PanicReport>& told, const std::string& backend,
                       uint64_t now_unix_ms, v1::NodeCrashes& crashes) {
  const std::string before = crashes.SerializeAsString();
  const std::vector<v1::PanicReport> panics = Bounded(told);
  std::vector<bool> matched(panics.size(), false);
  std::vector<bool> taken(static_cast<size_t>(crashes.crashes_size()), false);
  Match(panics, /*same_words=*/true, crashes, matched, taken);
  Match(panics, /*same_words=*/false, crashes, matched, taken);
  PanicsTaken result;
  for (size_t i = 0; i < panics.size(); ++i) {
    const uint64_t at = panics[i].unix_ms();
    const bool is_recent = at <= now_unix_ms + kPanicAheadMs &&
                           (at >= now_unix_ms || now_unix_ms - at <= kUnseenPanicMs);
    if (matched[i] || !is_recent) continue;
    v1::NodeCrash crash;
    crash.set_seen_unix_ms(at);
    crash.set_backend(backend);
    crash.set_panic(panics[i].text());
    InsertCrash(crashes, std::move(crash));
    result.has_new = true;
  }
  result.changed = crashes.SerializeAsString() != before;
  return result;
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
    if (WasOverRdma(crashes.crashes(i))) return false;
  }
  return true;
}

v1::Reason CrashReason(const v1::NodeCrashes& crashes, const std::string& hostname) {
  const int count = crashes.crashes_size();
  const v1::NodeCrash& last = crashes.crashes(count - 1);
  // Of a panic that nobody saw it may not be known whether a rank ran.
  const bool is_sure = std::none_of(
      crashes.crashes().begin(), crashes.crashes().end(),
      [](const v1::NodeCrash& crash) { return crash.backend().empty() && !crash.panic().empty(); });
  v1::Reason reason = MakeReason(
      reasons::kNodeCrashed,
      absl::StrCat(hostname, " restarted ",
                   count == 1 ? std::string("once") : absl::StrCat(count, " times"),
                   is_sure ? " while it held a rank" : "",
                   last.backend().empty() ? "" : absl::StrCat(", last over ", last.backend()),
                   last.panic().empty() ? "" : absl::StrCat(": ", last.panic())),
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
