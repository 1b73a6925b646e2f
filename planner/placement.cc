#include "planner/placement.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/advice.h"
#include "planner/constraints.h"
#include "planner/planner.h"
#include "planner/saturating.h"
#include "proto/reasons.h"

namespace macrame::planner {
namespace {

// So many of the smallest are tried alone before several go together.
constexpr size_t kAloneTriedMax = 64;

// One replica of one deployment.
struct Replica {
  size_t deployment = 0;
  uint32_t replica = 0;
};

class Placer {
 public:
  explicit Placer(const PlacementRequest& request) : request_(request), cluster_(request.cluster) {
    for (int i = 0; i < cluster_.nodes_size(); ++i) index_[cluster_.nodes(i).node_id()] = i;
    for (size_t i = 0; i < request.deployments.size(); ++i) {
      for (uint32_t r = 0; r < std::max(1u, request.deployments[i].replicas); ++r) {
        replicas_.push_back({i, r});
      }
    }
    placed_.resize(replicas_.size());
  }

  PlacementResult Place() {
    KeepWhatRuns();
    std::vector<size_t> order(replicas_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const WantedDeployment &one = WantedOf(a), &other = WantedOf(b);
      return std::pair(one.priority, ModelBytes(one.model)) >
             std::pair(other.priority, ModelBytes(other.model));
    });
    for (const size_t replica : order) {
      if (!placed_[replica].plan.has_plan()) PlaceOne(replica);
    }
    PlacementResult result;
    result.deployments = std::move(placed_);
    return result;
  }

 private:
  const WantedDeployment& WantedOf(size_t replica) const {
    return request_.deployments[replicas_[replica].deployment];
  }

  // What is promised is neither unpromised nor free any more.
  void Promise(const v1::Plan& plan, bool give) {
    for (const auto& [node_id, bytes] : BytesByNode(plan)) {
      const auto found = index_.find(node_id);
      if (found == index_.end()) continue;
      v1::PlannerNode& node = *cluster_.mutable_nodes(found->second);
      const uint64_t reserved = node.memory_reserved_bytes();
      node.set_memory_reserved_bytes(give ? SaturatingAdd(reserved, bytes)
                                          : SaturatingSubtract(reserved, bytes));
      uint64_t& taken = taken_[found->second];
      taken = give ? SaturatingAdd(taken, bytes) : SaturatingSubtract(taken, bytes);
      const uint64_t free = request_.cluster.nodes(found->second).memory_available_bytes();
      if (free == 0) continue;  // not known
      node.set_memory_available_bytes(std::max<uint64_t>(1, SaturatingSubtract(free, taken)));
    }
  }

  // The first replica of what runs stays where it is, as far as its nodes are still there.
  void KeepWhatRuns() {
    for (size_t replica = 0; replica < replicas_.size(); ++replica) {
      const v1::Plan& plan = WantedOf(replica).in_force;
      PlacedDeployment& placed = placed_[replica];
      placed.name = WantedOf(replica).name;
      placed.replica = replicas_[replica].replica;
      if (replicas_[replica].replica != 0 || plan.assignments().empty()) continue;
      const bool there = std::all_of(
          plan.assignments().begin(), plan.assignments().end(), [&](const v1::Assignment& part) {
            const auto found = index_.find(part.node_id());
            return found != index_.end() && cluster_.nodes(found->second).schedulable();
          });
      placed.moved = !there;
      if (!there) continue;
      *placed.plan.mutable_plan() = plan;
      Promise(plan, true);
    }
  }

  v1::PlanResult PlanNow(size_t replica) {
    *cluster_.mutable_model() = WantedOf(replica).model;
    *cluster_.mutable_placement() = WantedOf(replica).placement;
    cluster_.set_brief(true);
    // Replicas of one model share no node: one that dies takes one replica with it.
    std::set<std::string> held;
    for (size_t other = 0; other < replicas_.size(); ++other) {
      if (other == replica || replicas_[other].deployment != replicas_[replica].deployment)
        continue;
      for (const auto& [node_id, bytes] : BytesByNode(placed_[other].plan.plan())) {
        held.insert(node_id);
      }
    }
    if (!held.empty() && !IsAnyLeft(held)) return NoNodeLeft(replica);
    for (const std::string& node_id : held) {
      cluster_.mutable_placement()->add_excluded_node_ids(node_id);
    }
    return PlanModel(cluster_);
  }

