#pragma once

// From a name and options to a plan: asks every live node for the model, then the planner. Owner
// thread.

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agentd/links/link_table.h"
#include "agentd/node/node_calls.h"
#include "agentd/node/node_views.h"
#include "agentd/state/state_replicator.h"
#include "macrame/v1/model.pb.h"
#include "macrame/v1/plan.pb.h"

namespace macrame::agentd {

// Once one node has the model, the others are waited for so long: a node that hangs must not keep
// the cluster from planning without it.
inline constexpr Duration kPlanPatience = std::chrono::seconds(2);

// A plan that is refused while a node can't be used yet (it has just joined, it was not heard for a
// moment, this coordinator does not hold its lease, it has not answered) waits for it so long from
// its beginning, and is tried anew each time this interval is over. What is recovered does not: the
// reconciler asks again by itself.
inline constexpr Duration kReadyPatience = std::chrono::seconds(10);
inline constexpr Duration kReadinessCheckInterval = std::chrono::milliseconds(200);

// What a node said of a model is good for a plan of the same load for so long: a deployment that
// was just written is planned once more, and its nodes were asked a moment ago.
inline constexpr Duration kAnswerFresh = std::chrono::seconds(1);

struct PlanOrder {
  std::string name_or_path;
  std::string fingerprint;  // only this very model; empty: whichever the name means
  v1::PlacementOptions placement;
  bool recovering = false;
  v1::Plan current;  // where it ran last: kept unless another plan is worth the move
  // The deployment that this is for, as the desired state calls it; empty: none yet. Nodes that
  // hold another replica of it are not used.
  std::string deployment;
  int32_t priority = 0;
  // When nothing fits, deployments with a lower priority may go: result.evicted names them.
  bool may_evict = false;
  // Before that: deployments that may be unloaded for it, the least recently used first;
  // result.evicted names those that have to be.
  std::vector<std::string> unused;
  bool refuses_uneven_slices = false;
  uint32_t replicas = 1;           // that are to find room, this one included
  std::set<std::string> in_force;  // gangs that hold memory
  bool may_reuse_answers = false;  // fresh ones; what people ask is asked of the nodes
};

struct PlanOutcome {
  v1::ModelDescription model;
  v1::PlanResult result;
  std::set<std::string> usable;  // ids of the nodes that could take a rank of it
};

class DeploymentPlanner {
 public:
  using Done = std::function<void(absl::StatusOr<PlanOutcome>)>;

  // `transport`: the configured one ("auto", "jaccl", …), for requests that name none.
  DeploymentPlanner(transport::Dispatcher& dispatcher, NodeCalls& calls, const NodeViews& views,
                    LinkTable& links, const StateReplicator& replicator, std::string transport)
      : dispatcher_(dispatcher),
        calls_(calls),
        views_(views),
        links_(links),
        replicator_(replicator),
        transport_(std::move(transport)) {}

  // An error when no node has the model (the reason says why not); a refusal of the planner is in
  // result.failure.
  void Plan(PlanOrder order, Done done);

 private:
  struct Asking;
  // Decides when all have answered, or when patience is over and somebody has the model; again for
  // a refusal, as long as a node may become ready.
  void DecideIfReady(const std::shared_ptr<Asking>& asking);
  bool MayBecomeReady(const Asking& asking) const;
  absl::StatusOr<PlanOutcome> Decide(const Asking& asking);
  v1::PlanRequest RequestOf(const Asking& asking, const v1::ModelDescription& model,
                            const ClusterView& state, const std::set<std::string>& holders);
  void AddDraftModel(const Asking& asking, v1::PlanRequest* request) const;
  using AnswerTaker = std::function<void(absl::StatusOr<v1::DescribeModelResponse>)>;
  // Of the node, or of what it said a moment ago; `taker` runs later in either case.
  void Ask(const NodeId& node, const std::string& model, bool may_reuse, AnswerTaker taker);

  transport::Dispatcher& dispatcher_;
  NodeCalls& calls_;
  const NodeViews& views_;
  LinkTable& links_;
  const StateReplicator& replicator_;
  const std::string transport_;
  uint64_t revision_ = 0;
  struct Answered {
    v1::DescribeModelResponse response;
    MonotonicTime at;
  };
  std::map<std::pair<NodeId, std::string>, Answered> answered_;  // by node and model; fresh ones
};

}  // namespace macrame::agentd
