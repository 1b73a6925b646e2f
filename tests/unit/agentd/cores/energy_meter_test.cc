#include "agentd/cores/energy_meter.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

// A node whose clock, energy and ranks go on by hand.
class EnergyMeterTest : public testing::Test {
 protected:
  v1::RankStatus& Rank(const std::string& deployment, uint32_t number = 0) {
    for (v1::RankStatus& rank : ranks_) {
      if (rank.deployment() == deployment && rank.rank() == number) return rank;
    }
    ranks_.emplace_back();
    ranks_.back().set_deployment(deployment);
    ranks_.back().set_epoch(1001);
    ranks_.back().set_rank(number);
    return ranks_.back();
  }
  void Computes(const std::string& deployment, double seconds, uint32_t number = 0) {
    v1::RankTimings& timings = *Rank(deployment, number).mutable_timings();
    timings.mutable_decode_step_us()->set_sum(timings.decode_step_us().sum() + seconds * 1e6);
  }
  // `seconds` go by in which the node takes so many watts.
  void Passes(double seconds, double watts) {
    now_ += std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
    load_.set_energy_joules(load_.energy_joules() + watts * seconds);
    Look();
  }
  void Look() {
    if (load_.power_parts().empty()) load_.add_power_parts(v1::POWER_PART_PACKAGE);
    meter_.Observe(load_, ranks_, now_);
  }
  double Joules(const std::string& deployment, uint32_t number = 0) {
    return meter_.JoulesOf(Rank(deployment, number)).value_or(-1);
  }

  EnergyMeter meter_;
  v1::NodeLoad load_;
  std::vector<v1::RankStatus> ranks_;
  MonotonicTime now_ = MonotonicTime() + std::chrono::hours(1);
};

TEST_F(EnergyMeterTest, ARankThatComputesAllTheTimeHasItAll) {
  Rank("knot");
  load_.set_energy_joules(5000);
  Look();
  EXPECT_DOUBLE_EQ(Joules("knot"), 0);
  Computes("knot", 10);
  Passes(10, 80);
  EXPECT_DOUBLE_EQ(Joules("knot"), 800);
}

TEST_F(EnergyMeterTest, ANodeAtRestCountsToNobody) {
  Rank("knot");
  load_.set_energy_joules(0);
  Look();
  for (int i = 0; i < 20; ++i) Passes(10, 30);
  EXPECT_DOUBLE_EQ(Joules("knot"), 0);
}

// One second of work at 110 W in ten, at 10 W else: 110 J, not a tenth of all.
TEST_F(EnergyMeterTest, AShortAnswerHasItsOwnPowerAndNotTheMean) {
  Rank("knot");
  load_.set_energy_joules(0);
  Look();
  Passes(10, 10);
  Computes("knot", 1);
  Passes(10, 20);
  EXPECT_DOUBLE_EQ(Joules("knot"), 100 + 10);
}

TEST_F(EnergyMeterTest, BeforeTheNodeWasSeenAtRestItIsTheShareOfTheTime) {
  Rank("knot");
  load_.set_energy_joules(0);
  Look();
  Computes("knot", 1);
  Passes(10, 20);
  EXPECT_DOUBLE_EQ(Joules("knot"), 20);
}

TEST_F(EnergyMeterTest, RanksThatComputeTogetherShareByTheirTime) {
  Rank("knot");
  Rank("braid");
  load_.set_energy_joules(0);
  Look();
  Computes("knot", 9);
  Computes("braid", 3);
  Passes(10, 60);
  EXPECT_DOUBLE_EQ(Joules("knot"), 450);
  EXPECT_DOUBLE_EQ(Joules("braid"), 150);
}

TEST_F(EnergyMeterTest, TheSharesNeverExceedWhatTheNodeTook) {
  Rank("knot");
  Rank("knot", 1);
  load_.set_energy_joules(0);
  Look();
  Passes(10, 12);
  for (int i = 0; i < 50; ++i) {
    Computes("knot", i % 7);
    Computes("knot", 10, 1);
    Passes(10, 40 + i);
  }
  double all = 0;
  for (int i = 0; i < 50; ++i) all += 10 * (40 + i);
  EXPECT_LE(Joules("knot") + Joules("knot", 1), all + 1e-6);
  EXPECT_GT(Joules("knot") + Joules("knot", 1), all * 0.99);
}

// Ranks tell of their steps up to two seconds late: into the reading after the one that they
// heated.
TEST_F(EnergyMeterTest, StepsThatAreToldLateHaveTheirEnergy) {
  Rank("knot");
  load_.set_energy_joules(0);
  Look();
  Passes(10, 10);
  Passes(10, 30);  // 200 J above rest, and no rank said why
  Computes("knot", 2);
  Passes(10, 11);
  EXPECT_NEAR(Joules("knot"), 200 + 2 * 12, 5);
  // Who says nothing then has nothing of it.
  Passes(10, 60);
  Passes(10, 10);
  Computes("knot", 1);
  const double before = Joules("knot");
  Passes(10, 10);
  EXPECT_LT(Joules("knot") - before, 20);
}