  // Of the nodes that the options allow, one that is not among these.
  bool IsAnyLeft(const std::set<std::string>& held) const {
    return std::any_of(
        cluster_.nodes().begin(), cluster_.nodes().end(), [&](const v1::PlannerNode& node) {
          return held.count(node.node_id()) == 0 && !PlacementLeavesOut(node, cluster_);
        });
  }

  v1::PlanResult NoNodeLeft(size_t replica) const {
    v1::PlanResult result;
    v1::Reason& failure = *result.mutable_failure();
    failure =
        MakeReason(reasons::kTooFewNodes,
                   absl::StrCat("no node is left for replica ", replicas_[replica].replica + 1,
                                " of ", WantedOf(replica).name, ": each needs nodes of its own"));
    failure.set_remedy("ask for fewer replicas, or add nodes");
    return result;
  }

  void PlaceOne(size_t replica) {
    v1::PlanResult result = PlanNow(replica);
    if (!result.has_plan() && request_.may_evict) result = PlanWithEvictions(replica, result);
    const bool was_evicted = placed_[replica].plan.has_failure();
    if (result.has_plan()) Promise(result.plan(), true);
    placed_[replica].moved = placed_[replica].moved || (was_evicted && result.has_plan());
    if (!result.has_plan() && was_evicted) return;  // for whom it went says more
    if (!result.has_plan() && result.failure().code() == reasons::kMemoryShort)
      NameTheHolders(&result);
    placed_[replica].plan = std::move(result);
  }

  // Says who holds the memory, so that a person can decide what to unload.
  void NameTheHolders(v1::PlanResult* result) const {
    std::vector<std::string> holders;
    for (const PlacedDeployment& placed : placed_) {
      if (placed.plan.has_plan()) holders.push_back(placed.name);
    }
    if (holders.empty()) return;
    constexpr size_t kNamedMax = 8;
    const size_t more = holders.size() > kNamedMax ? holders.size() - kNamedMax : 0;
    holders.resize(holders.size() - more);
    result->mutable_failure()->set_message(absl::StrCat(
        result->failure().message(), ". Memory is promised to ", absl::StrJoin(holders, ", "),
        more > 0 ? absl::StrCat(" and ", more, " more") : ""));
  }

  // Lowest priority first, smallest first: until it fits; then those that were not needed after all
  // are put back, largest first.
  v1::PlanResult PlanWithEvictions(size_t replica, const v1::PlanResult& refused) {
    std::vector<size_t> victims;
    for (size_t other = 0; other < replicas_.size(); ++other) {
      const bool lower = WantedOf(other).priority < WantedOf(replica).priority;
      if (lower && placed_[other].plan.has_plan()) victims.push_back(other);
    }
    const auto held = [&](size_t other) {
      uint64_t sum = 0;
      for (const auto& [node, bytes] : BytesByNode(placed_[other].plan.plan())) {
        sum = SaturatingAdd(sum, bytes);
      }
      return sum;
    };
    std::stable_sort(victims.begin(), victims.end(), [&](size_t a, size_t b) {
      return std::pair(WantedOf(a).priority, held(a)) < std::pair(WantedOf(b).priority, held(b));
    });
    std::vector<size_t> gone;
    v1::PlanResult result = refused;
    // One that goes alone is better than several.
    for (size_t i = 0; i < std::min(victims.size(), kAloneTriedMax) && gone.empty(); ++i) {
      Promise(placed_[victims[i]].plan.plan(), false);
      v1::PlanResult alone = PlanNow(replica);
      if (alone.has_plan()) {
        result = std::move(alone);
        gone.push_back(victims[i]);
      } else {
        Promise(placed_[victims[i]].plan.plan(), true);
      }
    }
    if (gone.empty()) result = EvictUntilItFits(replica, victims, refused, &gone);
    for (const size_t victim : gone) {
      placed_[replica].evicted.push_back(placed_[victim].name);
      placed_[victim].plan.Clear();
      *placed_[victim].plan.mutable_failure() =
          MakeReason(reasons::kEvicted, absl::StrCat("it is preempted by ", WantedOf(replica).name,
                                                     ", which has a higher priority"));
    }
    return result;
  }

