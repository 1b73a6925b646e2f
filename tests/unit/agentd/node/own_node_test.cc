#include "agentd/node/own_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/fake_dispatcher.h"
#include "tests/unit/agentd/idle_machine.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using tests::CountingProber;
using tests::ListedRanks;

constexpr uint64_t kGiB = uint64_t{1} << 30;

v1::NodeIdentity Self() {
  v1::NodeIdentity identity;
  identity.set_node_id(std::string(32, 'a'));
  identity.set_hostname("here");
  return identity;
}

class OwnNodeTest : public ::testing::Test {
 protected:
  v1::RankStatus& Add(const std::string& deployment, uint32_t rank, v1::RankPhase phase,
                      double speed = 0, uint32_t running = 0, uint32_t queued = 0) {
    v1::RankStatus& status = supervisor_.ranks.emplace_back();
    status.set_deployment(deployment);
    status.set_epoch(1);
    status.set_rank(rank);
    status.set_phase(phase);
    status.set_tokens_per_second(speed);
    status.set_requests_running(running);
    status.set_requests_queued(queued);
    return status;
  }

  transport::FakeDispatcher clock_;
  CountingProber prober_;
  ListedRanks supervisor_;
  OwnNode own_{clock_, Self(), prober_, supervisor_};
};

TEST_F(OwnNodeTest, OnANodeWithAGpuTheWorkingSetBoundsWhatRanksKeepResident) {
  prober_.facts.set_memory_total_bytes(128 * kGiB);
  prober_.facts.set_memory_gpu_usable_bytes(107 * kGiB);
  prober_.next.set_memory_available_bytes(90 * kGiB);
  EXPECT_EQ(own_.memory().working_set, Bytes(0)) << "no GPU";
  prober_.facts.set_gpu_cores(40);
  prober_.facts.set_memory_models_max_bytes(64 * kGiB);
  const runtime::NodeMemory memory = own_.memory();
  EXPECT_EQ(memory.usable, Bytes::GiB(64));
  EXPECT_EQ(memory.available, Bytes::GiB(90));
  EXPECT_EQ(memory.working_set, Bytes::GiB(107));
}

TEST_F(OwnNodeTest, TheMachineIsAskedSeldomAndSeldomerWhileNothingRuns) {
  const auto samples_in = [&](Duration span) {
    const int before = prober_.samples;
    for (Duration passed{}; passed < span; passed += milliseconds(10)) {
      own_.load();
      clock_.AdvanceBy(milliseconds(10));
    }
    return prober_.samples - before;
  };
  const int idle = samples_in(seconds(19));
  EXPECT_LE(idle, 11);
  EXPECT_GE(idle, 9);
  Add("m", 0, v1::RANK_PHASE_READY);
  own_.ForgetRanks();
  const int busy = samples_in(seconds(19));
  EXPECT_LE(busy, 48);
  EXPECT_GE(busy, 40);
}

TEST_F(OwnNodeTest, WhatChangedAtTheRanksShowsAtOnce) {
  EXPECT_EQ(own_.load().requests_running(), 0u);
  Add("m", 0, v1::RANK_PHASE_READY, 10, 3, 2);
  supervisor_.reserved = Bytes(5 * kGiB);
  EXPECT_TRUE(own_.ranks().empty()) << "nobody said that they changed";
  own_.ForgetRanks();
  EXPECT_EQ(own_.ranks().size(), 1u);
  EXPECT_EQ(own_.load().requests_running(), 3u);
  EXPECT_EQ(own_.load().requests_queued(), 2u);
  EXPECT_EQ(own_.load().reserved_bytes(), 5 * kGiB);
}

// Counters go on without a word of the supervisor.
TEST_F(OwnNodeTest, CountersOfRanksAreSeenAfterAMoment) {
  Add("m", 0, v1::RANK_PHASE_READY, 10, 1);
  own_.ForgetRanks();
  own_.load();
  supervisor_.ranks[0].set_requests_running(7);
  clock_.AdvanceBy(kLoadSampleInterval + milliseconds(1));
  EXPECT_EQ(own_.ranks()[0].requests_running(), 7u);
  EXPECT_EQ(own_.load().requests_running(), 7u);
}

// A request is counted once, at the rank that it came in by.
TEST_F(OwnNodeTest, OnlyEntryRanksThatServeAreSummed) {
  Add("m", 0, v1::RANK_PHASE_READY, 10, 1, 2);
  Add("m#2", 0, v1::RANK_PHASE_READY, 5, 4, 8);
  Add("n", 1, v1::RANK_PHASE_READY, 100, 100, 100);
  Add("o", 0, v1::RANK_PHASE_LOADING, 100, 100, 100);
  Add("p", 0, v1::RANK_PHASE_FAILED, 100, 100, 100);
  Add("q", 0, v1::RANK_PHASE_STOPPING, 100, 100, 100);
  own_.ForgetRanks();
  const v1::NodeLoad& load = own_.load();
  EXPECT_DOUBLE_EQ(load.tokens_per_second(), 15);
  EXPECT_EQ(load.requests_running(), 5u);
  EXPECT_EQ(load.requests_queued(), 10u);
  EXPECT_EQ(own_.ranks().size(), 6u);
}

