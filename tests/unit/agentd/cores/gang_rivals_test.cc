// Gangs of one deployment that were launched apart, when they meet.

#include "tests/unit/agentd/cores/gang_harness.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// m runs on c and d; a and b are idle. Then c and d can't be reached, and m is launched on a and b.
class Apart : public ::testing::Test {
 protected:
  Apart() {
    h_.view.unix_ms = 1000;
    SetState("ab", v1::NODE_STATE_SUSPECT);
    h_.Deploy("m");
    h_.Run(seconds(3));
    SetState("ab", v1::NODE_STATE_ALIVE);
    h_.Run(seconds(1));
    first_ = h_.Status("m").epoch();
    away_ = h_.view.ranks;
    SetState("cd", v1::NODE_STATE_DEAD);
    h_.view.unix_ms = 9000;
    h_.Run(seconds(5));
    second_ = h_.Status("m").epoch();
  }

  void SetState(const std::string& letters, v1::NodeState state) {
    for (const char letter : letters) h_.Node(letter).state = state;
  }
  size_t RanksOf(uint64_t epoch) const {
    return static_cast<size_t>(
        std::count_if(h_.view.ranks.begin(), h_.view.ranks.end(),
                      [&](const v1::RankStatus& rank) { return rank.epoch() == epoch; }));
  }

  Harness h_{"abcd"};
  std::vector<v1::RankStatus> away_;
  uint64_t first_ = 0, second_ = 0;
};

TEST_F(Apart, TheGangThatWasReadyFirstIsInForceAgainWhenItIsBackWhole) {
  ASSERT_NE(first_, second_);
  ASSERT_EQ(RanksOf(second_), 2u);
  SetState("cd", v1::NODE_STATE_ALIVE);  // and their ranks ran on all the time
  h_.Run(seconds(3));
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(h_.Status("m").epoch(), first_);
  EXPECT_EQ(RanksOf(first_), 2u);
  EXPECT_EQ(RanksOf(second_), 0u) << "one gang serves";
  EXPECT_EQ(h_.Status("m").failure().code(), "GANG_REUNITED");
  EXPECT_EQ(h_.view.gangs.at(0).epoch(), first_) << "and that is written down";
}