  v1::PlanResult EvictUntilItFits(size_t replica, const std::vector<size_t>& victims,
                                  const v1::PlanResult& refused, std::vector<size_t>* all_gone) {
    std::vector<size_t>& gone = *all_gone;
    v1::PlanResult result = refused;
    for (const size_t victim : victims) {
      Promise(placed_[victim].plan.plan(), false);
      gone.push_back(victim);
      result = PlanNow(replica);
      if (result.has_plan()) break;
    }
    for (auto it = gone.rbegin(); it != gone.rend();) {
      const size_t victim = *it;
      Promise(placed_[victim].plan.plan(), true);
      v1::PlanResult without = PlanNow(replica);
      if (!result.has_plan() || without.has_plan()) {
        if (without.has_plan()) result = std::move(without);
        it = std::make_reverse_iterator(gone.erase(std::next(it).base()));
        continue;
      }
      Promise(placed_[victim].plan.plan(), false);
      ++it;
    }
    return result;
  }

  const PlacementRequest& request_;
  v1::PlanRequest cluster_;
  std::map<std::string, int> index_;
  std::map<int, uint64_t> taken_;  // promised here, by node
  std::vector<Replica> replicas_;
  std::vector<PlacedDeployment> placed_;
};

}  // namespace

std::map<std::string, uint64_t> BytesByNode(const v1::Plan& plan) {
  std::map<std::string, uint64_t> bytes;
  for (const v1::Assignment& part : plan.assignments()) {
    uint64_t& sum = bytes[part.node_id()];
    sum = SaturatingAdd(sum, part.need().total_bytes());
  }
  return bytes;
}

PlacedDeployment PlaceByEvicting(v1::PlanRequest cluster, std::vector<WantedDeployment> running,
                                 WantedDeployment wanted) {
  PlacementRequest request;
  request.cluster = std::move(cluster);
  request.may_evict = true;
  std::map<std::string, v1::PlannerNode*> nodes;
  for (v1::PlannerNode& node : *request.cluster.mutable_nodes()) nodes[node.node_id()] = &node;
  // What has a part on a node that is not there now is left alone, with all that it holds.
  std::erase_if(running, [&](const WantedDeployment& one) {
    const auto& parts = one.in_force.assignments();
    return std::any_of(parts.begin(), parts.end(), [&](const v1::Assignment& part) {
      const auto found = nodes.find(part.node_id());
      return found == nodes.end() || !found->second->schedulable();
    });
  });
  // The nodes as if nothing of the others ran.
  for (const WantedDeployment& one : running) {
    for (const auto& [node_id, bytes] : BytesByNode(one.in_force)) {
      const auto found = nodes.find(node_id);
      if (found == nodes.end()) continue;
      v1::PlannerNode& node = *found->second;
      node.set_memory_reserved_bytes(SaturatingSubtract(node.memory_reserved_bytes(), bytes));
      if (node.memory_available_bytes() > 0) {
        node.set_memory_available_bytes(SaturatingAdd(node.memory_available_bytes(), bytes));
      }
    }
  }
  request.deployments = std::move(running);
  request.deployments.push_back(std::move(wanted));
  PlacedDeployment own = std::move(PlaceAll(request).deployments.back());
  if (!own.plan.has_plan()) own.evicted.clear();
  return own;
}

void AddUnloadRemedy(const std::vector<std::string>& names, v1::Reason* refusal) {
  std::string& remedy = *refusal->mutable_remedy();
  absl::StrAppend(&remedy, remedy.empty() ? "" : "; or ", "unload ", absl::StrJoin(names, ", "),
                  ": then it fits");
}

PlacementResult PlaceAll(const PlacementRequest& request) { return Placer(request).Place(); }

}  // namespace macrame::planner
