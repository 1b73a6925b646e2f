#include "agentd/cores/energy_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace macrame::agentd {
namespace {

using testing::ElementsAre;

// Gangs whose counters go on by hand; a look each ten seconds.
class EnergyLedgerTest : public testing::Test {
 protected:
  EnergyLedgerTest() {
    gangs_.reserve(8);
    parts_["a"] = {v1::POWER_PART_PACKAGE};
    parts_["b"] = {v1::POWER_PART_PACKAGE};
  }

  v1::DeploymentStatus& Gang(const std::string& name, std::vector<std::string> nodes = {"a"}) {
    for (v1::DeploymentStatus& gang : gangs_) {
      if (gang.deployment().name() == name) return gang;
    }
    v1::DeploymentStatus& gang = gangs_.emplace_back();
    gang.mutable_deployment()->set_name(name);
    gang.set_state(v1::DEPLOYMENT_STATE_READY);
    gang.set_epoch(1001);
    for (size_t i = 0; i < nodes.size(); ++i) {
      gang.mutable_plan()->add_assignments()->set_rank(static_cast<uint32_t>(i));
      v1::RankStatus& rank = *gang.add_ranks();
      rank.set_rank(static_cast<uint32_t>(i));
      rank.set_node_id(nodes[i]);
      rank.set_energy_joules(0);
    }
    return gang;
  }
  struct Work {
    double joules = 0;  // of each rank
    uint64_t prompt = 0, generated = 0;
    double prefill_seconds = 0, decode_seconds = 0;
  };
  void Does(v1::DeploymentStatus& gang, Work work) {
    for (v1::RankStatus& rank : *gang.mutable_ranks()) {
      rank.set_energy_joules(rank.energy_joules() + work.joules);
      if (rank.rank() != 0) continue;
      const auto add = [](v1::LogHistogram& to, double more) { to.set_sum(to.sum() + more); };
      add(*rank.mutable_timings()->mutable_prefill_step_us(), work.prefill_seconds * 1e6);
      add(*rank.mutable_timings()->mutable_decode_step_us(), work.decode_seconds * 1e6);
      add(*rank.mutable_timings()->mutable_prefill_tokens(), static_cast<double>(work.prompt));
      rank.set_tokens_generated_total(rank.tokens_generated_total() + work.generated);
    }
  }
  void Look() {
    now_ += std::chrono::seconds(10);
    ledger_.Observe(gangs_, parts_, now_);
  }
  double KeyJoules(const std::string& key) {
    for (const v1::KeyEnergy& one : ledger_.Keys()) {
      if (one.key_id() == key) return one.joules();
    }
    return -1;
  }

