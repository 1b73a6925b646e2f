#include "agentd/gangs/deployment_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/replicas.h"
#include "proto/serving_limits.h"
#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class DeploymentPlannerTest : public sim::AskedAgents {
 protected:
  static PlanOrder OrderFor(const std::string& model, uint32_t ranks) {
    PlanOrder order;
    order.name_or_path = model;
    order.placement.set_world_size(ranks);
    return order;
  }
  absl::StatusOr<PlanOutcome> Plan(const PlanOrder& order, int limit_ms = 20'000) {
    std::optional<absl::StatusOr<PlanOutcome>> told;
    const int at = Leader();
    if (at < 0) return absl::UnknownError("nobody leads");
    const MonotonicTime begun = parts(at).dispatcher.Now();
    parts(at).planner.Plan(order, [&](absl::StatusOr<PlanOutcome> outcome) {
      EXPECT_FALSE(told.has_value()) << "told twice";
      told = std::move(outcome);
    });
    if (!RunUntil([&] { return told.has_value(); }, limit_ms)) return absl::UnknownError("no end");
    took_ = parts(at).dispatcher.Now() - begun;
    return *told;
  }
  static std::set<std::string> NodesOf(const PlanOutcome& outcome) {
    std::set<std::string> nodes;
    for (const v1::Assignment& assignment : outcome.result.plan().assignments()) {
      nodes.insert(assignment.node_id());
    }
    return nodes;
  }
  Duration took_{};
};

TEST_F(DeploymentPlannerTest, APlanNamesNodesThatHaveTheModel) {
  Begin(3);
  sim().RunFor(5000);
  const auto outcome = Plan(OrderFor("m0", 3));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(NodesOf(*outcome), SizeIs(3));
  EXPECT_EQ(outcome->model.name(), "m0");
  EXPECT_THAT(outcome->usable, SizeIs(3));
  EXPECT_FALSE(outcome->result.plan().backend().empty());
  EXPECT_GT(outcome->result.plan().reasons_size(), 0);
}

TEST_F(DeploymentPlannerTest, AModelThatNobodyHasIsAnErrorWithItsReason) {
  Begin(2);
  const auto missing = Plan(OrderFor("m9", 1));
  EXPECT_EQ(sim::CodeOf(missing), reasons::kModelNotFound);
  PlanOrder order = OrderFor("m0", 1);
  order.fingerprint = "another version's";
  const auto other = Plan(order);
  EXPECT_EQ(sim::CodeOf(other), reasons::kModelNotFound);
  EXPECT_THAT(ReasonOf(other.status()).message(), HasSubstr("very files"));
}

TEST_F(DeploymentPlannerTest, TheWidthOfTheCacheIsOneOfThree) {
  Begin(1);
  for (const uint32_t bits : {0u, kKvBitsDefault}) {
    PlanOrder order = OrderFor("m0", 1);
    order.placement.set_kv_bits(bits);
    const auto outcome = Plan(order);
    ASSERT_TRUE(outcome.ok()) << bits;
    EXPECT_TRUE(outcome->result.has_plan()) << bits;
    EXPECT_EQ(outcome->result.plan().kv_bits(), 0u) << "the default is none of its own";
  }
  for (const uint32_t bits : {1u, 3u, 7u, 32u, ~0u}) {
    PlanOrder order = OrderFor("m0", 1);
    order.placement.set_kv_bits(bits);
    const auto refused = Plan(order);
    EXPECT_EQ(sim::CodeOf(refused), reasons::kBadRequest) << bits;
    EXPECT_THAT(ReasonOf(refused.status()).message(), HasSubstr(std::to_string(bits)));
  }
}

// A node that hangs does not keep the cluster from planning without it.
TEST_F(DeploymentPlannerTest, ANodeThatHangsIsWaitedForAMomentAndThenLeftOut) {
  Begin(3);
  sim().RunFor(5000);
  const int hangs = Follower();
  sim().Pause(hangs);
  const auto outcome = Plan(OrderFor("m0", 2));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_GE(took_, kPlanPatience * 9 / 10);
  EXPECT_LT(took_, kPlanPatience + milliseconds(300));
  EXPECT_FALSE(NodesOf(*outcome).contains(id(hangs).value()));
  EXPECT_FALSE(outcome->usable.contains(id(hangs).value()));
  sim().Resume(hangs);
  sim().RunFor(3000);
}

TEST_F(DeploymentPlannerTest, WithoutAnyAnswerItEndsAllTheSame) {
  Begin(2);
  sim().RunFor(5000);
  const int hangs = Follower();
  sim().Pause(hangs);
  const auto missing = Plan(OrderFor("m9", 1));
  EXPECT_EQ(sim::CodeOf(missing), reasons::kModelNotFound);
  sim().Resume(hangs);
  sim().RunFor(3000);
}

// A script that starts agents and loads at once, or a machine that had no time for its lease.
TEST_F(DeploymentPlannerTest, ANodeThatIsForgottenMeanwhileEndsNoPlanWithoutAnAnswer) {
  Begin(2);
  sim().RunFor(5000);
  const int leaves = Follower();
  sim().Pause(leaves);
  parts(Leader()).dispatcher.PostAfter(milliseconds(50),
                                       [&] { parts(Leader()).channels.Forget(id(leaves)); });
  const auto missing = Plan(OrderFor("m9", 1));
  EXPECT_EQ(sim::CodeOf(missing), reasons::kModelNotFound);
  EXPECT_LT(took_, kPlanPatience) << "nobody is left who could have it";
  sim().Resume(leaves);
  sim().RunFor(3000);
}

