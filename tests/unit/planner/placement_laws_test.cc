// Laws of placing many models: on made clusters, whatever is wanted, running and allowed to go.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "planner/constraints.h"
#include "planner/placement.h"
#include "planner/planner.h"
#include "proto/reason_codes.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

WantedDeployment Wanted(const std::string& name, uint64_t bytes, int priority = 0) {
  WantedDeployment wanted;
  wanted.name = name;
  wanted.model = LargeModel(name, bytes, 24);
  wanted.priority = priority;
  return wanted;
}

v1::PlanRequest Cluster(const std::vector<uint64_t>& usable_gib) {
  v1::PlanRequest cluster;
  for (size_t i = 0; i < usable_gib.size(); ++i) {
    *cluster.add_nodes() = Node(absl::StrCat("node-", i), usable_gib[i] * kGiB);
  }
  return cluster;
}

std::set<std::string> NodesOf(const v1::Plan& plan) {
  std::set<std::string> nodes;
  for (const auto& [node, bytes] : BytesByNode(plan)) nodes.insert(node);
  return nodes;
}

// Some run since before, some are new; priorities differ, and some want several replicas.
PlacementRequest RandomRequest(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](uint64_t low, uint64_t high) { return low + random() % (high - low + 1); };
  PlacementRequest request;
  std::vector<uint64_t> memories(pick(1, 5));
  for (uint64_t& memory : memories) memory = pick(8, 64);
  request.cluster = Cluster(memories);
  for (v1::PlannerNode& node : *request.cluster.mutable_nodes()) {
    if (pick(0, 5) == 0) node.set_memory_available_bytes(0);  // not known
  }
  const auto want = [&](const char* prefix, int more_urgent) {
    for (uint64_t i = pick(0, 3); i > 0; --i) {
      request.deployments.push_back(Wanted(absl::StrCat(prefix, i), pick(2, 50) * kGiB,
                                           static_cast<int>(pick(0, 3)) - 1 + more_urgent));
      if (pick(0, 3) == 0) request.deployments.back().replicas = static_cast<uint32_t>(pick(2, 3));
    }
  };
  want("runs-", 0);
  std::map<std::string, v1::Plan> plans;
  const PlacementResult before = PlaceAll(request);
  for (const PlacedDeployment& placed : before.deployments) {
    if (placed.replica == 0) plans[placed.name] = placed.plan.plan();
  }
  for (WantedDeployment& one : request.deployments) one.in_force = plans[one.name];
  want("new-", 1);
  request.may_evict = pick(0, 1) > 0;
  if (pick(0, 3) == 0) {
    request.cluster.mutable_nodes(static_cast<int>(pick(0, memories.size() - 1)))
        ->set_schedulable(false);
  }
  return request;
}

const WantedDeployment& WantedOf(const PlacementRequest& request, const std::string& name) {
  return *std::find_if(request.deployments.begin(), request.deployments.end(),
                       [&](const WantedDeployment& one) { return one.name == name; });
}

void CheckMemory(const PlacementRequest& request, const PlacementResult& result) {
  std::map<std::string, uint64_t> taken;
  for (const PlacedDeployment& placed : result.deployments) {
    for (const auto& [node, bytes] : BytesByNode(placed.plan.plan())) taken[node] += bytes;
  }
  for (const v1::PlannerNode& node : request.cluster.nodes()) {
    EXPECT_LE(taken[node.node_id()], BudgetBytes(node)) << node.node_id();
  }
}

void CheckReplicas(const PlacementResult& result) {
  std::map<std::string, std::set<std::string>> used;
  for (const PlacedDeployment& placed : result.deployments) {
    for (const std::string& node : NodesOf(placed.plan.plan())) {
      EXPECT_TRUE(used[placed.name].insert(node).second)
          << "two replicas of " << placed.name << " are on " << node;
    }
  }
}

