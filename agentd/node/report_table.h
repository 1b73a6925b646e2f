#pragma once

// What each other node last said of itself in a heartbeat. Owner thread; pure.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "macrame/v1/agent.pb.h"
#include "proto/ids.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

inline constexpr size_t kReportsMax = 64;
inline constexpr int kRanksPerReportMax = 64;

struct NodeReport {
  v1::NodeLoad load;
  v1::Inventory inventory;  // revision 0: not known yet
  std::vector<v1::RankStatus> ranks;
  v1::Fence coordinator;
  std::string state_digest;
  v1::Reason state_failure;    // code empty: it can write its desired state
  std::set<NodeId> undialled;  // live members that it can't call
  bool draining = false;       // it is about to stop
  uint64_t incarnation = 0;
  uint64_t sequence = 0;
  uint64_t news = 0;  // NewsOf it, as a beacon would say it
  MonotonicTime at;
};

class ReportTable {
 public:
  // True when ranks, inventory or what it is able to differ from before. One that was overtaken by
  // a later one of the same run is not looked at.
  bool Take(const NodeId& from, v1::HeartbeatRequest request, MonotonicTime now);
  // Null when nothing was heard.
  const NodeReport* Find(const NodeId& node) const;
  uint64_t KnownRevision(const NodeId& node) const;
  // 0: nothing was heard.
  uint64_t NewsHeard(const NodeId& node) const;
  // Who said that it can't write its desired state.
  std::set<NodeId> Failing() const;
  void Forget(const NodeId& node) { reports_.erase(node); }
  const std::map<NodeId, NodeReport>& reports() const { return reports_; }

 private:
  std::map<NodeId, NodeReport> reports_;
};

}  // namespace macrame::agentd
