#pragma once

// When an agent that was told to stop may go: once nothing that it does for others is under way
// and its part in the cluster has gone to others, but no later than its limit.
//
// Pure. Owner: the agent's owner thread.

#include <cstddef>
#include <optional>

#include "proto/monotonic_time.h"

namespace macrame::agentd {

// The node as it is now.
struct DepartureView {
  size_t requests = 0;       // at its gateway, and at the entry ranks that it holds
  bool holds_ranks = false;  // that run
  bool ranks_busy = false;   // the gangs that they belong to are at requests, as far as is heard
  bool has_other = false;    // a live node is there that is not about to stop
  bool has_coordinator = false;
};

// A coordinator waits so long for its successor.
inline constexpr Duration kSuccessorWait = std::chrono::seconds(3);
// The coordinator takes its gangs away from a node that is about to stop within so long, counted
// from when they had no request, or it can't: another has to be elected, to hear of the ranks, to
// plan and to be sure that no request is on its way.
inline constexpr Duration kHandOverWait = std::chrono::seconds(10);

class Departure {
 public:
  // `led`: it was coordinator until now.
  Departure(Duration limit, bool led, MonotonicTime now)
      : limit_(limit), led_(led), begun_(now), idle_since_(now) {}

  // It begins no further requests: what comes now might not end in time, or nobody is left to take
  // it. Until then its gateway hands requests on to the others.
  bool Refuses(const DepartureView& view, MonotonicTime now) const {
    return !view.has_other || now - begun_ >= limit_ / 2;
  }
  // It goes.
  bool IsOver(const DepartureView& view, MonotonicTime now);

 private:
  const Duration limit_;
  const bool led_;
  const MonotonicTime begun_;
  MonotonicTime idle_since_;
};

}  // namespace macrame::agentd
