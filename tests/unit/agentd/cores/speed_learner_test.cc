#include "agentd/cores/speed_learner.h"

#include <gtest/gtest.h>

#include "planner/prediction.h"

namespace macrame::agentd {
namespace {

using std::chrono::seconds;

// A cluster that predicted 20 tokens/s over the ring.
class SpeedLearning : public ::testing::Test {
 protected:
  SpeedLearning() {
    v1::GangRecord gang;
    gang.set_deployment("m");
    gang.set_epoch(7);
    gang.set_entry_node_id("aaaa");
    gang.mutable_plan()->set_backend("ring");
    gang.mutable_plan()->mutable_prediction()->set_tokens_per_second(20);
    gang.mutable_plan()->mutable_prediction()->set_correction(1);
    gangs.push_back(gang);
    v1::RankStatus rank;
    rank.set_deployment("m");
    rank.set_epoch(7);
    rank.set_node_id("aaaa");
    ranks.push_back(rank);
  }

  void Answer(double tokens_per_second) {
    ranks[0].set_decode_step_us(1e6 / tokens_per_second);
    ranks[0].set_decode_answers(ranks[0].decode_answers() + 1);
    learner.Observe(gangs, ranks);
  }

  double Written() {
    v1::SpeedCorrections due;
    now += kSpeedsWriteInterval;
    if (learner.TakeDue(now, &due)) written = due;
    return planner::CorrectionOf(written, "ring");
  }

  std::vector<v1::GangRecord> gangs;
  std::vector<v1::RankStatus> ranks;
  SpeedLearner learner;
  v1::SpeedCorrections written;
  MonotonicTime now{seconds(100)};
};

TEST_F(SpeedLearning, AFewAnswersAtHalfTheSpeedDoubleTheStep) {
  for (int i = 0; i < 4; ++i) Answer(10);
  EXPECT_NEAR(Written(), 2, 1e-9);
}

// Ranks that stand on one machine need far less time for a hop than is assumed of a network.
TEST_F(SpeedLearning, AGangManyTimesFasterThanPredictedIsLearntToo) {
  for (int i = 0; i < 4; ++i) Answer(200);
  EXPECT_NEAR(Written(), 0.1, 1e-9);
}

TEST_F(SpeedLearning, AnAnswerCountsOnceHoweverOftenItIsReported) {
  Answer(10);
  for (int i = 0; i < 50; ++i) learner.Observe(gangs, ranks);
  EXPECT_EQ(Written(), 1) << "one answer is not a speed yet";
  ASSERT_EQ(written.corrections_size(), 1);
  EXPECT_EQ(written.corrections(0).samples(), 1u);
}

TEST_F(SpeedLearning, WhatWasPredictedWithACorrectionTeachesTheWholeRatio) {
  gangs[0].mutable_plan()->mutable_prediction()->set_tokens_per_second(10);
  gangs[0].mutable_plan()->mutable_prediction()->set_correction(2);
  for (int i = 0; i < 4; ++i) Answer(10);
  EXPECT_NEAR(Written(), 2, 1e-9) << "as predicted with the correction: it stays";
}

TEST_F(SpeedLearning, OtherEpochsOtherRanksAndForeignNodesTeachNothing) {
  ranks[0].set_epoch(6);
  for (int i = 0; i < 4; ++i) Answer(10);
  ranks[0].set_epoch(7);
  ranks[0].set_rank(1);
  for (int i = 0; i < 4; ++i) Answer(10);
  ranks[0].set_rank(0);
  ranks[0].set_node_id("bbbb");
  for (int i = 0; i < 4; ++i) Answer(10);
  Written();
  EXPECT_TRUE(written.corrections().empty());
}

TEST_F(SpeedLearning, SmallChangesAreNotWrittenToEveryDisk) {
  for (int i = 0; i < 4; ++i) Answer(10);
  Written();
  v1::SpeedCorrections due;
  Answer(10.05);
  EXPECT_FALSE(learner.TakeDue(now + seconds(60), &due));
  for (int i = 0; i < 20; ++i) Answer(8);
  EXPECT_FALSE(learner.TakeDue(now + seconds(1), &due)) << "not twice within ten seconds";
  EXPECT_TRUE(learner.TakeDue(now + seconds(60), &due));
}

TEST_F(SpeedLearning, ANewCoordinatorGoesOnFromWhatIsWritten) {
  for (int i = 0; i < 4; ++i) Answer(10);
  Written();
  learner = SpeedLearner();
  learner.Begin(written);
  Answer(5);
  EXPECT_GT(Written(), 2);
  EXPECT_LT(Written(), 3) << "the five answers' mean, not the last one alone";
}

}  // namespace
}  // namespace macrame::agentd
