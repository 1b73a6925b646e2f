#pragma once

// Which members this node can't call although it hears them: their heartbeats come in, and every
// call to their control port fails. Such a node grants this one nothing and takes no orders from
// it.
//
// Contract: pure. Owner: the agent's owner thread. Bound: kDialsMax nodes.

#include <map>
#include <set>

#include "proto/ids.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

inline constexpr size_t kDialsMax = 64;
// So many calls in a row, over so long a time, have to fail.
inline constexpr int kDialFailuresMin = 4;
inline constexpr Duration kUndialledAfter = std::chrono::seconds(3);
// A node that nobody called for so long may be reachable again.
inline constexpr Duration kDialForgottenAfter = std::chrono::seconds(30);

class DialTable {
 public:
  // A call to the node was answered, be it with an error of its own; or it could not be reached.
  void NoteCall(const NodeId& node, bool reached, MonotonicTime now);
  // It came, went or was started anew: what failed before says nothing.
  void Forget(const NodeId& node) { failing_.erase(node); }
  // No call failed lately: nobody is undialled.
  bool IsClear() const { return failing_.empty(); }
  // Those of `heard` that can't be called.
  std::set<NodeId> Undialled(const std::set<NodeId>& heard, MonotonicTime now) const;

 private:
  struct Failing {
    int calls = 0;
    MonotonicTime since;
    MonotonicTime last;
  };
  std::map<NodeId, Failing> failing_;
};

}  // namespace macrame::agentd