TEST_F(Apart, OneThatLostARankMeanwhileStaysOut) {
  for (v1::RankStatus& rank : h_.view.ranks) {
    if (rank.epoch() == first_ && rank.rank() == 1) rank.set_phase(v1::RANK_PHASE_FAILED);
  }
  SetState("cd", v1::NODE_STATE_ALIVE);
  h_.Run(seconds(10));
  EXPECT_EQ(h_.Status("m").epoch(), second_);
  EXPECT_EQ(h_.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
}

TEST_F(Apart, ItWaitsForTheReportsOfNodesThatJustCameBack) {
  std::erase_if(h_.view.ranks, [&](const auto& rank) { return rank.epoch() == first_; });
  SetState("cd", v1::NODE_STATE_ALIVE);
  h_.Run(seconds(2));
  EXPECT_EQ(h_.Status("m").epoch(), second_);
  for (const v1::RankStatus& rank : away_) h_.view.ranks.push_back(rank);
  h_.Run(seconds(2));
  EXPECT_EQ(h_.Status("m").epoch(), first_);
}

TEST_F(Apart, OneThatWasLaunchedForAnotherModelStaysOut) {
  h_.view.deployments.at(0).mutable_placement()->set_context_length(8192);
  h_.Run(seconds(5));
  const uint64_t third = h_.Status("m").epoch();
  ASSERT_GT(third, second_);
  SetState("cd", v1::NODE_STATE_ALIVE);
  h_.Run(seconds(10));
  EXPECT_EQ(h_.Status("m").epoch(), third);
  EXPECT_EQ(RanksOf(first_), 0u);
}

// The other half changed the deployment and launched it anew; here the gang of before serves.
TEST(ApartAndChanged, TheGangOfWhatIsWantedNowIsInForce) {
  const auto change = [](Harness& h) {
    h.view.deployments.at(0).mutable_placement()->set_context_length(8192);
  };
  const auto cut_off = [](Harness& h, const std::string& letters) {
    for (const char letter : letters) h.Node(letter).state = v1::NODE_STATE_DEAD;
  };
  Harness there("abcd"), here("abcd");
  there.reconciler.BeginLeading({Term(3), Id('c')}, there.now);
  for (Harness* half : {&there, &here}) {
    cut_off(*half, half == &there ? "ab" : "cd");
    half->Deploy("m");
  }
  change(there);
  there.Run(seconds(5));
  here.Run(seconds(5));
  ASSERT_EQ(there.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  ASSERT_EQ(here.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  const size_t launches = here.epochs.size();

  for (const char letter : {'c', 'd'}) here.Node(letter).state = v1::NODE_STATE_ALIVE;
  for (const v1::RankStatus& rank : there.view.ranks) here.view.ranks.push_back(rank);
  change(here);
  here.reconciler.NoteApart(there.view.gangs.at(0));
  here.Run(seconds(5));
  EXPECT_EQ(here.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_EQ(here.Status("m").epoch(), there.Status("m").epoch());
  EXPECT_EQ(here.epochs.size(), launches) << "nothing is launched";
}

TEST_F(Apart, ANextCoordinatorKnowsOfItFromTheRecord) {
  h_.reconciler.BeginLeading({Term(2), Id('b')}, h_.now);
  h_.Run(seconds(3));
  ASSERT_EQ(h_.Status("m").epoch(), second_);
  SetState("cd", v1::NODE_STATE_ALIVE);
  h_.Run(seconds(3));
  EXPECT_EQ(h_.Status("m").epoch(), first_);
  EXPECT_EQ(RanksOf(second_), 0u);
}

TEST_F(Apart, TheGangThatGivesWayMayFinishItsAnswers) {
  for (v1::RankStatus& rank : h_.view.ranks) {
    if (rank.epoch() == second_ && rank.rank() == 0) rank.set_requests_running(2);
  }
  SetState("cd", v1::NODE_STATE_ALIVE);
  h_.Run(seconds(15));
  EXPECT_EQ(h_.Status("m").epoch(), first_);
  EXPECT_EQ(RanksOf(second_), 2u) << "two answers are under way";
  for (v1::RankStatus& rank : h_.view.ranks) rank.set_requests_running(0);
  h_.Run(seconds(1));
  EXPECT_EQ(RanksOf(second_), 0u);
}

TEST_F(Apart, ButNotForEver) {
  for (v1::RankStatus& rank : h_.view.ranks) {
    if (rank.epoch() == second_) rank.set_requests_running(1);
  }
  SetState("cd", v1::NODE_STATE_ALIVE);
  h_.Run(seconds(25));
  EXPECT_EQ(RanksOf(second_), 0u);
}

TEST(Kept, AReadyGangKeepsItsRecordAgainstAMergeAndWhileItsTermIsRaised) {
  Harness h("ab");
  h.Deploy("m");
  EXPECT_FALSE(h.reconciler.Keeps("m"));
  h.Run(seconds(3));
  EXPECT_TRUE(h.reconciler.Keeps("m"));
  h.reconciler.StopLeading();
  EXPECT_TRUE(h.reconciler.Keeps("m"));
  // It leads again under the raised term, and has not looked at its gangs yet.
  h.reconciler.BeginLeading({Term(7), Id('a')}, h.now);
  EXPECT_TRUE(h.reconciler.Keeps("m"));
  h.reconciler.StopLeading();
  EXPECT_TRUE(h.reconciler.Keeps("m"));
  h.reconciler.ForgetKept();
  EXPECT_FALSE(h.reconciler.Keeps("m"));
}

TEST(Kept, AGangOfAnOlderDeploymentIsNotAdopted) {
  Harness h("ab");
  h.Deploy("m");
  h.Run(seconds(3));
  const uint64_t epoch = h.Status("m").epoch();
  h.reconciler.StopLeading();
  h.view.deployments.at(0).mutable_placement()->set_context_length(4096);
  h.reconciler.BeginLeading({Term(2), Id('b')}, h.now);
  h.Run(seconds(5));
  EXPECT_GT(h.Status("m").epoch(), epoch);
  EXPECT_EQ(h.Status("m").state(), v1::DEPLOYMENT_STATE_READY);
}

}  // namespace
}  // namespace macrame::agentd