TEST_F(DeploymentPlannerTest, ANodeThatIsAboutToBeReadyIsWaitedFor) {
  Begin(3);
  sim().RunFor(5000);
  const int late = Follower();
  const auto is_unready = [&] { return parts(Leader()).views.AwaitsNode(); };
  EXPECT_FALSE(is_unready());
  sim().Crash(late);
  sim().RunFor(15'000);
  EXPECT_FALSE(is_unready()) << "what is dead is not waited for";
  sim().Start(late);
  ASSERT_TRUE(RunUntil(is_unready, 10'000));
  const auto after_start = Plan(OrderFor("m0", 3));
  ASSERT_TRUE(after_start.ok()) << after_start.status();
  EXPECT_THAT(NodesOf(*after_start), SizeIs(3)) << after_start->result.failure().message();

  sim().Pause(late);
  ASSERT_TRUE(RunUntil(is_unready, 10'000));
  sim().Resume(late);
  const auto after_pause = Plan(OrderFor("m0", 3));
  ASSERT_TRUE(after_pause.ok()) << after_pause.status();
  EXPECT_THAT(NodesOf(*after_pause), SizeIs(3)) << after_pause->result.failure().message();
}

TEST_F(DeploymentPlannerTest, ARefusalThatNoNodeCanChangeComesAtOnce) {
  Begin(3);
  sim().RunFor(5000);
  const auto refused = Plan(OrderFor("m0", 4));
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(refused->result.failure().code(), reasons::kTooFewNodes);
  EXPECT_LT(took_, milliseconds(500));
}

TEST_F(DeploymentPlannerTest, ANodeThatStaysUnreadyIsNotWaitedForForEver) {
  Begin(3);
  sim().RunFor(5000);
  sim().Pause(Follower());
  const auto refused = Plan(OrderFor("m0", 3));
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(refused->result.failure().code(), reasons::kTooFewNodes);
  EXPECT_LT(took_, kReadyPatience + milliseconds(500));
}

// What was asked a moment ago is not asked again, where that may be.
TEST_F(DeploymentPlannerTest, AnswersOfAMomentAgoAreGoodForTheSameLoad) {
  Begin(3);
  sim().RunFor(5000);
  PlanOrder order = OrderFor("m0", 3);
  ASSERT_TRUE(Plan(order).ok());
  const int hangs = Follower();
  sim().Pause(hangs);
  order.may_reuse_answers = true;
  const auto reused = Plan(order);
  ASSERT_TRUE(reused.ok());
  EXPECT_LT(took_, milliseconds(100));
  EXPECT_THAT(NodesOf(*reused), SizeIs(3));
  order.may_reuse_answers = false;
  ASSERT_TRUE(Plan(order).ok());
  EXPECT_GE(took_, kPlanPatience * 9 / 10) << "what people ask is asked of the nodes";
  sim().Resume(hangs);
  sim().RunFor(3000);
}

TEST_F(DeploymentPlannerTest, ACordonedNodeTakesNothingNewAndIsSaidWhy) {
  Begin(2);
  sim().RunFor(5000);
  sim().Cordon(Leader(), id(Follower()), v1::CORDON_ORDER_CORDON);
  sim().RunFor(1000);
  const auto outcome = Plan(OrderFor("m0", 1));
  ASSERT_TRUE(outcome.ok());
  EXPECT_THAT(NodesOf(*outcome), testing::ElementsAre(id(Leader()).value()));
  const auto both = Plan(OrderFor("m0", 2));
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_FALSE(both->result.has_plan());
  EXPECT_THAT(both->result.ShortDebugString(), HasSubstr("cordoned"));
}

TEST_F(DeploymentPlannerTest, ANodeHoldsOneReplicaOfADeployment) {
  Begin(2);
  v1::LoadModelRequest load;
  load.set_name_or_path("m1");
  load.mutable_placement()->set_world_size(1);
  ASSERT_TRUE(Ask(Leader(), kLoadModel, load).ok());
  const std::string holder = desired(Leader()).FindGang("m1")->entry_node_id();
  PlanOrder order = OrderFor("m1", 1);
  order.deployment = ReplicaName("m1", 1);
  order.in_force = parts(Leader()).gang_controller.InForce();
  const auto second = Plan(order);
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE(second->result.has_plan());
  EXPECT_FALSE(NodesOf(*second).contains(holder));
  // No other node is left: rather none than two on one.
  sim().SetRoom(2);
  const int other = holder == id(0).value() ? 1 : 0;
  sim().Cordon(Leader(), id(other), v1::CORDON_ORDER_CORDON);
  sim().RunFor(1000);
  const auto none = Plan(order);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->result.has_plan());
}

TEST_F(DeploymentPlannerTest, ADraftModelThatIsMissingEndsALoadAndNotARecovery) {
  Begin(2);
  sim().RunFor(3000);
  PlanOrder order = OrderFor("m0", 1);
  order.placement.set_draft_model("m9");
  const auto refused = Plan(order);
  EXPECT_EQ(sim::CodeOf(refused), reasons::kModelNotFound);
  EXPECT_THAT(ReasonOf(refused.status()).message(), HasSubstr("the draft model m9"));
  order.recovering = true;
  const auto recovered = Plan(order);
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  ASSERT_TRUE(recovered->result.has_plan());
  EXPECT_FALSE(recovered->result.plan().has_draft_model());
  EXPECT_THAT(recovered->result.plan().ShortDebugString(), HasSubstr("the draft model m9"))
      << "the plan says that it goes on without";
}

}  // namespace
}  // namespace macrame::agentd
