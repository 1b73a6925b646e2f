#include "agentd/services/status_watches.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/status/status.h"

namespace macrame::agentd {

bool StatusWatches::Add(const transport::Caller& caller, uint32_t interval_ms,
                        transport::ServerStream stream) {
  Watch watch;
  watch.place = places_.Take(caller);
  if (watch.place == nullptr) {
    stream.Finish(absl::ResourceExhaustedError("too many watch the status"));
    return false;
  }
  if (interval_ms == 0) interval_ms = kStatusIntervalDefaultMs;
  watch.interval = std::chrono::milliseconds(
      std::clamp(interval_ms, kStatusIntervalMinMs, kStatusIntervalMaxMs));
  watch.gone = std::make_shared<bool>(false);
  stream.OnCancel([gone = watch.gone] { *gone = true; });
  watch.stream = std::move(stream);
  watches_.push_back(std::move(watch));
  return true;
}

void StatusWatches::Tick(MonotonicTime now, bool changed,
                         const std::function<v1::ClusterStatus()>& status) {
  std::optional<v1::ClusterStatus> present;
  watches_.remove_if([&](Watch& watch) {
    if (*watch.gone) return true;
    if (!changed && now - watch.last_sent < watch.interval) return false;
    if (!present.has_value()) present = status();
    watch.last_sent = now;
    return !watch.stream.Write(*present);
  });
}

}  // namespace macrame::agentd
