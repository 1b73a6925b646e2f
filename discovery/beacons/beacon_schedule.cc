#include "discovery/beacons/beacon_schedule.h"

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

void BeaconSchedule::SetSignsOfLife(bool wanted, MonotonicTime now) {
  if (wanted == next_sign_of_life_.has_value()) return;
  next_sign_of_life_.reset();
  if (wanted) next_sign_of_life_ = now;
}

bool BeaconSchedule::TakeSignOfLife(MonotonicTime now) {
  if (!next_sign_of_life_.has_value() || now + intervals_.slack < *next_sign_of_life_) return false;
  // The pace is kept where it can be: the slack of one is not taken from the next.
  next_sign_of_life_ = std::max(*next_sign_of_life_, now) + intervals_.sign_of_life;
  return true;
}

MonotonicTime BeaconSchedule::NextDue() const {
  return next_sign_of_life_.has_value() ? std::min(next_, *next_sign_of_life_) : next_;
}

bool BeaconSchedule::TakeDue(MonotonicTime now) {
  if (now + (burst_step_.has_value() ? Duration(0) : intervals_.slack) < next_) return false;
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
