#include "agentd/cores/load_decision.h"

#include <gtest/gtest.h>

#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

class LoadDecisionTest : public ::testing::Test {
 protected:
  LoadDecisionTest() {
    model_.set_name("llama");
    model_.set_fingerprint("f1");
    result_.mutable_plan()->set_world_size(1);
    usable_ = {"a", "b"};
  }

  // The model is served under its name, as `request_` asks at that time.
  void Serve() {
    present_.emplace();
    present_->set_name("llama");
    present_->set_model_name("llama");
    present_->set_model_fingerprint("f1");
    present_->set_replicas(1);
    present_->set_created_unix_ms(5);
    *present_->mutable_placement() = request_.placement();
    gang_.emplace();
    gang_->set_deployment("llama");
    gang_->set_epoch(7);
  }

  LoadDecision Decide() {
    const PlannedLoad load{request_,
                           DeploymentNameOf(request_, model_),
                           "/models/llama",
                           model_,
                           result_,
                           usable_,
                           present_.has_value() ? &*present_ : nullptr,
                           gang_.has_value() ? &*gang_ : nullptr,
                           given_up_,
                           {},
                           9};
    return DecideLoad(load, state_);
  }

  v1::LoadModelRequest request_;
  v1::ModelDescription model_;
  v1::PlanResult result_;
  std::set<std::string> usable_;
  std::optional<v1::Deployment> present_;
  std::optional<v1::GangRecord> gang_;
  bool given_up_ = false;
  ClusterView state_;
};

TEST_F(LoadDecisionTest, AModelThatNobodyServesIsWritten) {
  request_.mutable_placement()->set_world_size(2);
  const LoadDecision decision = Decide();
  ASSERT_TRUE(decision.refused.ok()) << decision.refused;
  ASSERT_TRUE(decision.wanted.has_value());
  EXPECT_EQ(decision.wanted->name(), "llama");
  EXPECT_EQ(decision.wanted->model_path(), "/models/llama");
  EXPECT_EQ(decision.wanted->placement().world_size(), 2u);
  EXPECT_EQ(decision.wanted->created_unix_ms(), 9u);
  EXPECT_EQ(decision.after_epoch, 0u);
}

TEST_F(LoadDecisionTest, ItsNameHasNoSignOfReplicas) {
  model_.set_name("a#b");
  EXPECT_EQ(Decide().wanted->name(), "a-b");
  request_.set_deployment_name("mine");
  EXPECT_EQ(Decide().wanted->name(), "mine");
}

TEST_F(LoadDecisionTest, WhoAsksForNothingElseChangesNothing) {
  request_.mutable_placement()->set_world_size(2);
  Serve();
  EXPECT_FALSE(Decide().wanted.has_value());
  request_.clear_placement();
  EXPECT_FALSE(Decide().wanted.has_value()) << "no placement is content with any";
  request_.set_replicas(1);
  EXPECT_FALSE(Decide().wanted.has_value());
}

TEST_F(LoadDecisionTest, AnotherPriorityIsWrittenAndWhatRunsGoesOn) {
  Serve();
  request_.set_priority(3);
  const LoadDecision decision = Decide();
  ASSERT_TRUE(decision.wanted.has_value());
  EXPECT_EQ(decision.wanted->priority(), 3);
  EXPECT_EQ(decision.wanted->created_unix_ms(), 5u) << "it is not launched anew";
  EXPECT_EQ(decision.after_epoch, 0u);
}

TEST_F(LoadDecisionTest, AnotherPlacementOrOtherFilesAreLaunchedAnewBehindTheOldGang) {
  Serve();
  request_.mutable_placement()->set_world_size(2);
  LoadDecision decision = Decide();
  ASSERT_TRUE(decision.wanted.has_value());
  EXPECT_EQ(decision.wanted->created_unix_ms(), 9u);
  EXPECT_EQ(decision.after_epoch, 7u);
  request_.clear_placement();
  model_.set_fingerprint("f2");
  decision = Decide();
  ASSERT_TRUE(decision.wanted.has_value());
  EXPECT_EQ(decision.wanted->model_fingerprint(), "f2");
  EXPECT_EQ(decision.after_epoch, 7u);
}

TEST_F(LoadDecisionTest, OneThatWasGivenUpIsTriedAgain) {
  Serve();
  given_up_ = true;
  const LoadDecision decision = Decide();
  ASSERT_TRUE(decision.wanted.has_value());
  EXPECT_EQ(decision.wanted->created_unix_ms(), 9u);
  EXPECT_EQ(decision.after_epoch, 7u);
}