  EnergyLedger ledger_;
  std::vector<v1::DeploymentStatus> gangs_;
  EnergyLedger::PartsOfNodes parts_;
  MonotonicTime now_ = MonotonicTime() + std::chrono::hours(1);
};

TEST_F(EnergyLedgerTest, AGangHasTheEnergyOfAllItsNodesAndItsTokens) {
  v1::DeploymentStatus& gang = Gang("knot", {"a", "b"});
  Look();
  EXPECT_EQ(ledger_.Find("knot", 1001), nullptr) << "nothing was computed yet";
  Does(gang, {300, 100, 400, 2, 6});
  Look();
  const v1::ModelEnergy* energy = ledger_.Find("knot", 1001);
  ASSERT_NE(energy, nullptr);
  EXPECT_DOUBLE_EQ(energy->joules(), 600);
  EXPECT_DOUBLE_EQ(energy->prefill_joules(), 150);
  EXPECT_EQ(energy->generated_tokens(), 400u);
  EXPECT_EQ(energy->prompt_tokens(), 100u);
  EXPECT_DOUBLE_EQ(energy->seconds(), 8);
  EXPECT_THAT(energy->parts(), ElementsAre(v1::POWER_PART_PACKAGE));
  EXPECT_FALSE(energy->parts_differ());
  EXPECT_EQ(ledger_.Find("knot", 1002), nullptr) << "another epoch";
}

TEST_F(EnergyLedgerTest, NodesThatCoverDifferentPartsAreToldApart) {
  parts_["b"] = {v1::POWER_PART_PACKAGE, v1::POWER_PART_MEMORY};
  v1::DeploymentStatus& gang = Gang("knot", {"a", "b"});
  Look();
  Does(gang, {10, 0, 10, 0, 1});
  Look();
  const v1::ModelEnergy* energy = ledger_.Find("knot", 1001);
  ASSERT_NE(energy, nullptr);
  EXPECT_THAT(energy->parts(), ElementsAre(v1::POWER_PART_PACKAGE));
  EXPECT_TRUE(energy->parts_differ());
  // Once they cover the same it begins anew.
  parts_["b"] = {v1::POWER_PART_PACKAGE};
  Does(gang, {10, 0, 10, 0, 1});
  Look();
  Does(gang, {40, 0, 10, 0, 1});
  Look();
  EXPECT_DOUBLE_EQ(ledger_.Find("knot", 1001)->joules(), 80);
  EXPECT_FALSE(ledger_.Find("knot", 1001)->parts_differ());
}

TEST_F(EnergyLedgerTest, OneNodeOfWhichNothingIsKnownLeavesTheGangUnknown) {
  v1::DeploymentStatus& gang = Gang("knot", {"a", "b"});
  gang.mutable_ranks(1)->clear_energy_joules();
  Look();
  Does(gang, {300, 100, 400, 2, 6});
  gang.mutable_ranks(1)->clear_energy_joules();
  Look();
  EXPECT_EQ(ledger_.Find("knot", 1001), nullptr);
  gang.mutable_ranks(1)->set_energy_joules(0);
  parts_.erase("b");
  Look();
  Does(gang, {300, 100, 400, 2, 6});
  Look();
  EXPECT_EQ(ledger_.Find("knot", 1001), nullptr);
}

// Energy comes each ten seconds, tokens at once, other nodes' reports later: what one look has of
// the one and not of the other waits for the next.
TEST_F(EnergyLedgerTest, EnergyAndStepsWaitForEachOther) {
  v1::DeploymentStatus& gang = Gang("knot");
  Look();
  Does(gang, {0, 50, 100, 1, 4});
  Look();
  EXPECT_EQ(ledger_.Find("knot", 1001), nullptr);
  Does(gang, {200, 0, 0, 0, 0});
  Look();
  ASSERT_NE(ledger_.Find("knot", 1001), nullptr);
  EXPECT_DOUBLE_EQ(ledger_.Find("knot", 1001)->joules(), 200);
  EXPECT_EQ(ledger_.Find("knot", 1001)->generated_tokens(), 100u);
}

TEST_F(EnergyLedgerTest, CountersThatWentBackCountNothing) {
  v1::DeploymentStatus& gang = Gang("knot");
  Look();
  Does(gang, {100, 0, 10, 0, 1});
  Look();
  gang.mutable_ranks(0)->set_energy_joules(5);
  Look();
  Does(gang, {50, 0, 10, 0, 1});
  Look();
  EXPECT_DOUBLE_EQ(ledger_.Find("knot", 1001)->joules(), 150);
}

TEST_F(EnergyLedgerTest, ARelaunchBeginsAnew) {
  v1::DeploymentStatus& gang = Gang("knot");
  Look();
  Does(gang, {100, 0, 10, 0, 1});
  Look();
  gang.set_epoch(1002);
  gang.mutable_ranks(0)->set_energy_joules(0);
  gang.mutable_ranks(0)->clear_timings();
  gang.mutable_ranks(0)->set_tokens_generated_total(0);
  Look();
  EXPECT_EQ(ledger_.Find("knot", 1002), nullptr);
  Does(gang, {30, 0, 10, 0, 1});
  Look();
  EXPECT_DOUBLE_EQ(ledger_.Find("knot", 1002)->joules(), 30);
}

TEST_F(EnergyLedgerTest, KeysShareByTheirTokensAndAddUp) {
  v1::DeploymentStatus& gang = Gang("knot");
  Look();
  const MonotonicTime begun = now_ + std::chrono::seconds(1);
  // 100 J of prompts, 400 J of answers.
  Does(gang, {500, 1000, 400, 2, 8});
  ledger_.Charge("ada", "knot", {800, 100}, begun, now_ + std::chrono::seconds(5));
  ledger_.Charge("bob", "knot", {200, 300}, begun, now_ + std::chrono::seconds(6));
  Look();
  EXPECT_NEAR(KeyJoules("ada"), 80 + 100, 1e-6);
  EXPECT_NEAR(KeyJoules("bob"), 20 + 300, 1e-6);
  const std::vector<v1::KeyEnergy> keys = ledger_.Keys();
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].generated_tokens(), 100u);
  EXPECT_EQ(keys[0].prompt_tokens(), 800u);
}

// Prices are those of the time in which the request was answered.
TEST_F(EnergyLedgerTest, WhatWasCheapBeforeIsNotCheapNow) {
  v1::DeploymentStatus& gang = Gang("knot");
  Look();
  Does(gang, {1000, 0, 1000, 0, 10});  // 1 J a token
  Look();
  const MonotonicTime begun = now_ + std::chrono::seconds(1);
  Does(gang, {1000, 0, 100, 0, 10});  // 10 J a token
  ledger_.Charge("ada", "knot", {0, 50}, begun, now_ + std::chrono::seconds(9));
  Look();
  EXPECT_NEAR(KeyJoules("ada"), 500, 1e-6);
}

