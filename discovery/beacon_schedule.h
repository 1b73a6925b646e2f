#pragma once

// When the next beacon is due. Pure.
//
// A burst at 0, 50, 150, 350 and 750 ms, so that the loss of a few datagrams or of a simultaneous
// start costs tenths of seconds and not a whole interval; then each second, or each 5 s while every
// known peer is connected (newcomers are found by their own burst, which is answered at once).

#include <cstddef>
#include <optional>

#include "proto/monotonic_time.h"

namespace macrame::discovery {

struct BeaconIntervals {
  Duration searching = std::chrono::milliseconds(1000);
  Duration settled = std::chrono::milliseconds(5000);
};

class BeaconSchedule {
 public:
  explicit BeaconSchedule(BeaconIntervals intervals = {}) : intervals_(intervals) {}

  // At start, when an interface appears or when the cluster's secret arrives.
  void StartBurst(MonotonicTime now);
  // All known peers are connected. Losing one brings the next beacon forward.
  void SetSettled(bool settled, MonotonicTime now);

  // True when a beacon is due; the next one is then set.
  bool TakeDue(MonotonicTime now);
  MonotonicTime NextDue() const { return next_; }
  // Beacons of a burst ask to be answered.
  bool in_burst() const { return burst_step_.has_value(); }

 private:
  BeaconIntervals intervals_;
  std::optional<size_t> burst_step_;
  MonotonicTime burst_start_{};
  MonotonicTime last_{};
  MonotonicTime next_{};
  bool settled_ = false;
};

}  // namespace macrame::discovery
