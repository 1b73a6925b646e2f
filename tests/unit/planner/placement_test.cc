#include "planner/placement.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

constexpr uint64_t kGB = 1'000'000'000;

PlacementRequest On(const std::vector<uint64_t>& usable_gib) {
  PlacementRequest request;
  for (size_t i = 0; i < usable_gib.size(); ++i) {
    *request.cluster.add_nodes() = Node("node-" + std::to_string(i), usable_gib[i] * kGiB);
    request.cluster.mutable_nodes(static_cast<int>(i))->set_chip("Apple M3 Ultra");
  }
  return request;
}

WantedDeployment Wanted(const std::string& name, uint64_t bytes, int priority = 0) {
  WantedDeployment wanted;
  wanted.name = name;
  wanted.model = LargeModel(name, bytes, 40);
  wanted.priority = priority;
  return wanted;
}

std::set<std::string> NodesOf(const PlacedDeployment& placed) {
  std::set<std::string> nodes;
  for (const auto& [node, bytes] : BytesByNode(placed.plan.plan())) nodes.insert(node);
  return nodes;
}

TEST(Placement, EachSeesWhatIsPromisedToTheOthers) {
  PlacementRequest request = On({48, 48});
  for (const char* name : {"a", "b", "c"}) request.deployments.push_back(Wanted(name, 40 * kGB));
  const PlacementResult result = PlaceAll(request);
  ASSERT_EQ(result.deployments.size(), 3u);
  EXPECT_EQ(NodesOf(result.deployments[0]), std::set<std::string>{"node-0"});
  EXPECT_EQ(NodesOf(result.deployments[1]), std::set<std::string>{"node-1"});
  ASSERT_TRUE(result.deployments[2].plan.has_failure());
  EXPECT_EQ(result.deployments[2].plan.failure().code(), "MEMORY_SHORT");
  EXPECT_NE(result.deployments[2].plan.failure().message().find("promised to a, b"),
            std::string::npos)
      << result.deployments[2].plan.failure().message();
}

TEST(Placement, TheLargestIsPlacedFirstSoThatAllFit) {
  PlacementRequest request = On({48, 24});
  request.deployments.push_back(Wanted("small", 18 * kGB));
  request.deployments.push_back(Wanted("large", 40 * kGB));
  const PlacementResult result = PlaceAll(request);
  EXPECT_EQ(NodesOf(result.deployments[1]), std::set<std::string>{"node-0"});
  EXPECT_EQ(NodesOf(result.deployments[0]), std::set<std::string>{"node-1"});
}

TEST(Placement, ReplicasOfOneModelShareNoNode) {
  PlacementRequest request = On({48, 48, 48});
  request.deployments.push_back(Wanted("twice", 10 * kGB));
  request.deployments[0].replicas = 3;
  const PlacementResult result = PlaceAll(request);
  std::set<std::string> used;
  for (const PlacedDeployment& placed : result.deployments) {
    for (const std::string& node : NodesOf(placed)) {
      EXPECT_TRUE(used.insert(node).second) << node;
    }
  }
  EXPECT_EQ(used.size(), 3u);
}

TEST(Placement, WhatRunsStaysWhereItIs) {
  PlacementRequest request = On({48, 48});
  request.deployments.push_back(Wanted("runs", 30 * kGB));
  request.deployments[0].in_force = PlaceAll(request).deployments[0].plan.plan();
  request.cluster.mutable_nodes(1)->set_memory_usable_bytes(96 * kGiB);  // a better place now
  request.cluster.mutable_nodes(1)->set_memory_available_bytes(96 * kGiB);
  request.deployments.push_back(Wanted("new", 60 * kGB));
  const PlacementResult result = PlaceAll(request);
  EXPECT_EQ(NodesOf(result.deployments[0]), std::set<std::string>{"node-0"});
  EXPECT_FALSE(result.deployments[0].moved);
  EXPECT_EQ(NodesOf(result.deployments[1]), std::set<std::string>{"node-1"});
}

TEST(Placement, WhatLostItsNodeMovesAndSaysSo) {
  PlacementRequest request = On({48, 48});
  request.deployments.push_back(Wanted("runs", 30 * kGB));
  request.deployments[0].in_force = PlaceAll(request).deployments[0].plan.plan();
  request.cluster.mutable_nodes(0)->set_schedulable(false);
  const PlacementResult result = PlaceAll(request);
  EXPECT_EQ(NodesOf(result.deployments[0]), std::set<std::string>{"node-1"});
  EXPECT_TRUE(result.deployments[0].moved);
}

TEST(Placement, ALowerPriorityGoesForAHigherOneAndOnlyAsMuchAsNeeded) {
  PlacementRequest request = On({48, 48});
  request.deployments.push_back(Wanted("small", 10 * kGB));
  request.deployments.push_back(Wanted("large", 40 * kGB));
  request.deployments.push_back(Wanted("other", 34 * kGB));
  const PlacementResult before = PlaceAll(request);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(before.deployments[i].plan.has_plan()) << i;
    request.deployments[i].in_force = before.deployments[i].plan.plan();
  }
  request.deployments.push_back(Wanted("urgent", 42 * kGB, 5));
  request.deployments.back().placement.set_world_size(1);
  EXPECT_TRUE(PlaceAll(request).deployments[3].plan.has_failure()) << "nothing may go";
  request.may_evict = true;
  const PlacementResult after = PlaceAll(request);
  ASSERT_TRUE(after.deployments[3].plan.has_plan());
  EXPECT_EQ(after.deployments[3].evicted, std::vector<std::string>{"large"})
      << "not the small ones as well, which were tried first";
  EXPECT_NE(after.deployments[1].plan.failure().message().find("preempted by urgent"),
            std::string::npos);
  EXPECT_TRUE(after.deployments[0].plan.has_plan());
  EXPECT_TRUE(after.deployments[2].plan.has_plan());
}

TEST(Placement, EqualsNeverGoForEachOther) {
  PlacementRequest request = On({48});
  request.deployments.push_back(Wanted("first", 40 * kGB, 1));
  request.deployments[0].in_force = PlaceAll(request).deployments[0].plan.plan();
  request.deployments.push_back(Wanted("second", 40 * kGB, 1));
  request.may_evict = true;
  const PlacementResult result = PlaceAll(request);
  EXPECT_TRUE(result.deployments[0].plan.has_plan());
  EXPECT_TRUE(result.deployments[1].plan.has_failure());
}

}  // namespace
}  // namespace macrame::planner
