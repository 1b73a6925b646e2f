#include "agentd/cores/preemption.h"

#include <gtest/gtest.h>

#include "planner/planner.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::agentd {
namespace {

using planner::kGiB;

constexpr uint64_t kGB = 1'000'000'000;
const std::set<std::string> kBoth = {"first", "second"};

// Two Macs of 64 GiB; each serves a model, so that another one does not fit beside it.
class Preemption : public ::testing::Test {
 protected:
  Preemption() {
    request =
        planner::Request(planner::LargeModel("new", 40 * kGB, 40),
                         {planner::Node("aaaa", 48 * kGiB), planner::Node("bbbb", 48 * kGiB)});
    Serve("first", 30 * kGB, 0);
    Serve("second", 40 * kGB, 1);
    request.mutable_model()->CopyFrom(planner::LargeModel("new", 40 * kGB, 40));
    refused = planner::PlanModel(request);
  }

  // As a coordinator sees it once the ranks are loaded.
  void Serve(const std::string& name, uint64_t bytes, int32_t priority) {
    *request.mutable_model() = planner::LargeModel(name, bytes, 40);
    request.mutable_placement()->set_world_size(1);
    const v1::PlanResult placed = planner::PlanModel(request);
    ASSERT_TRUE(placed.has_plan()) << placed.failure().message();
    v1::Deployment deployment;
    deployment.set_name(name);
    deployment.set_priority(priority);
    state.deployments.push_back(deployment);
    v1::GangRecord gang;
    gang.set_deployment(name);
    *gang.mutable_plan() = placed.plan();
    state.gangs.push_back(gang);
    for (const v1::Assignment& part : placed.plan().assignments()) {
      for (v1::PlannerNode& node : *request.mutable_nodes()) {
        if (node.node_id() != part.node_id()) continue;
        const uint64_t need = part.need().total_bytes();
        node.set_memory_reserved_bytes(node.memory_reserved_bytes() + need);
        node.set_memory_available_bytes(node.memory_available_bytes() - need);
      }
    }
  }