TEST_F(LoadDecisionTest, WithoutAPlanItIsRefusedWithWhatWasRejected) {
  result_.clear_plan();
  *result_.mutable_failure() = MakeReason(reasons::kTooFewNodes, "needs 2 nodes");
  v1::Rejection& rejection = *result_.add_rejections();
  rejection.set_subject("b");
  *rejection.mutable_reason() = MakeReason(reasons::kNodeDead, "it is dead");
  const LoadDecision decision = Decide();
  EXPECT_FALSE(decision.wanted.has_value());
  const v1::Reason reason = ReasonOf(decision.refused);
  EXPECT_EQ(reason.code(), reasons::kTooFewNodes);
  EXPECT_EQ(reason.evidence(), "b: it is dead");
}

TEST_F(LoadDecisionTest, MoreReplicasThanNodesAreRefusedBeforeAnythingChanges) {
  request_.set_replicas(3);
  const LoadDecision decision = Decide();
  EXPECT_FALSE(decision.wanted.has_value());
  EXPECT_EQ(ReasonOf(decision.refused).code(), reasons::kTooFewNodes);
  request_.set_replicas(2);
  EXPECT_TRUE(Decide().wanted.has_value());
}

TEST(KeptOptions, WhatIsNotNamedStays) {
  v1::Deployment present;
  present.mutable_placement()->set_world_size(3);
  present.mutable_placement()->set_kv_bits(8);
  present.mutable_placement()->add_excluded_node_ids("a");
  v1::PlacementOptions named;
  EXPECT_EQ(WithKeptOptions(named, &present).SerializeAsString(), "") << "asks for nothing else";
  named.set_context_length(8192);
  const v1::PlacementOptions kept = WithKeptOptions(named, &present);
  EXPECT_EQ(kept.context_length(), 8192u);
  EXPECT_EQ(kept.world_size(), 3u) << "three ranks stay three";
  EXPECT_EQ(kept.kv_bits(), 8u);
  EXPECT_EQ(kept.excluded_node_ids_size(), 1);
  EXPECT_EQ(WithKeptOptions(named, nullptr).SerializeAsString(), named.SerializeAsString());
}

TEST(KeptOptions, NodesThatAreNamedGoBeforeThoseThatWere) {
  v1::Deployment present;
  present.mutable_placement()->set_world_size(3);
  present.mutable_placement()->add_node_ids("a");
  present.mutable_placement()->add_excluded_node_ids("b");
  v1::PlacementOptions named;
  named.add_node_ids("b");
  const v1::PlacementOptions kept = WithKeptOptions(named, &present);
  ASSERT_EQ(kept.node_ids_size(), 1);
  EXPECT_EQ(kept.node_ids(0), "b");
  EXPECT_EQ(kept.excluded_node_ids_size(), 0);
  EXPECT_EQ(kept.world_size(), 0u) << "one node has no three ranks";
}

TEST(UnusedStep, WithoutLeaveOrNeedOfMemoryThePlanIsTaken) {
  UnusedQuestion question;
  question.is_short = true;
  question.may_wait = true;
  EXPECT_EQ(NextStep(question), UnusedStep::kLoad) << "the order does not say that models may go";
  question.may_unload = true;
  question.is_wanted = true;
  EXPECT_EQ(NextStep(question), UnusedStep::kLoad) << "what is served needs nobody's memory";
  question.is_wanted = question.is_short = false;
  EXPECT_EQ(NextStep(question), UnusedStep::kLoad) << "it fits";
}

TEST(UnusedStep, APlanThatTakesAnUnusedModelsMemoryHasItUnloaded) {
  UnusedQuestion question;
  question.may_unload = question.frees_some = true;
  EXPECT_EQ(NextStep(question), UnusedStep::kUnload);
}

TEST(UnusedStep, WhatFitsOnlyWithoutModelsInUseWaitsForThemAsLongAsItMay) {
  UnusedQuestion question;
  question.may_unload = question.is_short = question.may_wait = true;
  EXPECT_EQ(NextStep(question), UnusedStep::kPlanIfEver);
  // Planned as if they could go, it fits: once they are unused.
  UnusedQuestion ever = question;
  ever.asked_if_ever = ever.frees_some = true;
  ever.is_short = false;
  EXPECT_EQ(NextStep(ever), UnusedStep::kAwait);
  ever.is_short = true;
  EXPECT_EQ(NextStep(ever), UnusedStep::kLoad) << "it never fits, and is told so";
  question.may_wait = false;
  EXPECT_EQ(NextStep(question), UnusedStep::kLoad) << "its time is over";
}

TEST(UnusedStep, MemoryThatIsBeingFreedIsWaitedForBeforeMoreModelsGo) {
  UnusedQuestion question;
  question.may_unload = question.is_short = question.is_being_freed = true;
  EXPECT_EQ(NextStep(question), UnusedStep::kPlanAgain);
  question.is_short = false;
  question.frees_some = true;
  EXPECT_EQ(NextStep(question), UnusedStep::kUnload) << "it has a plan already";
}

}  // namespace
}  // namespace macrame::agentd
