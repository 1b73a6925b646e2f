#include "discovery/beacon_schedule.h"

#include <algorithm>
#include <array>

namespace macrame::discovery {
namespace {

// Distances double, so that one congested moment does not eat them all.
constexpr std::array kBurstAt = {std::chrono::milliseconds(0), std::chrono::milliseconds(50),
                                 std::chrono::milliseconds(150), std::chrono::milliseconds(350),
                                 std::chrono::milliseconds(750)};

}  // namespace

void BeaconSchedule::StartBurst(MonotonicTime now) {
  burst_step_ = 0;
  burst_start_ = now;
  next_ = now;
}

void BeaconSchedule::SetSettled(bool settled, MonotonicTime now) {
  if (settled == settled_) return;
  settled_ = settled;
  if (!burst_step_.has_value()) {
    next_ = std::max(now, last_ + (settled ? intervals_.settled : intervals_.searching));
  }
}

bool BeaconSchedule::TakeDue(MonotonicTime now) {
  if (now < next_) return false;
  last_ = now;
  // After a pause the missed steps are not made up for.
  while (burst_step_.has_value() && burst_start_ + kBurstAt[*burst_step_] <= now) {
    if (++*burst_step_ == kBurstAt.size()) burst_step_.reset();
  }
  next_ = burst_step_.has_value() ? burst_start_ + kBurstAt[*burst_step_]
                                  : now + (settled_ ? intervals_.settled : intervals_.searching);
  return true;
}

}  // namespace macrame::discovery
