#include "agentd/cores/election.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;

NodeId Id(char letter) { return NodeId(std::string(32, letter)); }
MonotonicTime At(int ms) { return MonotonicTime(milliseconds(100'000 + ms)); }

template <typename Effect>
std::vector<Effect> Pick(const ElectionEffects& effects) {
  std::vector<Effect> picked;
  for (const ElectionEffect& effect : effects) {
    if (const auto* one = std::get_if<Effect>(&effect)) picked.push_back(*one);
  }
  return picked;
}

v1::LeaseRequest Request(uint64_t term, char who, uint32_t lease_ms = 2000, bool pre_vote = false) {
  v1::LeaseRequest request;
  *request.mutable_fence() = ToProto({Term(term), Id(who)});
  request.set_lease_ms(lease_ms);
  request.set_pre_vote(pre_vote);
  request.set_wants_entries(true);
  return request;
}

v1::LeaseResponse Yes() {
  v1::LeaseResponse response;
  response.set_granted(true);
  return response;
}

v1::LeaseResponse No(uint64_t term, char who) {
  v1::LeaseResponse response;
  *response.mutable_highest() = ToProto({Term(term), Id(who)});
  return response;
}

std::unique_ptr<Election> Make(char self, std::optional<GrantRecord> record = std::nullopt,
                               ElectionOptions options = {}) {
  return std::make_unique<Election>(
      Id(self), options, record, [] { return uint64_t{0}; }, At(0));
}

v1::LeaseResponse Ask(Election& node, char from, const v1::LeaseRequest& request, int ms) {
  const auto answers = Pick<AnswerLease>(node.OnLeaseRequest(Id(from), request, At(ms)));
  EXPECT_EQ(answers.size(), 1u);
  return answers.at(0).response;
}

// Answers every request of `effects` with yes, at `ms`, as long as new requests come.
ElectionEffects AgreeAll(Election& node, const ElectionEffects& effects, int ms) {
  ElectionEffects last = effects;
  for (int round = 0; round < 2; ++round) {
    ElectionEffects next;
    for (const SendLeaseRequest& asked : Pick<SendLeaseRequest>(last)) {
      for (auto& effect : node.OnLeaseResponse(asked, Yes(), At(ms))) next.push_back(effect);
    }
    if (next.empty()) break;
    last = next;
  }
  return last;
}

std::unique_ptr<Election> MakeCoordinator(ElectionOptions options = {}) {
  auto node = Make('a', std::nullopt, options);
  const std::set<NodeId> members = {Id('a'), Id('b'), Id('c')};
  node->OnMembershipChanged(members, members, At(0));
  AgreeAll(*node, node->OnTick(At(1000)), 1001);
  // The first tick only sets the time to stand.
  if (!node->Leading(At(1001))) AgreeAll(*node, node->OnTick(At(1001)), 1001);
  EXPECT_TRUE(node->Leading(At(1001)).has_value());
  return node;
}

TEST(Election, LoneNodeElectsItselfAfterTheDiscoveryGrace) {
  auto node = Make('a');
  EXPECT_TRUE(Pick<BecameCoordinator>(node->OnTick(At(0))).empty());
  EXPECT_TRUE(Pick<BecameCoordinator>(node->OnTick(At(999))).empty());
  const ElectionEffects effects = node->OnTick(At(1000));
  ASSERT_EQ(Pick<BecameCoordinator>(effects).size(), 1u);
  ASSERT_EQ(Pick<PersistGrant>(effects).size(), 1u) << "its vote for itself is on disk first";
  EXPECT_TRUE(std::holds_alternative<PersistGrant>(effects.front()));
  EXPECT_EQ(node->Leading(At(60'000)), (FencePair{Term(1), Id('a')})) << "it needs no-one else";
}

TEST(Election, PreVoteChangesNothingAnywhere) {
  auto node = Make('b');
  const auto effects = node->OnLeaseRequest(Id('a'), Request(7, 'a', 2000, true), At(10));
  EXPECT_TRUE(Pick<AnswerLease>(effects).at(0).response.granted());
  EXPECT_TRUE(Pick<PersistGrant>(effects).empty());
  EXPECT_EQ(node->highest_term(), Term(0));
}

TEST(Election, GrantIsPersistedBeforeItIsAnswered) {
  auto node = Make('b');
  const auto effects = node->OnLeaseRequest(Id('a'), Request(1, 'a'), At(10));
  ASSERT_GE(effects.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<PersistGrant>(effects[0]));
  EXPECT_TRUE(std::holds_alternative<AnswerLease>(effects[1]));
  EXPECT_TRUE(std::get<AnswerLease>(effects[1]).with_entries);
  v1::LeaseRequest again = Request(1, 'a');
  again.set_wants_entries(false);
  const auto renewal = node->OnLeaseRequest(Id('a'), again, At(510));
  EXPECT_TRUE(Pick<PersistGrant>(renewal).empty()) << "a renewal costs no fsync";
  EXPECT_FALSE(Pick<AnswerLease>(renewal).at(0).with_entries);
}

TEST(Election, LeaseIsGrantedToOneAtATime) {
  auto node = Make('b');
  EXPECT_TRUE(Ask(*node, 'a', Request(1, 'a'), 0).granted());
  const v1::LeaseResponse refused = Ask(*node, 'c', Request(9, 'c'), 1999);
  EXPECT_FALSE(refused.granted());
  EXPECT_EQ(refused.remaining_ms(), 1u);
  EXPECT_EQ(refused.highest().coordinator_id(), Id('a').value());
  EXPECT_TRUE(Ask(*node, 'c', Request(9, 'c'), 2000).granted());
  EXPECT_FALSE(Ask(*node, 'a', Request(1, 'a'), 2001).granted()) << "the older pair is fenced";
}

TEST(Election, ALeaseGivenBackIsFreeAtOnce) {
  auto node = Make('b');
  EXPECT_TRUE(Ask(*node, 'a', Request(1, 'a'), 0).granted());
  EXPECT_TRUE(Ask(*node, 'a', Request(1, 'a', 0), 100).granted());
  EXPECT_TRUE(Ask(*node, 'c', Request(2, 'c'), 101).granted());
}

TEST(Election, RestartedGranterLetsTheWholeLeaseRun) {
  auto node = Make('b', GrantRecord{{Term(4), Id('a')}, milliseconds(2000)});
  EXPECT_FALSE(Ask(*node, 'c', Request(5, 'c'), 1999).granted());
  EXPECT_TRUE(Ask(*node, 'a', Request(4, 'a'), 500).granted()) << "its coordinator goes on";
  EXPECT_FALSE(Ask(*node, 'c', Request(5, 'c'), 2400).granted());
  EXPECT_TRUE(Ask(*node, 'c', Request(5, 'c'), 2500).granted());
}

TEST(Election, RequestsOfAnotherThanTheCallerAreRefused) {
  auto node = Make('b');
  EXPECT_FALSE(Ask(*node, 'c', Request(1, 'a'), 0).granted());
  EXPECT_FALSE(Ask(*node, 'a', Request(kTermMax + 1, 'a'), 0).granted());
  EXPECT_FALSE(Ask(*node, 'a', Request(1, 'a', kLeaseMsMax + 1), 0).granted());
  EXPECT_EQ(node->highest_term(), Term(0)) << "a wild term is not remembered";
}

TEST(Election, CheckFenceObeysOnlyWhomItGranted) {
  auto node = Make('b');
  EXPECT_EQ(ReasonOf(node->CheckFence({Term(1), Id('a')})).code(), "NO_COORDINATOR");
  EXPECT_FALSE(node->CheckFence({}).ok()) << "an order without a fence is no order";
  Ask(*node, 'a', Request(3, 'a'), 0);
  EXPECT_TRUE(node->CheckFence({Term(3), Id('a')}).ok());
  const absl::Status stale = node->CheckFence({Term(2), Id('c')});
  EXPECT_EQ(stale.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(stale).code(), "STALE_TERM");
  EXPECT_EQ(ReasonOf(node->CheckFence({Term(4), Id('c')})).code(), "NO_COORDINATOR");
}

TEST(Election, FenceSurvivesARestart) {
  auto node = Make('b', GrantRecord{{Term(4), Id('c')}, milliseconds(2000)});
  EXPECT_EQ(ReasonOf(node->CheckFence({Term(3), Id('a')})).code(), "STALE_TERM");
}

TEST(Election, CoordinatorStopsBeforeAnyLeaseCanGoToAnother) {
  auto node = MakeCoordinator();  // asked at 1000 or 1001
  EXPECT_TRUE(node->Leading(At(2899)).has_value());
  EXPECT_FALSE(node->Leading(At(2901)).has_value())
      << "5 % before the granter's 2000 ms, without a tick";
  EXPECT_FALSE(node->HoldsLeaseOf(Id('b'), At(2901)));
  const auto effects = node->OnTick(At(2901));
  EXPECT_EQ(Pick<LostCoordination>(effects).size(), 1u);
}

TEST(Election, PausedCoordinatorIsNotRevivedByASmallerMembership) {
  auto node = MakeCoordinator();
  const auto effects = node->OnMembershipChanged({Id('a')}, {Id('a'), Id('b'), Id('c')}, At(9000));
  EXPECT_EQ(Pick<LostCoordination>(effects).size(), 1u);
  EXPECT_FALSE(node->Leading(At(9000)).has_value());
}

TEST(Election, PausedCoordinatorIsNotRevivedByALateAnswer) {
  auto node = MakeCoordinator();
  const auto asked = Pick<SendLeaseRequest>(node->OnTick(At(1600)));
  ASSERT_EQ(asked.size(), 2u);
  node->OnLeaseResponse(asked[0], Yes(), At(9000));
  EXPECT_FALSE(node->Leading(At(9000)).has_value());
}

TEST(Election, EntriesAreWantedUntilTheyCame) {
  auto node = MakeCoordinator();
  const std::set<NodeId> members = {Id('a'), Id('b'), Id('c'), Id('d')};
  const auto wants = [](const ElectionEffects& effects) {
    std::set<NodeId> nodes;
    for (const SendLeaseRequest& asked : Pick<SendLeaseRequest>(effects)) {
      if (asked.request.wants_entries()) nodes.insert(asked.to);
    }
    return nodes;
  };
  const auto first = node->OnMembershipChanged(members, members, At(1100));
  EXPECT_EQ(wants(first), std::set<NodeId>{Id('d')}) << "its answer is lost";
  const auto second = node->OnTick(At(1600));
  EXPECT_EQ(wants(second), std::set<NodeId>{Id('d')});
  for (const auto& asked : Pick<SendLeaseRequest>(second))
    node->OnLeaseResponse(asked, Yes(), At(1601));
  EXPECT_TRUE(wants(node->OnTick(At(2100))).empty());
}

TEST(Election, LeasesCountFromTheAskingNotTheAnswer) {
  auto node = MakeCoordinator();
  const auto asked = Pick<SendLeaseRequest>(node->OnTick(At(1600)));
  node->OnLeaseResponse(asked[0], Yes(), At(2800));
  EXPECT_TRUE(node->Leading(At(3499)).has_value());
  EXPECT_FALSE(node->Leading(At(3500)).has_value());
}

TEST(Election, SurvivorOfTwoGoesOnAlone) {
  auto node = Make('b', GrantRecord{{Term(1), Id('a')}, milliseconds(2000)});
  const std::set<NodeId> both = {Id('a'), Id('b')};
  node->OnMembershipChanged(both, both, At(0));
  for (int ms = 0; ms < 2900; ms += 50) {
    EXPECT_TRUE(Pick<BecameCoordinator>(node->OnTick(At(ms))).empty())
        << "one of two live is no majority";
  }
  node->OnMembershipChanged({Id('b')}, both, At(3000));
  bool leads = false;
  for (int ms = 3000; ms < 4000; ms += 50)
    leads |= !Pick<BecameCoordinator>(node->OnTick(At(ms))).empty();
  EXPECT_TRUE(leads);
  EXPECT_EQ(node->Leading(At(4000))->term, Term(2));
}

TEST(Election, QuorumModeStopsTheMinority) {
  ElectionOptions options;
  options.consistency = Consistency::kQuorum;
  auto node = Make('b', std::nullopt, options);
  node->OnMembershipChanged({Id('b')}, {Id('a'), Id('b')}, At(0));
  for (int ms = 0; ms < 20'000; ms += 50) node->OnTick(At(ms));
  EXPECT_FALSE(node->Leading(At(20'000)).has_value());
}

TEST(Election, WhenTwoHalvesMeetTheLowerPairStepsDown) {
  auto node = MakeCoordinator();
  const FencePair mine = *node->Leading(At(1100));
  const auto effects = node->OnLeaseRequest(Id('d'), Request(mine.term.value(), 'd'), At(1100));
  ASSERT_EQ(Pick<LostCoordination>(effects).size(), 1u);
  EXPECT_TRUE(Pick<AnswerLease>(effects).at(0).response.granted()) << "same term, higher id";
  size_t given_back = 0;
  for (const auto& sent : Pick<SendLeaseRequest>(effects))
    given_back += sent.request.lease_ms() == 0;
  EXPECT_EQ(given_back, 2u);
  EXPECT_EQ(node->Coordinator(At(1101))->coordinator, Id('d'));
}

TEST(Election, TheHigherPairStays) {
  auto node = Make('d');
  node->OnTick(At(1000));
  node->OnTick(At(1000));
  ASSERT_TRUE(node->Leading(At(1000)).has_value());
  const auto effects = node->OnLeaseRequest(Id('a'), Request(1, 'a'), At(1100));
  EXPECT_FALSE(Pick<AnswerLease>(effects).at(0).response.granted());
  EXPECT_TRUE(Pick<LostCoordination>(effects).empty());
}

TEST(Election, MeetingManyDoesNotCostTheMajorityAtOnce) {
  auto node = Make('d');
  node->OnTick(At(1000));
  ASSERT_TRUE(node->Leading(At(1000)).has_value());
  const std::set<NodeId> all = {Id('a'), Id('b'), Id('c'), Id('d')};
  const auto effects = node->OnMembershipChanged(all, all, At(2000));
  EXPECT_EQ(Pick<SendLeaseRequest>(effects).size(), 3u) << "asked at once";
  EXPECT_TRUE(node->Leading(At(4900)).has_value());
  node->OnTick(At(5001));
  EXPECT_FALSE(node->Leading(At(5001)).has_value()) << "but it can't go on without them for ever";
}

TEST(Election, AMemberThatGrantedAHigherPairEndsTheLeadership) {
  auto node = MakeCoordinator();
  const auto asked = Pick<SendLeaseRequest>(node->OnTick(At(1600)));
  const auto effects = node->OnLeaseResponse(asked[0], No(8, 'c'), At(1601));
  EXPECT_EQ(Pick<LostCoordination>(effects).size(), 1u);
  EXPECT_EQ(node->highest_term(), Term(8));
}

TEST(Election, LostRoundsAreGivenBackAndTriedAgainWithAHigherTerm) {
  auto node = Make('a');
  const std::set<NodeId> members = {Id('a'), Id('b'), Id('c')};
  node->OnMembershipChanged(members, members, At(0));
  const auto asking = Pick<SendLeaseRequest>(node->OnTick(At(1000)));
  ASSERT_EQ(asking.size(), 2u);
  ASSERT_TRUE(asking[0].request.pre_vote());
  const auto standing = Pick<SendLeaseRequest>(node->OnLeaseResponse(asking[0], Yes(), At(1001)));
  ASSERT_EQ(standing.size(), 2u);
  EXPECT_EQ(standing[0].request.fence().term(), 1u);
  const auto given_up = Pick<SendLeaseRequest>(node->OnTick(At(1401)));
  ASSERT_EQ(given_up.size(), 2u);
  EXPECT_EQ(given_up[0].request.lease_ms(), 0u);
  const auto late = node->OnLeaseResponse(standing[0], Yes(), At(1402));
  ASSERT_EQ(Pick<SendLeaseRequest>(late).size(), 1u) << "a lease that came too late goes back";
  EXPECT_EQ(Pick<SendLeaseRequest>(late)[0].request.lease_ms(), 0u);
  const auto again = Pick<SendLeaseRequest>(node->OnTick(At(1501)));
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].request.fence().term(), 2u);
}

TEST(Election, ANodeThatCannotWriteItsGrantTakesNoPart) {
  auto node = Make('b');
  node->OnLeaseRequest(Id('a'), Request(1, 'a'), At(0));
  node->OnPersistFailed(At(1));
  EXPECT_FALSE(Ask(*node, 'a', Request(1, 'a'), 10).granted());
  EXPECT_FALSE(node->CheckFence({Term(1), Id('a')}).ok());
  for (int ms = 0; ms < 10'000; ms += 50) EXPECT_TRUE(node->OnTick(At(ms)).empty());
}

TEST(Election, ResigningFreesTheSuccessorAtOnce) {
  auto node = MakeCoordinator();
  const auto effects = node->Resign(At(1100));
  EXPECT_EQ(Pick<LostCoordination>(effects).size(), 1u);
  EXPECT_EQ(Pick<SendLeaseRequest>(effects).size(), 2u);
  EXPECT_TRUE(Ask(*node, 'b', Request(2, 'b'), 1101).granted());
}

}  // namespace
}  // namespace macrame::agentd