void CheckEvictions(const PlacementRequest& request, const PlacementResult& result) {
  std::map<std::string, int> gone;
  for (const PlacedDeployment& placed : result.deployments) {
    if (!request.may_evict) {
      EXPECT_THAT(placed.evicted, IsEmpty());
    }
    if (!placed.evicted.empty()) {
      EXPECT_TRUE(placed.plan.has_plan() || placed.plan.failure().code() == reasons::kEvicted)
          << "some go for " << placed.name << ", which is not placed";
    }
    for (const std::string& victim : placed.evicted) {
      EXPECT_LT(WantedOf(request, victim).priority, WantedOf(request, placed.name).priority)
          << victim << " goes for " << placed.name;
      ++gone[victim];
    }
  }
  for (const PlacedDeployment& placed : result.deployments) {
    const v1::Plan& before = WantedOf(request, placed.name).in_force;
    if (placed.plan.has_failure()) {
      EXPECT_FALSE(placed.plan.failure().message().empty()) << placed.name;
      if (placed.plan.failure().code() == reasons::kEvicted) {
        EXPECT_GT(gone[placed.name], 0);
      }
    }
    if (placed.replica != 0 || before.assignments().empty() || gone[placed.name] > 0) continue;
    const bool is_there = std::all_of(
        request.cluster.nodes().begin(), request.cluster.nodes().end(), [&](const auto& node) {
          return node.schedulable() || NodesOf(before).count(node.node_id()) == 0;
        });
    EXPECT_EQ(placed.moved, !is_there) << placed.name;
    if (is_there) {
      EXPECT_EQ(placed.plan.plan().SerializeAsString(), before.SerializeAsString())
          << placed.name << " does not stay where it runs";
    }
  }
}

TEST(PlacementLaws, HoldOnEveryCluster) {
  size_t placed = 0, refused = 0, evicted = 0;
  for (uint64_t seed = 0; seed < 250; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const PlacementRequest request = RandomRequest(seed);
    const PlacementResult result = PlaceAll(request);
    size_t replicas = 0;
    for (const WantedDeployment& one : request.deployments) replicas += one.replicas;
    ASSERT_EQ(result.deployments.size(), replicas);
    CheckMemory(request, result);
    CheckReplicas(result);
    CheckEvictions(request, result);
    for (const PlacedDeployment& one : result.deployments) {
      ASSERT_NE(one.plan.has_plan(), one.plan.has_failure()) << one.name;
      ++(one.plan.has_plan() ? placed : refused);
      evicted += one.evicted.size();
    }
  }
  EXPECT_GT(placed, 300u);
  EXPECT_GT(refused, 60u);
  EXPECT_GT(evicted, 8u);
}

// What would be placed on the bare cluster is placed when all others may go for it.
TEST(PlacementLaws, TheHighestPriorityIsServedWhereverTheClusterCouldHoldIt) {
  int served = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    PlacementRequest request = RandomRequest(seed);
    request.may_evict = true;
    request.deployments.push_back(Wanted("urgent", (4 + seed % 60) * kGiB, 9));
    v1::PlanRequest bare = request.cluster;
    *bare.mutable_model() = request.deployments.back().model;
    const bool can = PlanModel(bare).has_plan();
    const PlacementResult result = PlaceAll(request);
    EXPECT_EQ(result.deployments.back().plan.has_plan(), can);
    served += can ? 1 : 0;
  }
  EXPECT_GT(served, 50);
}

// ---- What has to go for one.

struct Running {
  v1::PlanRequest cluster;
  std::vector<WantedDeployment> running;
};

// With what runs in the reserved memory of its nodes, as agents report it.
Running Started(const std::vector<uint64_t>& usable_gib, std::vector<WantedDeployment> wanted) {
  PlacementRequest request;
  request.cluster = Cluster(usable_gib);
  request.deployments = std::move(wanted);
  const PlacementResult placed = PlaceAll(request);
  Running started{request.cluster, request.deployments};
  for (size_t i = 0; i < started.running.size(); ++i) {
    EXPECT_TRUE(placed.deployments[i].plan.has_plan()) << placed.deployments[i].name;
    started.running[i].in_force = placed.deployments[i].plan.plan();
    for (const auto& [id, bytes] : BytesByNode(started.running[i].in_force)) {
      for (v1::PlannerNode& node : *started.cluster.mutable_nodes()) {
        if (node.node_id() != id) continue;
        node.set_memory_reserved_bytes(node.memory_reserved_bytes() + bytes);
        node.set_memory_available_bytes(node.memory_available_bytes() - bytes);
      }
    }
  }
  return started;
}

TEST(PlaceByEvicting, OfManyTheSmallestThatIsEnoughGoesAndIsNamed) {
  const Running started =
      Started({40, 40},
              {Wanted("large", 30 * kGiB), Wanted("middle", 24 * kGiB), Wanted("small", 3 * kGiB)});
  const PlacedDeployment placed =
      PlaceByEvicting(started.cluster, started.running, Wanted("new", 22 * kGiB, 1));
  ASSERT_TRUE(placed.plan.has_plan()) << placed.plan.failure().message();
  EXPECT_THAT(placed.evicted, ElementsAre("middle"));
}

