// MACRAME_SIM_SEED=n runs that seed alone (with MACRAME_SIM_TRACE=1: and tells what happens);
// MACRAME_SIM_SEEDS=n runs so many, from MACRAME_SIM_FIRST on.

#include "tests/sim/cluster_sim.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

namespace macrame::agentd::sim {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

SimOptions OptionsOf(uint64_t seed) {
  SimOptions options;
  options.seed = seed;
  options.nodes = static_cast<int>(1 + (seed * 7 + seed / 5) % 5);
  if (seed % 6 == 5) options.consistency = Consistency::kQuorum;
  // One listed machine has nobody to tell its copy from it while a cable is cut.
  const bool is_lone = options.consistency == Consistency::kQuorum && options.nodes == 1;
  options.copies = seed % 3 == 1 && !is_lone;
  options.calm = seed % 9 == 1;
  options.trace = std::getenv("MACRAME_SIM_TRACE") != nullptr;
  return options;
}

// What agents log is of use to whoever follows one seed.
class Logs : public ::testing::Environment {
 public:
  void SetUp() override {
    spdlog::set_pattern("             %v");
    if (std::getenv("MACRAME_SIM_TRACE") == nullptr) spdlog::set_level(spdlog::level::off);
  }
};
const auto* const kLogs = ::testing::AddGlobalTestEnvironment(new Logs);

TEST(ClusterSim, EverySeedHolds) {
  const uint64_t only = FromEnvironment("MACRAME_SIM_SEED", 0);
  const uint64_t first = only != 0 ? only : FromEnvironment("MACRAME_SIM_FIRST", 1);
  const uint64_t last = only != 0 ? only : first + FromEnvironment("MACRAME_SIM_SEEDS", 1000) - 1;
  uint64_t events = 0, elections = 0, acked = 0, endings = 0, numbers = 0, failed = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    ClusterSim sim(OptionsOf(seed));
    const std::string violation = sim.Run();
    EXPECT_EQ(violation, "") << "MACRAME_SIM_SEED=" << seed;
    events += sim.events();
    elections += sim.elections();
    acked += sim.acked();
    endings += sim.endings();
    numbers += sim.numbers();
    failed += !violation.empty();
    if (failed >= 10) break;
  }
  if (last - first >= 100) {
    EXPECT_GT(endings, 0u) << "what ends gangs says so in other words now";
    EXPECT_GT(numbers, 0u) << "no order of a person is acknowledged";
  }
  std::printf("%llu events, %llu elections, %llu acknowledged writes, %llu seeds failed\n",
              static_cast<unsigned long long>(events), static_cast<unsigned long long>(elections),
              static_cast<unsigned long long>(acked), static_cast<unsigned long long>(failed));
}

TEST(ClusterSim, ASeedIsOneHistory) {
  ClusterSim once(OptionsOf(7)), again(OptionsOf(7));
  EXPECT_EQ(once.Run(), again.Run());
  EXPECT_EQ(once.events(), again.events());
  EXPECT_EQ(once.acked(), again.acked());
  EXPECT_EQ(once.elections(), again.elections());
}

// A quiet cluster with one ready gang, to which one thing is done.
class SingleFailure : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    SimOptions options;
    options.seed = 77 + static_cast<uint64_t>(GetParam());
    options.nodes = GetParam();
    options.copies = true;
    options.trace = std::getenv("MACRAME_SIM_TRACE") != nullptr;
    sim_ = std::make_unique<ClusterSim>(options);
    sim_->StartAll();
    sim_->RunFor(6000);
    ASSERT_TRUE(sim_->CoordinatorIndex().has_value());
    leader_ = *sim_->CoordinatorIndex();
    sim_->Load(leader_, "m0");
    ExpectReadyWithin(8000);
  }
  void TearDown() override { EXPECT_EQ(sim_->violation(), ""); }

  void ExpectReadyWithin(int ms) {
    for (int waited = 0; waited < ms; waited += 50) {
      sim_->RunFor(50);
      if (sim_->IsReady("m0")) return;
    }
    ADD_FAILURE() << "m0 is not ready after " << ms << " ms";
  }
  int Follower() const { return leader_ == 0 ? 1 : 0; }

  std::unique_ptr<ClusterSim> sim_;
  int leader_ = 0;
};

TEST_P(SingleFailure, TheCoordinatorIsKilled) {
  sim_->Crash(leader_);
  sim_->RunFor(3500);
  ExpectReadyWithin(9000);
}

