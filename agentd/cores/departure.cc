#include "agentd/cores/departure.h"

namespace macrame::agentd {

bool Departure::IsOver(const DepartureView& view, MonotonicTime now) {
  const bool is_busy = view.requests > 0 || (view.holds_ranks && view.ranks_busy);
  if (is_busy) idle_since_ = now;
  if (now - begun_ >= limit_) return true;
  if (is_busy) return false;
  if (!view.has_other) return true;
  if (led_ && !view.has_coordinator && now - begun_ < kSuccessorWait) return false;
  return !view.holds_ranks || now - idle_since_ >= kHandOverWait;
}

}  // namespace macrame::agentd