TEST_F(EnergyLedgerTest, AUseWaitsForItsPriceAndIsForgottenWithoutOne) {
  v1::DeploymentStatus& gang = Gang("knot");
  Look();
  Does(gang, {10, 10, 10, 1, 1});
  Look();
  ledger_.Charge("ada", "knot", {10, 10}, now_, now_ + std::chrono::seconds(1));
  Look();
  EXPECT_TRUE(ledger_.Keys().empty()) << "the gang has not told of it yet";
  Does(gang, {40, 20, 20, 1, 1});
  Look();
  EXPECT_NEAR(KeyJoules("ada"), 20, 1e-6);
  ledger_.Charge("bob", "braid", {10, 10}, now_, now_);
  for (int i = 0; i < 14; ++i) Look();
  Gang("braid");
  Look();
  Does(Gang("braid"), {40, 20, 20, 1, 1});
  Look();
  Does(Gang("braid"), {40, 20, 20, 1, 1});
  Look();
  EXPECT_EQ(KeyJoules("bob"), -1);
}

TEST_F(EnergyLedgerTest, ReplicasArePricedTogether) {
  Gang("knot");
  Gang("knot#2", {"b"});
  Look();
  const MonotonicTime begun = now_;
  Does(Gang("knot"), {100, 0, 100, 0, 5});
  Does(Gang("knot#2"), {300, 0, 100, 0, 5});
  ledger_.Charge("ada", "knot", {0, 200}, begun, now_ + std::chrono::seconds(1));
  Look();
  EXPECT_NEAR(KeyJoules("ada"), 400, 1e-6);
  EXPECT_DOUBLE_EQ(ledger_.Find("knot#2", 1001)->joules(), 300);
}

TEST_F(EnergyLedgerTest, NoKeyHasMoreThanTheGangTook) {
  v1::DeploymentStatus& gang = Gang("knot");
  Look();
  Does(gang, {100, 0, 10, 0, 5});
  ledger_.Charge("ada", "knot", {0, 1000}, now_, now_ + std::chrono::seconds(1));
  for (int i = 0; i < 10; ++i) Look();
  EXPECT_EQ(KeyJoules("ada"), -1) << "ten tokens are no price of a thousand";
  for (int i = 0; i < 4; ++i) Look();
  EXPECT_NEAR(KeyJoules("ada"), 100, 1e-6);
}

// What ranks tell comes later than answers: a key pays for all its tokens, at the price of those
// that are known.
TEST_F(EnergyLedgerTest, TokensThatTheRankHasNotToldOfYetArePaidForToo) {
  v1::DeploymentStatus& gang = Gang("knot");
  Look();
  ledger_.Charge("ada", "knot", {0, 800}, now_, now_ + std::chrono::seconds(1));
  Does(gang, {300, 0, 300, 0, 3});
  Look();
  EXPECT_EQ(KeyJoules("ada"), -1) << "fewer than half of them are known";
  Does(gang, {200, 0, 200, 0, 2});
  Look();
  EXPECT_NEAR(KeyJoules("ada"), 800, 1e-6);
}

// A key that never pauses is paid for all the same.
TEST_F(EnergyLedgerTest, AStreamOfRequestsAddsUp) {
  v1::DeploymentStatus& gang = Gang("knot");
  Look();
  for (int i = 0; i < 40; ++i) {
    Does(gang, {100, 0, 100, 0, 5});
    ledger_.Charge("ada", "knot", {0, 60}, now_, now_ + std::chrono::seconds(9));
    ledger_.Charge("bob", "knot", {0, 40}, now_, now_ + std::chrono::seconds(9));
    Look();
  }
  EXPECT_NEAR(KeyJoules("ada"), 2400, 1);
  EXPECT_NEAR(KeyJoules("bob"), 1600, 1);
}

TEST_F(EnergyLedgerTest, AFigureThatIsNoneIsNotKnown) {
  v1::DeploymentStatus& gang = Gang("knot");
  Look();
  Does(gang, {100, 0, 10, 0, 5});
  gang.mutable_ranks(0)->set_energy_joules(std::numeric_limits<double>::infinity());
  Look();
  gang.mutable_ranks(0)->set_energy_joules(std::numeric_limits<double>::quiet_NaN());
  Look();
  EXPECT_EQ(ledger_.Find("knot", 1001), nullptr);
  gang.mutable_ranks(0)->set_energy_joules(200);
  Look();
  Does(gang, {50, 0, 10, 0, 5});
  Look();
  EXPECT_DOUBLE_EQ(ledger_.Find("knot", 1001)->joules(), 50);
}

TEST_F(EnergyLedgerTest, WhatIsKeptIsBounded) {
  v1::DeploymentStatus& gang = Gang("knot");
  Look();
  for (size_t i = 0; i < 3 * kPendingUsesMax; ++i) {
    ledger_.Charge("key" + std::to_string(i), "knot", {0, 1}, now_, now_);
  }
  Does(gang, {5000, 0, 5000, 0, 5});
  Look();
  EXPECT_EQ(ledger_.Keys().size(), kPendingUsesMax);
}

}  // namespace
}  // namespace macrame::agentd
