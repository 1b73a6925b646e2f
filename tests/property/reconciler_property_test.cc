// The reconciler under orders, deaths, failures and refusals in any order: what it says is in order
// at each step, and when all is well again everything that is wanted is served, and nothing else.

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>

#include "tests/unit/agentd/cores/gang_harness.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kSeeds = 100;
constexpr int kSteps = 60;

class Trial {
 public:
  explicit Trial(uint32_t seed) : random_(seed), harness_("abc") {}

  void Run() {
    for (int step = 0; step < kSteps && !::testing::Test::HasFailure(); ++step) {
      Disturb();
      harness_.Run(milliseconds(50 * (1 + Pick(60))));
      CheckEffects();
    }
    Settle();
  }

 private:
  int Pick(int count) { return static_cast<int>(random_() % static_cast<uint32_t>(count)); }
  std::string Name() { return std::string(1, static_cast<char>('p' + Pick(3))); }

  bool IsWanted(const std::string& name) const {
    for (const v1::Deployment& one : harness_.view.deployments) {
      if (one.name() == name) return true;
    }
    return false;
  }

  void Disturb() {
    const std::string name = Name();
    NodeView& node = harness_.view.nodes[static_cast<size_t>(Pick(3))];
    switch (Pick(9)) {
      case 0:
      case 1:
        if (!IsWanted(name)) harness_.DeployEvicting(name, Pick(3));
        break;
      case 2:
        std::erase_if(harness_.view.deployments,
                      [&](const v1::Deployment& one) { return one.name() == name; });
        break;
      case 3:
        node.state = v1::NODE_STATE_DEAD;
        std::erase_if(harness_.view.ranks, [&](const v1::RankStatus& rank) {
          return rank.node_id() == node.id.value();
        });
        break;
      case 4:
        node.state = v1::NODE_STATE_ALIVE;
        break;
      case 5:
        FailARank();
        break;
      case 6:
        harness_.launches = Pick(2) == 0 ? absl::OkStatus() : absl::UnavailableError("no memory");
        break;
      case 7:
        harness_.fits = Pick(2) == 0;
        break;
      case 8:
        node.draining = Pick(2) == 0;
        break;
    }
  }

  void FailARank() {
    if (harness_.view.ranks.empty()) return;
    const auto count = static_cast<int>(harness_.view.ranks.size());
    v1::RankStatus& rank = harness_.view.ranks[static_cast<size_t>(Pick(count))];
    rank.set_phase(v1::RANK_PHASE_FAILED);
    *rank.mutable_failure() = MakeReason(reasons::kRankExited, "signal 11");
  }

  // A gang is written before it is launched, once, under an epoch that no gang of it had before.
  void CheckEffects() {
    for (const GangEffect& effect : harness_.effects) {
      if (const auto* write = std::get_if<WriteGang>(&effect)) {
        const std::string& name = write->record.deployment();
        ASSERT_GE(write->record.epoch(), written_[name]) << name << " goes back";
        written_[name] = write->record.epoch();
      } else if (const auto* launch = std::get_if<ReserveAndLaunch>(&effect)) {
        const std::string& name = launch->deployment.name();
        ASSERT_EQ(launch->epoch, written_[name]) << name << " is launched before it is written";
        ASSERT_TRUE(launched_.emplace(name, launch->epoch).second) << name << " is launched twice";
        ASSERT_FALSE(launch->plan.assignments().empty());
      } else if (const auto* end = std::get_if<StopRanks>(&effect)) {
        ASSERT_LE(end->from_epoch, end->up_to_epoch);
      }
    }
    harness_.effects.clear();
  }

  // From here on all is well.
  void Settle() {
    harness_.launches = absl::OkStatus();
    harness_.fits = true;
    for (NodeView& node : harness_.view.nodes) {
      node.state = v1::NODE_STATE_ALIVE;
      node.draining = false;
    }
    harness_.Run(seconds(900));
    CheckEffects();
    std::set<std::string> served;
    for (const v1::RankStatus& rank : harness_.view.ranks) {
      EXPECT_TRUE(IsWanted(rank.deployment())) << "ranks of " << rank.deployment() << " are left";
      EXPECT_EQ(rank.epoch(), written_[rank.deployment()]) << "an older gang is left";
      served.insert(rank.deployment());
    }
    for (const v1::Deployment& one : harness_.view.deployments) {
      EXPECT_TRUE(served.contains(one.name())) << one.name() << " is not served";
      EXPECT_EQ(harness_.Status(one.name()).state(), v1::DEPLOYMENT_STATE_READY) << one.name();
    }
    for (const v1::GangRecord& record : harness_.view.gangs) {
      EXPECT_TRUE(IsWanted(record.deployment())) << record.deployment() << " is not forgotten";
    }
  }

  std::mt19937 random_;
  Harness harness_;
  std::map<std::string, uint64_t> written_;
  std::set<std::pair<std::string, uint64_t>> launched_;
};

TEST(ReconcilerProperty, WhatIsWantedIsServedInTheEndAndEachEpochIsLaunchedOnce) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Trial(seed).Run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace macrame::agentd
