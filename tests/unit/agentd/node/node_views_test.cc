// The nodes as planner, reconciler and status see them, on agents in each of the states that a node
// may be in.

#include "agentd/node/node_views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class NodeViewsTest : public sim::AskedAgents {
 protected:
  // As the coordinator hands it to the planner.
  v1::PlannerNode Planned(int node) {
    for (v1::PlannerNode& one : parts(Leader()).views.ForPlanner({id(node)})) {
      if (one.node_id() == id(node).value()) return std::move(one);
    }
    return v1::PlannerNode();
  }
  NodeView Reconciled(int node) {
    for (NodeView& view : parts(Leader()).views.ForReconciler(MonotonicTime())) {
      if (view.id == id(node)) return std::move(view);
    }
    return NodeView();
  }
};

TEST_F(NodeViewsTest, ALiveNodeIsPlannedOnWithWhatItHas) {
  Begin(3);
  sim().RunFor(3000);
  for (int node = 0; node < 3; ++node) {
    const v1::PlannerNode planned = Planned(node);
    EXPECT_TRUE(planned.schedulable()) << planned.unschedulable_reason();
    EXPECT_GT(planned.memory_usable_bytes(), 0u);
    EXPECT_GT(planned.memory_total_bytes(), 0u);
    EXPECT_TRUE(planned.has_model_files());
    EXPECT_TRUE(planned.traits().uneven_tensor()) << "it is of the same version";
    EXPECT_TRUE(Reconciled(node).orderable);
    EXPECT_TRUE(Reconciled(node).heard);
  }
  for (const v1::PlannerNode& node : parts(Leader()).views.ForPlanner({})) {
    EXPECT_FALSE(node.has_model_files());
  }
}

TEST_F(NodeViewsTest, WhyANodeTakesNothingIsSaid) {
  Begin(4);
  sim().RunFor(3000);
  const int leader = Leader();
  std::vector<int> others;
  for (int at = 0; at < 4; ++at) {
    if (at != leader) others.push_back(at);
  }
  const int dead = others[0], cordoned = others[1], full = others[2];
  sim().Crash(dead);
  sim().Cordon(leader, id(cordoned), v1::CORDON_ORDER_CORDON);
  sim().FillDisk(full, true);
  sim().RunFor(5000);
  ASSERT_EQ(Leader(), leader);
  EXPECT_FALSE(Planned(dead).schedulable());
  EXPECT_THAT(Planned(dead).unschedulable_reason(), ::testing::Not(IsEmpty()));
  EXPECT_FALSE(Planned(cordoned).schedulable());
  EXPECT_THAT(Planned(cordoned).unschedulable_reason(), HasSubstr("clusterctl uncordon"));
  EXPECT_FALSE(Planned(full).schedulable());
  EXPECT_THAT(Planned(full).unschedulable_reason(), HasSubstr("disk"));
  EXPECT_TRUE(Reconciled(cordoned).cordoned);
  EXPECT_FALSE(Reconciled(cordoned).draining);
  EXPECT_FALSE(Reconciled(dead).orderable);
  sim().FillDisk(full, false);
  sim().RunFor(3000);
  EXPECT_TRUE(Planned(full).schedulable()) << Planned(full).unschedulable_reason();
}

TEST_F(NodeViewsTest, ANodeThatIsDrainedGivesItsAnswersTheTimeOfTheOrder) {
  Begin(2);
  LoadAndWait("m1");
  int holder = 0;
  while (sim().RanksOn(holder, "m1") == 0) ++holder;
  EXPECT_FALSE(parts(Leader()).views.AnyDraining());
  v1::SetCordonRequest drain;
  drain.set_node_id(id(holder).value());
  drain.set_order(v1::CORDON_ORDER_DRAIN);
  drain.set_deadline_ms(7000);
  ASSERT_TRUE(Ask(Leader(), kSetCordon, drain).ok());
  EXPECT_TRUE(Reconciled(holder).draining);
  EXPECT_EQ(Reconciled(holder).answers_have, std::chrono::milliseconds(7000));
  EXPECT_TRUE(parts(Leader()).views.AnyDraining()) << "its ranks are not over yet";
}

TEST_F(NodeViewsTest, ANodeThatIsToldToStopSaysSo) {
  Begin(3);
  sim().RunFor(3000);
  const int leaving = Follower();
  for (int at = 0; at < 3; ++at) EXPECT_TRUE(parts(at).views.HasOther());
  parts(leaving).own.SetDraining();
  sim().RunFor(12'000);
  EXPECT_FALSE(Planned(leaving).schedulable());
  EXPECT_THAT(Planned(leaving).unschedulable_reason(), HasSubstr("about to stop"));
  EXPECT_TRUE(Reconciled(leaving).draining);
  EXPECT_TRUE(parts(Leader()).views.AnyDraining());
}

TEST_F(NodeViewsTest, ALoneNodeHasNoOther) {
  Begin(1);
  EXPECT_FALSE(parts(0).views.HasOther());
  EXPECT_THAT(parts(0).views.All(), SizeIs(1));
  EXPECT_FALSE(parts(0).views.AnyRanks());
  LoadAndWait("m0");
  EXPECT_TRUE(parts(0).views.AnyRanks());
  EXPECT_THAT(parts(0).views.AllRanks(), SizeIs(1));
}

TEST_F(NodeViewsTest, EveryNodeSeesEachOnceInTheSameOrder) {
  Begin(4);
  sim().RunFor(3000);
  for (int at = 0; at < 4; ++at) {
    const std::vector<NodeFacts> all = parts(at).views.All();
    ASSERT_THAT(all, SizeIs(4));
    for (size_t place = 0; place < 4; ++place) {
      EXPECT_EQ(all[place].id, id(static_cast<int>(place)));
      EXPECT_EQ(all[place].is_self, static_cast<int>(place) == at);
      EXPECT_NE(all[place].inventory, nullptr);
      EXPECT_EQ(all[place].display_name, std::string("node-") + static_cast<char>('a' + place));
    }
  }
}

}  // namespace
}  // namespace macrame::agentd
