#pragma once

// When the next beacon is due. Pure.
//
// A burst at 0, 50, 150, 350 and 750 ms, so that the loss of a few datagrams or of a simultaneous
// start costs tenths of seconds and not a whole interval; then each second, or each 5 s while every
// known peer is connected (newcomers are found by their own burst, which is answered at once).
// Between these go signs of life, as long as there are members who count on them.

#include <cstddef>
#include <optional>

#include "proto/monotonic_time.h"

namespace macrame::discovery {

struct BeaconIntervals {
  Duration searching = std::chrono::milliseconds(1000);
  Duration settled = std::chrono::milliseconds(5000);
  Duration sign_of_life = std::chrono::milliseconds(500);
  // What is due so soon is sent now: the owner thread wakes up once for several things.
  Duration slack = Duration(0);
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
  // Members count on this node's beacons, or do no more.
  void SetSignsOfLife(bool wanted, MonotonicTime now);
  // The same of the short beacons; they go beside the whole ones.
  bool TakeSignOfLife(MonotonicTime now);
  MonotonicTime NextDue() const;
  // Beacons of a burst ask to be answered.
  bool in_burst() const { return burst_step_.has_value(); }

 private:
  BeaconIntervals intervals_;
  std::optional<size_t> burst_step_;
  MonotonicTime burst_start_{};
  MonotonicTime last_{};
  MonotonicTime next_{};
  std::optional<MonotonicTime> next_sign_of_life_;
  bool settled_ = false;
};

}  // namespace macrame::discovery