TEST_F(EnergyMeterTest, RestFallsAtOnceAndRisesSlowly) {
  Rank("knot");
  load_.set_energy_joules(0);
  Look();
  Passes(10, 50);
  Passes(10, 10);
  Computes("knot", 10);
  Passes(10, 60);
  EXPECT_DOUBLE_EQ(Joules("knot"), 600);
  Computes("knot", 5);
  Passes(10, 60);
  EXPECT_DOUBLE_EQ(Joules("knot"), 600 + 500 + 50);
}

// Readings are made each ten seconds and seen when somebody looks: that makes no rest lower, and no
// work dearer.
TEST_F(EnergyMeterTest, WhenAReadingIsSeenChangesNothing) {
  Rank("knot");
  load_.set_power_watts(40);
  load_.set_energy_joules(0);
  Look();
  const auto seen_after = [this](double seconds) {
    now_ += std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
    load_.set_energy_joules(load_.energy_joules() + 400);
    Look();
  };
  for (const double seconds : {11.4, 8.6, 11.4, 9.5}) seen_after(seconds);
  for (const double seconds : {9.6, 10.4, 10.1, 9.9}) {
    Computes("knot", 2);
    seen_after(seconds);
  }
  EXPECT_NEAR(Joules("knot"), 8 * 40, 1e-6);
}

// Two readings were missed: their time is that of the clock.
TEST_F(EnergyMeterTest, ReadingsThatNobodySawAreCounted) {
  Rank("knot");
  load_.set_energy_joules(0);
  Look();
  Passes(10, 40);
  load_.set_power_watts(10);  // of the last ten seconds alone
  Computes("knot", 30);
  Passes(30, 50);
  EXPECT_DOUBLE_EQ(Joules("knot"), 1500);
}

// So that tokens, which are told at once, and energy go on together.
TEST_F(EnergyMeterTest, StepsSinceTheLastReadingCostWhatTheLastOnesDid) {
  Rank("knot");
  load_.set_energy_joules(0);
  Look();
  Computes("knot", 10);
  Passes(10, 80);
  Computes("knot", 5);
  EXPECT_DOUBLE_EQ(Joules("knot"), 800 + 400);
  Computes("knot", 5);
  Passes(10, 60);
  EXPECT_DOUBLE_EQ(Joules("knot"), 800 + 600);
  Computes("knot", 10);
  EXPECT_DOUBLE_EQ(Joules("knot"), 800 + 600 + 600);
  Passes(10, 50);
  EXPECT_DOUBLE_EQ(Joules("knot"), 800 + 600 + 600) << "it was less, and does not go back";
  Computes("knot", 100);
  EXPECT_DOUBLE_EQ(Joules("knot"), 800 + 600 + 500 + 12 * 50) << "a reading is missing";
}

TEST_F(EnergyMeterTest, WhatIsNotKnownIsNotCounted) {
  Rank("knot");
  load_.clear_energy_joules();
  Look();
  EXPECT_FALSE(meter_.JoulesOf(Rank("knot")).has_value());
  load_.set_energy_joules(100);
  Look();
  Computes("knot", 10);
  Passes(10, 50);
  EXPECT_DOUBLE_EQ(Joules("knot"), 500);
  load_.clear_energy_joules();
  Look();
  EXPECT_FALSE(meter_.JoulesOf(Rank("knot")).has_value());
  now_ += std::chrono::hours(1);
  load_.set_energy_joules(9000);
  Computes("knot", 3000);
  Look();
  EXPECT_DOUBLE_EQ(Joules("knot"), 500) << "what passed meanwhile is nobody's";
}

TEST_F(EnergyMeterTest, OtherPartsBeginAnew) {
  Rank("knot");
  load_.set_energy_joules(0);
  Look();
  Computes("knot", 10);
  Passes(10, 50);
  load_.clear_power_parts();
  load_.add_power_parts(v1::POWER_PART_MACHINE);
  load_.set_energy_joules(0);
  Look();
  EXPECT_DOUBLE_EQ(Joules("knot"), 0);
}

TEST_F(EnergyMeterTest, ANewEpochBeginsAnewAndACounterThatWasForgottenGoesOn) {
  Rank("knot");
  load_.set_energy_joules(0);
  Look();
  Computes("knot", 10);
  Passes(10, 50);
  Rank("knot").mutable_timings()->Clear();  // after its warm-up
  Computes("knot", 4);
  Passes(10, 50);
  EXPECT_DOUBLE_EQ(Joules("knot"), 500 + 200);
  Rank("knot").set_epoch(1002);
  Rank("knot").clear_timings();
  EXPECT_FALSE(meter_.JoulesOf(Rank("knot")).has_value());
  Passes(10, 50);
  EXPECT_DOUBLE_EQ(Joules("knot"), 0);
}

TEST_F(EnergyMeterTest, TheSameReadingTwiceIsOne) {
  Rank("knot");
  load_.set_energy_joules(0);
  Look();
  Computes("knot", 10);
  Passes(10, 50);
  now_ += std::chrono::seconds(1);
  Computes("knot", 1);
  Look();
  Look();
  EXPECT_DOUBLE_EQ(Joules("knot"), 500 + 50);
  Computes("knot", 9);
  Passes(9, 50);
  EXPECT_DOUBLE_EQ(Joules("knot"), 500 + 450);
}

}  // namespace
}  // namespace macrame::agentd