TEST_F(OwnNodeTest, WhatTheMachineClaimsOfRanksIsReplacedByTheSupervisors) {
  prober_.next.set_requests_running(99);
  prober_.next.set_tokens_per_second(99);
  prober_.next.set_reserved_bytes(99);
  prober_.next.set_awaited_bytes(99);
  prober_.next.set_swap_used_bytes(7);
  supervisor_.awaited = Bytes(3);
  const v1::NodeLoad& load = own_.load();
  EXPECT_EQ(load.requests_running(), 0u);
  EXPECT_DOUBLE_EQ(load.tokens_per_second(), 0);
  EXPECT_EQ(load.reserved_bytes(), 0u);
  EXPECT_EQ(load.awaited_bytes(), 3u);
  EXPECT_EQ(load.swap_used_bytes(), 7u);
}

TEST_F(OwnNodeTest, AnAdmissionLooksAtTheMemoryThatIsFreeNow) {
  prober_.facts.set_memory_total_bytes(64 * kGiB);
  prober_.facts.set_memory_gpu_usable_bytes(48 * kGiB);
  prober_.next.set_memory_available_bytes(40 * kGiB);
  EXPECT_EQ(own_.memory().available.count(), 40 * kGiB);
  prober_.next.set_memory_available_bytes(4 * kGiB);
  EXPECT_EQ(own_.memory().available.count(), 4 * kGiB) << "no time has passed";
  EXPECT_EQ(own_.load().memory_available_bytes(), 4 * kGiB);
  prober_.facts.set_memory_models_max_bytes(16 * kGiB);
  EXPECT_EQ(own_.memory().usable.count(), 16 * kGiB);
}

TEST_F(OwnNodeTest, NewAddressesTakeThePlaceOfTheOldOnes) {
  const auto of = [](const std::string& ip) {
    v1::NodeAddress address;
    address.set_ip(ip);
    return address;
  };
  const auto ips = [&] {
    std::vector<std::string> all;
    for (const v1::NodeAddress& address : own_.identity().addresses()) all.push_back(address.ip());
    return all;
  };
  own_.SetAddresses({of("10.0.0.1"), of("10.0.0.2")});
  EXPECT_THAT(ips(), ElementsAre("10.0.0.1", "10.0.0.2"));
  own_.SetAddresses({of("10.0.0.3")});
  EXPECT_THAT(ips(), ElementsAre("10.0.0.3"));
  own_.SetAddresses({});
  EXPECT_THAT(ips(), ElementsAre());
  own_.SetControlPort(1);
  own_.SetGatewayPort(2);
  EXPECT_EQ(own_.identity().control_port(), 1u);
  EXPECT_EQ(own_.identity().gateway_port(), 2u);
  EXPECT_EQ(own_.id().value(), std::string(32, 'a'));
}

// --- energy --------------------------------------------------------------------------------------

class OwnNodeEnergyTest : public OwnNodeTest {
 protected:
  // Two seconds of the node at so many watts, of which the ranks computed so long.
  void Spend(double watts, const std::vector<double>& busy_seconds) {
    clock_.AdvanceBy(seconds(2));
    joules_ += watts * 2;
    prober_.next.set_energy_joules(joules_);
    prober_.next.set_power_watts(watts);
    for (size_t rank = 0; rank < busy_seconds.size(); ++rank) {
      auto& steps = *supervisor_.ranks[rank].mutable_timings()->mutable_decode_step_us();
      steps.set_sum(steps.sum() + busy_seconds[rank] * 1e6);
    }
    own_.load();
    own_.ForgetRanks();
  }
  double JoulesOf(size_t rank) { return own_.ranks()[rank].energy_joules(); }

  double joules_ = 0;
};

TEST_F(OwnNodeEnergyTest, WithoutAPowerMeterNoRankTellsOfEnergy) {
  Add("m", 0, v1::RANK_PHASE_READY);
  own_.load();
  clock_.AdvanceBy(seconds(2));
  own_.load();
  EXPECT_FALSE(own_.ranks()[0].has_energy_joules());
}

// Over any course of work: no rank's energy falls, all of them together took no more than the node,
// and who computed nothing took nothing.
TEST_F(OwnNodeEnergyTest, RanksShareWhatTheNodeTookAndNoMore) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 dice(seed);
    supervisor_.ranks.clear();
    for (uint32_t rank = 0; rank < 3; ++rank) {
      Add("m" + std::to_string(seed), rank, v1::RANK_PHASE_READY);
    }
    v1::PowerPart part = v1::POWER_PART_CPU;
    if (prober_.next.power_parts().empty()) prober_.next.add_power_parts(part);
    Spend(20, {0, 0, 0});
    const double before = joules_;
    std::vector<double> last(3, 0);
    for (int step = 0; step < 60; ++step) {
      const auto busy = [&] { return dice() % 3 == 0 ? 0.0 : 1 + dice() % 100 / 100.0; };
      const double first = busy(), second = busy();
      Spend(20 + dice() % 80, {first, second, 0});
      for (size_t rank = 0; rank < 3; ++rank) {
        EXPECT_GE(JoulesOf(rank), last[rank]);
        last[rank] = JoulesOf(rank);
      }
    }
    for (int rest = 0; rest < 3; ++rest) Spend(20, {0, 0, 0});
    EXPECT_GT(JoulesOf(0), 0);
    EXPECT_GT(JoulesOf(1), 0);
    EXPECT_EQ(JoulesOf(2), 0);
    // Ahead of a reading a rank's steps are told to cost what the last ones did: two seconds' here.
    const double guessed = 2 * 2 * 100;
    EXPECT_LE(JoulesOf(0) + JoulesOf(1), joules_ - before + 2 * guessed);
  }
}

}  // namespace
}  // namespace macrame::agentd