TEST(PlaceByEvicting, NothingGoesForWhatFitsWithoutOrNotAtAllOrIsNoMoreUrgent) {
  const Running started = Started({40}, {Wanted("runs", 20 * kGiB)});
  for (const WantedDeployment& wanted :
       {Wanted("fits", 5 * kGiB, 1), Wanted("huge", 90 * kGiB, 1), Wanted("equal", 25 * kGiB, 0),
        Wanted("less", 25 * kGiB, -1)}) {
    const PlacedDeployment placed = PlaceByEvicting(started.cluster, started.running, wanted);
    EXPECT_THAT(placed.evicted, IsEmpty()) << wanted.name;
    EXPECT_EQ(placed.plan.has_plan(), wanted.name == "fits") << wanted.name;
  }
}

// Memory of a node that is away is not to be had by unloading what has another part there.
TEST(PlaceByEvicting, WhatHasAPartOnANodeThatIsAwayIsLeftAlone) {
  WantedDeployment wide = Wanted("wide", 30 * kGiB);
  wide.placement.set_world_size(2);
  wide.placement.set_parallelism(v1::PARALLELISM_PIPELINE);
  Running started = Started({40, 40}, {wide});
  started.cluster.mutable_nodes(1)->set_schedulable(false);
  const PlacedDeployment placed =
      PlaceByEvicting(started.cluster, started.running, Wanted("new", 34 * kGiB, 1));
  EXPECT_THAT(placed.evicted, IsEmpty());
  EXPECT_FALSE(placed.plan.has_plan());
}

TEST(PlaceByEvicting, WhatAnAgentDoesNotTellOfFreeMemoryStaysUnknown) {
  Running started = Started({40}, {Wanted("runs", 20 * kGiB)});
  started.cluster.mutable_nodes(0)->set_memory_available_bytes(0);
  const PlacedDeployment placed =
      PlaceByEvicting(started.cluster, started.running, Wanted("new", 30 * kGiB, 1));
  EXPECT_TRUE(placed.plan.has_plan()) << placed.plan.failure().message();
  EXPECT_THAT(placed.evicted, ElementsAre("runs"));
}

TEST(PlaceByEvicting, TheRemedyNamesThemBehindWhatElseHelps) {
  v1::Reason refusal;
  AddUnloadRemedy({"chat"}, &refusal);
  EXPECT_EQ(refusal.remedy(), "unload chat: then it fits");
  AddUnloadRemedy({"coder", "draw"}, &refusal);
  EXPECT_EQ(refusal.remedy(), "unload chat: then it fits; or unload coder, draw: then it fits");
}

// ---- Replicas.

TEST(Replicas, BeyondTheNodesThereAreSayThatEachNeedsNodesOfItsOwn) {
  for (const bool named : {false, true}) {
    PlacementRequest request;
    request.cluster = Cluster({40, 40});
    request.deployments.push_back(Wanted("chat", 10 * kGiB));
    request.deployments[0].replicas = 3;
    if (named) {
      request.deployments[0].placement.add_node_ids("node-0");
      request.deployments[0].placement.add_node_ids("node-1");
    }
    const PlacementResult result = PlaceAll(request);
    EXPECT_TRUE(result.deployments[0].plan.has_plan());
    EXPECT_TRUE(result.deployments[1].plan.has_plan());
    const v1::Reason& failure = result.deployments[2].plan.failure();
    EXPECT_EQ(failure.code(), reasons::kTooFewNodes) << failure.message();
    EXPECT_THAT(failure.message(), HasSubstr("replica")) << "nobody excluded a node";
    EXPECT_THAT(failure.remedy(), HasSubstr("fewer replicas"));
    EXPECT_THAT(failure.remedy(), Not(HasSubstr("exclude fewer")));
  }
}

TEST(Replicas, GoOnlyToNodesThatTheOptionsNameAndThatNoOtherHolds) {
  PlacementRequest request;
  request.cluster = Cluster({40, 40, 40, 40});
  request.deployments.push_back(Wanted("chat", 10 * kGiB));
  request.deployments[0].replicas = 3;
  request.deployments[0].placement.add_excluded_node_ids("node-2");
  const PlacementResult result = PlaceAll(request);
  std::set<std::string> used;
  for (const PlacedDeployment& placed : result.deployments) {
    ASSERT_TRUE(placed.plan.has_plan()) << placed.plan.failure().message();
    for (const std::string& node : NodesOf(placed.plan.plan())) used.insert(node);
  }
  EXPECT_THAT(used, ElementsAre("node-0", "node-1", "node-3"));
}

}  // namespace
}  // namespace macrame::planner