  v1::PlanRequest request;
  ClusterView state;
  v1::PlanResult refused;
};

TEST_F(Preemption, WhatMayGoIsNamedAndThePlanIsTheOneWithoutIt) {
  ASSERT_EQ(refused.failure().code(), "MEMORY_SHORT");
  const v1::PlanResult result = Preempt(request, {"new", 2, true, kBoth}, state, refused);
  ASSERT_TRUE(result.has_plan());
  ASSERT_EQ(result.evicted_size(), 1);
  EXPECT_EQ(result.evicted(0), "first") << "the lower priority";
  EXPECT_EQ(result.plan().assignments(0).node_id(), state.gangs[0].plan().assignments(0).node_id());
}

TEST_F(Preemption, ALowerPriorityThanAllEvictsNobody) {
  const v1::PlanResult result = Preempt(request, {"new", 0, true, kBoth}, state, refused);
  EXPECT_FALSE(result.has_plan());
  EXPECT_EQ(result.evicted_size(), 0);
  EXPECT_EQ(result.failure().code(), "MEMORY_SHORT");
  EXPECT_NE(result.failure().remedy().find("unload first: then it fits; or load it with a "
                                           "--priority above 0: then it takes its place"),
            std::string::npos)
      << result.failure().remedy();
}

TEST_F(Preemption, WithoutLeaveToEvictTheRemedySaysWhatCouldBeUnloaded) {
  const v1::PlanResult result = Preempt(request, {"", 0, false, kBoth}, state, refused);
  EXPECT_FALSE(result.has_plan());
  EXPECT_NE(result.failure().remedy().find("unload first: then it fits"), std::string::npos)
      << result.failure().remedy();
}

TEST_F(Preemption, OfUnusedModelsTheLeastRecentlyUsedThatHelpsGoes) {
  const auto evicted = [&](std::vector<std::string> unused, bool may_evict = false) {
    PreemptionInput wanted{"new", 0, may_evict, kBoth};
    wanted.unused = std::move(unused);
    const v1::PlanResult result = Preempt(request, wanted, state, refused);
    EXPECT_EQ(result.has_plan(), result.evicted_size() > 0);
    return std::vector<std::string>(result.evicted().begin(), result.evicted().end());
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(evicted({"second", "first"}), Names{"second"}) << "whatever its priority";
  EXPECT_EQ(evicted({"first", "second"}), Names{"first"});
  EXPECT_EQ(evicted({"elsewhere", "second"}), Names{"second"});
  EXPECT_EQ(evicted({}), Names());
  EXPECT_EQ(evicted({"elsewhere"}, true), Names()) << "none has a lower priority";
  *request.mutable_model() = planner::LargeModel("new", 100 * kGB, 40);
  EXPECT_EQ(evicted({"second", "first"}), Names()) << "it would not fit without them either";
}

TEST_F(Preemption, OtherProgramsMemoryIsNotCountedAsFree) {
  // Somebody else's programs hold 30 GiB of each node: with both models gone it would not fit.
  for (v1::PlannerNode& node : *request.mutable_nodes()) {
    const uint64_t taken = std::min(node.memory_available_bytes() - 1, 30 * kGiB);
    node.set_memory_available_bytes(node.memory_available_bytes() - taken);
  }
  *request.mutable_model() = planner::LargeModel("new", 46 * kGB, 40);
  const v1::PlanResult result = Preempt(request, {"new", 9, true, kBoth}, state, refused);
  EXPECT_FALSE(result.has_plan());
}

TEST_F(Preemption, WhatDoesNotRunHoldsNothingAndIsNotEvicted) {
  const v1::PlanResult result = Preempt(request, {"new", 2, true, {"second"}}, state, refused);
  ASSERT_EQ(result.evicted_size(), 1);
  EXPECT_EQ(result.evicted(0), "second");
}

TEST_F(Preemption, AGangWithAPartOnANodeThatIsNotThereKeepsWhatItHolds) {
  // "second" also has a part on a node that was lost: it can't be counted on to free memory.
  state.gangs[1].mutable_plan()->add_assignments()->set_node_id("cccc");
  const v1::PlanResult result = Preempt(request, {"new", 9, true, {"second"}}, state, refused);
  EXPECT_FALSE(result.has_plan());
}

TEST_F(Preemption, TheDeploymentsOwnReplicasAreNotInItsWay) {
  const v1::PlanResult result = Preempt(request, {"first#2", 9, true, kBoth}, state, refused);
  ASSERT_EQ(result.evicted_size(), 1);
  EXPECT_EQ(result.evicted(0), "second");
}

TEST_F(Preemption, WhatReportsDoNotShowYetIsCountedOnce) {
  v1::PlanRequest early = request;
  for (v1::PlannerNode& node : *early.mutable_nodes()) {
    node.set_memory_available_bytes(node.memory_available_bytes() + node.memory_reserved_bytes());
    node.set_memory_reserved_bytes(0);
  }
  ASSERT_TRUE(planner::PlanModel(early).has_plan()) << "the reports are from before";
  CountPromises({"new", 0, false, kBoth}, state, &early);
  CountPromises({"new", 0, false, kBoth}, state, &request);
  for (int i = 0; i < request.nodes_size(); ++i) {
    EXPECT_EQ(early.nodes(i).SerializeAsString(), request.nodes(i).SerializeAsString());
  }
  EXPECT_EQ(planner::PlanModel(early).failure().code(), "MEMORY_SHORT");
}

TEST_F(Preemption, WhatWasPromisedButIsNotFreeIsNotGivenBack) {
  // The reports are from before, and other programs took 30 of the 48 GiB since.
  for (v1::PlannerNode& node : *request.mutable_nodes()) {
    node.set_memory_reserved_bytes(0);
    node.set_memory_available_bytes(18 * kGiB);
  }
  CountPromises({"new", 9, true, kBoth}, state, &request);
  for (const auto& [gigabytes, fits] : {std::pair<uint64_t, bool>{12, true}, {22, false}}) {
    *request.mutable_model() = planner::LargeModel("new", gigabytes * kGB, 40);
    refused = planner::PlanModel(request);
    ASSERT_EQ(refused.failure().code(), "MEMORY_SHORT");
    const v1::PlanResult result = Preempt(request, {"new", 9, true, kBoth}, state, refused);
    EXPECT_EQ(result.has_plan(), fits) << gigabytes << " GB";
  }
}

TEST_F(Preemption, NodesOfOtherReplicasAreTold) {
  EXPECT_EQ(NodesOfOtherReplicas(state, {"first#2", 0, false, kBoth}).size(), 1u);
  EXPECT_TRUE(NodesOfOtherReplicas(state, {"first", 0, false, kBoth}).empty());
  EXPECT_TRUE(NodesOfOtherReplicas(state, {"", 0, false, kBoth}).empty());
  EXPECT_TRUE(NodesOfOtherReplicas(state, {"first#2", 0, false, {"second"}}).empty())
      << "a replica that does not run keeps nobody off its nodes";
}

class CountingReplicas : public ::testing::Test {
 protected:
  // What is said of `wanted`; empty: nothing against it.
  std::string Refusal(const ReplicasWanted& wanted) const {
    const auto refused = RefuseReplicas(wanted, state);
    if (!refused.has_value()) return "";
    EXPECT_EQ(refused->code(), "TOO_FEW_NODES");
    return refused->message() + "; " + refused->remedy();
  }
  void Serve(const std::string& gang, const std::vector<std::string>& nodes) {
    state.gangs.emplace_back().set_deployment(gang);
    for (const std::string& node : nodes) {
      state.gangs.back().mutable_plan()->add_assignments()->set_node_id(node);
    }
  }

  const std::set<std::string> three = {"ada", "bess", "cleo"};
  ClusterView state;
};

TEST_F(CountingReplicas, MoreNodesThanThereAreCanNeverBe) {
  EXPECT_EQ(Refusal({"knot", 4, 1, 1, three, {}}),
            "4 replicas need 4 nodes, 3 can be used; ask for fewer replicas, or add nodes");
  EXPECT_EQ(
      Refusal({"knot", 2, 3, 1, three, {}}),
      "2 replicas over 3 ranks need 6 nodes, 3 can be used; ask for fewer replicas or ranks, or "
      "add nodes");
  EXPECT_EQ(Refusal({"knot", 3, 1, 1, three, {}}), "");
}

TEST_F(CountingReplicas, WhatGoesOnLeavesRoomOrNot) {
  Serve("knot", {"ada", "bess", "cleo"});
  EXPECT_EQ(
      Refusal({"knot", 2, 1, 1, three, {"knot"}}),
      "'knot' serves from all 3 nodes, so none is left for another replica; load it again with "
      "'--ranks 1 --replicas 2'");
  EXPECT_EQ(Refusal({"knot", 2, 1, 3, three, {"knot"}}).substr(0, 36),
            "'knot' serves from all 3 nodes, so n")
      << "loaded with '--ranks 3'";
  EXPECT_EQ(Refusal({"knot", 2, 1, 1, three, {}}), "") << "it is launched anew";
  EXPECT_EQ(Refusal({"other", 2, 1, 1, three, {"knot"}}), "") << "others share nodes";
  state.gangs.clear();
  Serve("knot", {"ada"});
  Serve("knot#2", {"bess"});
  EXPECT_EQ(Refusal({"knot", 3, 1, 1, three, {"knot", "knot#2"}}), "");
  Serve("knot#3", {"cleo"});
  EXPECT_EQ(Refusal({"knot", 2, 1, 1, three, {"knot", "knot#2", "knot#3"}}), "")
      << "fewer than now";
  state.gangs.clear();
  Serve("knot", {"ada", "bess"});
  EXPECT_EQ(Refusal({"knot", 3, 1, 1, three, {"knot"}}),
            "'knot' serves from 2 of 3 nodes, so 1 is left for 2 more replicas; load it again with "
            "'--ranks 1 --replicas 3'");
}

// As the planner answers when no node is left.
TEST(NamingHolders, ANodeWithAnotherReplicaIsNotSaidToBeDead) {
  v1::PlanRequest request =
      planner::Request(planner::LargeModel("knot", kGB, 8),
                       {planner::Node("aaaa", 48 * kGiB), planner::Node("bbbb", 48 * kGiB)});
  for (v1::PlannerNode& node : *request.mutable_nodes()) {
    node.set_schedulable(false);
    node.set_unschedulable_reason("it holds another replica");
  }
  v1::PlanResult result = planner::PlanModel(request);
  ASSERT_EQ(result.failure().code(), "NODE_NOT_ALIVE");
  v1::PlanResult one_is_dead = result;
  NameHolders("knot#2", {"aaaa", "bbbb"}, &result);
  EXPECT_EQ(result.failure().code(), "TOO_FEW_NODES");
  EXPECT_EQ(
      result.failure().message(),
      "every node that can be used serves 'knot' already, and a replica needs nodes of its own");
  EXPECT_NE(result.rejections(0).reason().code(), "NODE_NOT_ALIVE");
  NameHolders("knot#2", {"aaaa"}, &one_is_dead);
  EXPECT_EQ(one_is_dead.failure().code(), "TOO_FEW_NODES");
  EXPECT_EQ(one_is_dead.rejections(1).reason().code(), "NODE_NOT_ALIVE");
}

// With a cable between each two: one replica would be fastest over all of them.
v1::PlanRequest FourStudios() {
  v1::PlanRequest request =
      planner::Request(planner::LargeModel("m", 60 * kGB, 40),
                       {planner::Node("aaaa", 96 * kGiB), planner::Node("bbbb", 96 * kGiB),
                        planner::Node("cccc", 96 * kGiB), planner::Node("dddd", 96 * kGiB)});
  for (v1::PlannerNode& node : *request.mutable_nodes()) node.set_chip("Apple M3 Ultra");
  planner::AddMesh({"aaaa", "bbbb", "cccc", "dddd"}, &request);
  return request;
}

TEST(LeavingRoom, EachReplicaTakesItsShareOfTheNodes) {
  v1::PlanRequest request = FourStudios();
  const v1::PlanResult alone = planner::PlanModel(request);
  ASSERT_EQ(alone.plan().world_size(), 4u);
  EXPECT_EQ(PlanForAllReplicas(request, {"m", 0, false, {}, 1}, alone).plan().world_size(), 4u);
  PreemptionInput wanted{"m", 0, false, {}, 2};
  const v1::PlanResult first = PlanForAllReplicas(request, wanted, alone);
  EXPECT_EQ(first.plan().world_size(), 2u);
  // The second has what the first left.
  for (const v1::Assignment& part : first.plan().assignments()) {
    for (v1::PlannerNode& node : *request.mutable_nodes()) {
      if (node.node_id() == part.node_id()) node.set_schedulable(false);
    }
  }
  wanted = {"m#2", 0, false, {"m"}, 2};
  EXPECT_EQ(PlanForAllReplicas(request, wanted, planner::PlanModel(request)).plan().world_size(),
            2u);
}

TEST(LeavingRoom, OnlyNodesThatCanBeUsedAreShared) {
  v1::PlanRequest request = FourStudios();
  request.mutable_nodes(3)->set_has_model_files(false);
  EXPECT_EQ(UsableNodes(request), (std::set<std::string>{"aaaa", "bbbb", "cccc"}));
  const v1::PlanResult alone = planner::PlanModel(request);
  ASSERT_GE(alone.plan().world_size(), 2u);
  EXPECT_EQ(PlanForAllReplicas(request, {"m", 0, false, {}, 2}, alone).plan().world_size(), 1u);
}

TEST(LeavingRoom, AModelThatNeedsMoreThanItsShareGetsIt) {
  v1::PlanRequest request =
      planner::Request(planner::LargeModel("m", 150 * kGB, 40),
                       {planner::Node("aaaa", 96 * kGiB), planner::Node("bbbb", 96 * kGiB)});
  const v1::PlanResult alone = planner::PlanModel(request);
  ASSERT_EQ(alone.plan().world_size(), 2u);
  EXPECT_EQ(PlanForAllReplicas(request, {"m", 0, false, {}, 2}, alone).plan().world_size(), 2u)
      << "one replica is better than none; the other is refused with its reason";
}

}  // namespace
}  // namespace macrame::agentd