TEST_P(SingleFailure, TheCoordinatorIsKilledAndComesBackAtOnce) {
  sim_->Crash(leader_);
  sim_->Start(leader_);
  sim_->RunFor(3500);
  ExpectReadyWithin(9000);
}

// It lives and speaks, and nobody can call it.
TEST_P(SingleFailure, AFirewallOfTheCoordinatorRefusesCalls) {
  const uint64_t epoch = sim_->EpochOf("m0"), elections = sim_->elections();
  ASSERT_NE(epoch, 0u);
  sim_->SetRefuses(leader_, true);
  sim_->RunFor(20'000);
  EXPECT_EQ(sim_->elections(), elections);
  sim_->SetRefuses(leader_, false);
  sim_->RunFor(5000);
  EXPECT_EQ(sim_->elections(), elections);
  EXPECT_EQ(sim_->EpochOf("m0"), epoch);
}

TEST_P(SingleFailure, CopiesOfEachDiskStartAndEnd) {
  const uint64_t epoch = sim_->EpochOf("m0"), elections = sim_->elections();
  ASSERT_NE(epoch, 0u);
  for (int of = 0; of < GetParam(); ++of) {
    sim_->StartCopy(of);
    for (int waited = 0; waited < 12'000; waited += 50) {
      sim_->RunFor(50);
      ASSERT_FALSE(sim_->copy().IsSure()) << "copy of node " << of;
      ASSERT_EQ(sim_->EpochOf("m0"), epoch) << "copy of node " << of << ", " << waited << " ms";
    }
    EXPECT_EQ(sim_->copy().standing(), Standing::kRefused);
    sim_->StopCopy();
    sim_->RunFor(6000);
    ASSERT_EQ(sim_->EpochOf("m0"), epoch) << "after the copy of node " << of << " ended";
  }
  EXPECT_EQ(sim_->elections(), elections);
}

// The machine is gone for good, and its disk goes on in another one.
TEST_P(SingleFailure, AMovedDiskGoesOn) {
  const int moved = Follower();
  sim_->Crash(moved);
  sim_->StartCopy(moved);
  sim_->RunFor(6000);
  EXPECT_TRUE(sim_->copy().IsSure());
  ExpectReadyWithin(9000);
  // The old machine is switched on again.
  sim_->Start(moved);
  sim_->RunFor(6000);
  EXPECT_EQ(sim_->machine(moved).standing(), Standing::kRefused);
  EXPECT_TRUE(sim_->copy().IsSure());
  ExpectReadyWithin(1000);
}

TEST_P(SingleFailure, AFollowerIsKilled) {
  sim_->Crash(Follower());
  sim_->RunFor(3500);
  ExpectReadyWithin(9000);
}

TEST_P(SingleFailure, ARankIsKilled) {
  sim_->KillRank(Follower());
  ExpectReadyWithin(3000);
}

TEST_P(SingleFailure, TheCoordinatorIsPaused) {
  sim_->Pause(leader_);
  sim_->RunFor(8000);
  sim_->Resume(leader_);
  sim_->RunFor(2000);
  ExpectReadyWithin(9000);
}

TEST_P(SingleFailure, TheCoordinatorIsCutOffAndComesBack) {
  sim_->Isolate(leader_, true);
  sim_->RunFor(10'000);
  sim_->Isolate(leader_, false);
  sim_->RunFor(3000);
  ExpectReadyWithin(12'000);
}

// m0 takes three nodes.
TEST_P(SingleFailure, AnIdleNodeIsCutOffAndComesBack) {
  if (GetParam() < 4) GTEST_SKIP() << "no node is idle";
  int idle = 0;
  while (sim_->RanksOn(idle, "m0") > 0) ++idle;
  const uint64_t epoch = sim_->EpochOf("m0");
  ASSERT_NE(epoch, 0u);
  for (int round = 0; round < 20; ++round) {
    sim_->Isolate(idle, true);
    sim_->RunFor(10'000);
    sim_->Isolate(idle, false);
    sim_->RunFor(6000);
    ASSERT_EQ(sim_->EpochOf("m0"), epoch) << "launched anew in round " << round;
    ASSERT_TRUE(sim_->IsReady("m0"));
  }
}

// Its links were being measured when it was cut off, or were not yet.
TEST_P(SingleFailure, ANodeThatIsCutOffAsItStartsIsOfUseWhenItIsBack) {
  for (int cut_after = 0; cut_after < 2000; cut_after += 100) {
    sim_->Crash(Follower());
    sim_->RunFor(4000);
    sim_->Start(Follower());
    sim_->RunFor(cut_after);
    sim_->Isolate(Follower(), true);
    sim_->RunFor(90'000);
    sim_->Isolate(Follower(), false);
    sim_->RunFor(6000);
    ASSERT_TRUE(sim_->CoordinatorIndex().has_value());
    leader_ = *sim_->CoordinatorIndex();
    sim_->Unload(leader_, "m0");
    sim_->RunFor(4000);
    sim_->Load(leader_, "m0");
    ExpectReadyWithin(8000);
    ASSERT_FALSE(HasFailure()) << "cut off after " << cut_after << " ms";
  }
}

TEST_P(SingleFailure, TheCoordinatorsDiskFillsAndEmpties) {
  const uint64_t epoch = sim_->EpochOf("m0");
  sim_->FillDisk(leader_, true);
  sim_->Load(leader_, "m1");  // shows that nothing can be written
  sim_->RunFor(6000);
  ASSERT_TRUE(sim_->CoordinatorIndex().has_value());
  EXPECT_NE(*sim_->CoordinatorIndex(), leader_);
  EXPECT_EQ(sim_->EpochOf("m0"), epoch);
  sim_->Load(*sim_->CoordinatorIndex(), "m1");
  sim_->RunFor(4000);
  EXPECT_TRUE(sim_->IsReady("m1"));
  sim_->FillDisk(leader_, false);
  sim_->RunFor(5000);
  EXPECT_EQ(sim_->EpochOf("m0"), epoch);
  EXPECT_TRUE(sim_->IsReady("m1"));
}

TEST_P(SingleFailure, AShortPauseDisturbsNothing) {
  const uint64_t elections = sim_->elections();
  for (int node = 0; node < GetParam(); ++node) {
    sim_->Pause(node);
    sim_->RunFor(1000);
    sim_->Resume(node);
    sim_->RunFor(2000);
    EXPECT_TRUE(sim_->IsReady("m0"));
  }
  EXPECT_EQ(sim_->elections(), elections);
}

TEST_P(SingleFailure, ANodeThatIsToldToStopGivesItsGangAwayFirst) {
  for (const int room : {2, 1}) {
    sim_->SetRoom(room);
    const uint64_t epoch = sim_->EpochOf("m0");
    ASSERT_NE(epoch, 0u);
    int leaving = *sim_->CoordinatorIndex();
    while (sim_->RanksOn(leaving, "m0") == 0) leaving = (leaving + 1) % GetParam();
    for (int node = 0; node < GetParam(); ++node) sim_->KeepBusy(node, 6000);
    sim_->Drain(leaving);
    sim_->RunFor(5500);
    EXPECT_EQ(sim_->RanksOn(leaving, "m0"), 1) << "its answers go on";
    if (room == 2) {
      EXPECT_GT(sim_->EpochOf("m0"), epoch) << "another gang is there meanwhile";
    }
    sim_->RunFor(5500);
    EXPECT_EQ(sim_->RanksOn(leaving, "m0"), 0);
    ExpectReadyWithin(5000);
    const uint64_t moved = sim_->EpochOf("m0");
    EXPECT_GT(moved, epoch);
    sim_->Crash(leaving);
    sim_->RunFor(7000);
    EXPECT_EQ(sim_->EpochOf("m0"), moved) << "what moved is not disturbed by its going";
    sim_->Start(leaving);
    sim_->RunFor(5000);
    EXPECT_EQ(sim_->EpochOf("m0"), moved);
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, SingleFailure, ::testing::Values(2, 3, 4, 5));

// The checkers are worth what they find.
class PlantedBug : public ::testing::TestWithParam<Plant> {};

TEST_P(PlantedBug, IsFound) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    SimOptions options = OptionsOf(seed);
    options.nodes = std::max(options.nodes, 2);
    options.plant = GetParam();
    options.calm = false;
    options.copies = GetParam() == Plant::kTrustCopies;
    if (!ClusterSim(options).Run().empty()) return;
  }
  FAIL() << "no seed found it";
}

INSTANTIATE_TEST_SUITE_P(Shells, PlantedBug,
                         ::testing::Values(Plant::kIgnoreFence, Plant::kForgetGrant,
                                           Plant::kForgetEntries, Plant::kLeadWithoutMerging,
                                           Plant::kWildClocks, Plant::kTrustCopies));

}  // namespace
}  // namespace macrame::agentd::sim
