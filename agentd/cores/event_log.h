#pragma once

// What happened, for `clusterctl events`: the newest kEventsMax, in memory. Pure. Owner: the
// agent's owner thread.

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agentd/cores/desired_state.h"
#include "macrame/v1/operation.pb.h"
#include "proto/ids.h"

namespace macrame::agentd {

inline constexpr size_t kEventsMax = 1000;

// Kinds of events.
inline constexpr char kNodeEvent[] = "node";
inline constexpr char kCoordinatorEvent[] = "coordinator";
inline constexpr char kModelEvent[] = "model";
inline constexpr char kCordonEvent[] = "cordon";
inline constexpr char kClusterEvent[] = "cluster";

class EventLog {
 public:
  explicit EventLog(NodeId self) : self_(std::move(self)) {}

  void Add(uint64_t now_unix_ms, std::string_view kind, const std::string& subject,
           const std::string& message, const v1::Reason& reason = {});
  // What the desired state wants that it did not at the last look: models and cordons. The first
  // look is silent: what is there then was ordered earlier.
  void Observe(const DesiredState& desired, const std::map<std::string, std::string>& names,
               uint64_t now_unix_ms);
  // Those after `since_unix_ms`, the oldest first.
  v1::ListEventsResponse Since(uint64_t since_unix_ms) const;

 private:
  const NodeId self_;
  std::deque<v1::Event> events_;
  uint64_t sequence_ = 0;
  bool has_looked_ = false;
  std::map<std::string, bool> models_;   // by deployment
  std::map<std::string, bool> cordons_;  // by node id: whether it is drained
  std::string pause_;                    // "was drained", "was stopped"; empty: the cluster serves
};

// What several agents tell, in the order of time; what two of them tell alike is told once, as the
// first saw it.
v1::ListEventsResponse MergeEvents(const std::vector<v1::ListEventsResponse>& told);

}  // namespace macrame::agentd
