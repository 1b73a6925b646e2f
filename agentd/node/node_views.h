#pragma once

// All nodes as this one sees them, itself included: one list from which plans, reconciling and
// status are made. Owner thread.

#include <string>
#include <vector>

#include "agentd/cores/desired_state.h"
#include "agentd/cores/election.h"
#include "agentd/cores/gang_reconciler.h"
#include "agentd/cores/state_store.h"
#include "agentd/node/member_monitor.h"
#include "agentd/node/own_node.h"
#include "agentd/node/report_table.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/plan.pb.h"

namespace macrame::agentd {

struct NodeFacts {
  NodeId id;
  v1::NodeIdentity identity;
  std::string display_name;
  v1::NodeState state = v1::NODE_STATE_UNSPECIFIED;
  v1::Reason state_reason;
  bool is_self = false;
  uint64_t age_ms = 0;                       // since it was heard
  MonotonicTime reported_at;                 // last heartbeat with ranks
  const v1::Inventory* inventory = nullptr;  // null: not known
  const v1::NodeLoad* load = nullptr;
  const std::vector<v1::RankStatus>* ranks = nullptr;
  // Why it can't write its desired state to disk; null: it can.
  const v1::Reason* state_failure = nullptr;
  bool draining = false;                 // it is about to stop
  const v1::Cordon* cordon = nullptr;    // null: it may take ranks
  const v1::NodeMarks* marks = nullptr;  // null: none
};

// Ranks that are not over.
uint32_t RunningRanks(const std::vector<v1::RankStatus>& ranks);

class NodeViews {
 public:
  NodeViews(transport::Dispatcher& dispatcher, OwnNode& own, const MemberMonitor& members,
            const ReportTable& reports, const Election& election, const StateStore& store,
            const DesiredState& desired);

  // By node id. The pointers hold until the next heartbeat.
  std::vector<NodeFacts> All() const;
  // As the reconciler wants them; `leading_since`: when this node became coordinator.
  std::vector<NodeView> ForReconciler(MonotonicTime leading_since) const;
  std::vector<v1::RankStatus> AllRanks() const;
  bool AnyRanks() const;
  // Whether a live node is there, besides this one, that is not about to stop.
  bool HasOther() const;
  // A live node is about to stop, or has ranks that are drained, this one or another: who waits for
  // its answers to end goes by counters of ranks.
  bool AnyDraining() const;
  // As the planner wants them. `has_files`: nodes that have the model's very files.
  std::vector<v1::PlannerNode> ForPlanner(const std::set<NodeId>& has_files) const;
  // A node that may take ranks has not told what it has, has not been heard for a moment, or its
  // lease is not held: plans can't use it now, and soon may.
  bool AwaitsNode() const;
  std::string DisplayName(const NodeId& node) const;

 private:
  bool IsOrderable(const NodeFacts& facts) const;
  bool IsReady(const NodeFacts& facts) const;
  bool IsDrained(const NodeId& node, const std::vector<v1::RankStatus>& ranks) const;

  transport::Dispatcher& dispatcher_;
  OwnNode& own_;
  const MemberMonitor& members_;
  const ReportTable& reports_;
  const Election& election_;
  const StateStore& store_;
  const DesiredState& desired_;
};

}  // namespace macrame::agentd
