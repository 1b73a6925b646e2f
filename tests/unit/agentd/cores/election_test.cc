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

TEST(Election, RequestsForLeasesNameTheMachine) {
  auto node = Make('a');
  node->SetMachine("machine1");
  node->OnMembershipChanged({Id('b')}, {Id('b')}, At(0));
  std::vector<SendLeaseRequest> asked;
  for (int ms = 0; ms <= 5000 && asked.empty(); ms += 100) {
    asked = Pick<SendLeaseRequest>(node->OnTick(At(ms)));
  }
  ASSERT_FALSE(asked.empty());
  EXPECT_EQ(asked[0].request.fence().machine(), "machine1");
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

// The disk of a coordinator was copied, and each of two machines leads where a cable is cut.
TEST(Election, ACopyOfTheCoordinatorHasNoPartInItsLease) {
  const auto from = [](uint64_t term, const std::string& machine) {
    v1::LeaseRequest request = Request(term, 'a');
    request.mutable_fence()->set_machine(machine);
    return request;
  };
  auto node = Make('b');
  EXPECT_TRUE(Ask(*node, 'a', from(1, "here"), 0).granted());
  EXPECT_TRUE(Ask(*node, 'a', from(2, "here"), 100).granted()) << "it was elected anew";
  EXPECT_FALSE(Ask(*node, 'a', from(2, "there"), 200).granted());
  EXPECT_FALSE(Ask(*node, 'a', from(9, "there"), 2099).granted());
  EXPECT_TRUE(Ask(*node, 'a', from(9, "there"), 2101).granted());
  // It knows after a restart, too.
  node = Make('b', GrantRecord{{Term(9), Id('a')}, milliseconds(2000), "there"});
  EXPECT_FALSE(Ask(*node, 'a', from(10, "here"), 1999).granted());
  EXPECT_TRUE(Ask(*node, 'a', from(10, "here"), 2000).granted());
}

// Another machine had its place for a while.
TEST(Election, WhoGoesOnAsTheNodeStandsAgain) {
  auto node = Make('a');
  node->OnMembershipChanged({}, {}, At(0));
  node->Resign(At(0));
  for (int ms = 0; ms <= 10'000; ms += 50) node->OnTick(At(ms));
  EXPECT_FALSE(node->Leading(At(10'000)).has_value());
  node->SkipTerms();
  for (int ms = 10'000; ms <= 20'000; ms += 50) node->OnTick(At(ms));
  EXPECT_TRUE(node->Leading(At(20'000)).has_value());
}

TEST(Election, ALeaseGivenBackIsFreeAtOnce) {
  auto node = Make('b');
  EXPECT_TRUE(Ask(*node, 'a', Request(1, 'a'), 0).granted());
  EXPECT_TRUE(Ask(*node, 'a', Request(1, 'a', 0), 100).granted());
  EXPECT_TRUE(Ask(*node, 'c', Request(2, 'c'), 101).granted());
}

TEST(Election, TheLeaseOfACoordinatorThatIsGoneIsFree) {
  auto node = Make('c');
  node->OnMembershipChanged({Id('a'), Id('b')}, {Id('a'), Id('b')}, At(0));
  Ask(*node, 'a', Request(3, 'a'), 0);
  EXPECT_TRUE(node->OnGone(Id('b'), At(400)).empty()) << "another node's end frees nothing";
  EXPECT_FALSE(Ask(*node, 'b', Request(4, 'b'), 400).granted());
  const auto effects = node->OnGone(Id('a'), At(800));
  ASSERT_EQ(Pick<ObeysChanged>(effects).size(), 1u);
  EXPECT_FALSE(Pick<ObeysChanged>(effects)[0].coordinator.has_value());
  EXPECT_TRUE(Ask(*node, 'b', Request(4, 'b'), 801).granted());
  // What of the old one was still on its way is refused, and its orders too.
  EXPECT_FALSE(Ask(*node, 'a', Request(3, 'a'), 802).granted());
  EXPECT_FALSE(node->CheckFence({Term(3), Id('a')}).ok());
  EXPECT_TRUE(node->OnGone(Id('a'), At(803)).empty());
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

TEST(Election, AFreshLeaseIsNotAskedForAndALateOneOften) {
  ElectionOptions options;
  options.renew_interval = milliseconds(250);
  options.fresh_for = milliseconds(900);
  auto node = MakeCoordinator(options);
  // Leases asked for at 1001: b's answers get lost from now on, c's come at once.
  std::map<char, std::vector<int>> asked;
  for (int ms = 1010; ms < 2900; ms += 10) {
    for (const SendLeaseRequest& ask : Pick<SendLeaseRequest>(node->OnTick(At(ms)))) {
      asked[ask.to.value()[0]].push_back(ms);
      if (ask.to == Id('c')) node->OnLeaseResponse(ask, Yes(), At(ms));
    }
    EXPECT_TRUE(node->Leading(At(ms)).has_value());
    EXPECT_GE(node->NextDue(), At(ms));
  }
  EXPECT_EQ(asked['c'].size(), 1u);
  EXPECT_GE(asked['b'].size(), 4u) << "before it runs out";
  EXPECT_GE(asked['b'].front(), 1901);
}

TEST(Election, RoundsThatAreLostGiveTheNextOneMoreTime) {
  auto node = Make('a');
  const std::set<NodeId> members = {Id('a'), Id('b'), Id('c')};
  node->OnMembershipChanged(members, members, At(0));
  std::vector<int> begun;
  for (int ms = 0; ms < 20'000; ms += 10) {
    for (const SendLeaseRequest& ask : Pick<SendLeaseRequest>(node->OnTick(At(ms)))) {
      if (ask.request.pre_vote() && ask.to == Id('b')) begun.push_back(ms);
    }
  }
  ASSERT_GE(begun.size(), 6u);
  EXPECT_LE(begun[1] - begun[0], 520);
  EXPECT_LE(begun[2] - begun[1], 520);
  EXPECT_GE(begun[3] - begun[2], 800);
  EXPECT_GE(begun[5] - begun[4], 1600);
  EXPECT_LE(begun[5] - begun[4], 2000);
}

TEST(Election, NobodyStandsWhileOthersAreStillBeingFound) {
  auto node = Make('a');
  std::set<NodeId> members = {Id('a'), Id('b'), Id('c')};
  int ms = 0;
  char next = 'd';
  const auto stands = [&] { return !Pick<SendLeaseRequest>(node->OnTick(At(ms))).empty(); };
  for (; ms <= 2000; ms += 10) {
    if (ms % 200 == 0) {
      members.insert(Id(next++));
      node->OnMembershipChanged(members, members, At(ms));
    }
    ASSERT_FALSE(stands()) << ms;
  }
  for (; ms < 2300; ms += 10) ASSERT_FALSE(stands()) << ms;
  EXPECT_TRUE(stands());
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
  v1::LeaseRequest request = Request(mine.term.value(), 'd');
  request.set_electors(3);  // as many
  const auto effects = node->OnLeaseRequest(Id('d'), request, At(1100));
  ASSERT_EQ(Pick<LostCoordination>(effects).size(), 1u);
  EXPECT_TRUE(Pick<AnswerLease>(effects).at(0).response.granted()) << "same term, higher id";
  size_t given_back = 0;
  for (const auto& sent : Pick<SendLeaseRequest>(effects))
    given_back += sent.request.lease_ms() == 0;
  EXPECT_EQ(given_back, 2u);
  EXPECT_EQ(node->Coordinator(At(1101))->coordinator, Id('d'));
}

TEST(Election, TheLargerHalfKeepsTheLeadAndRaisesItsTerm) {
  auto node = MakeCoordinator();  // of three
  const FencePair mine = *node->Leading(At(1100));
  v1::LeaseRequest request = Request(mine.term.value() + 5, 'd');
  request.set_electors(2);
  auto effects = node->OnLeaseRequest(Id('d'), request, At(1100));
  EXPECT_EQ(Pick<LostCoordination>(effects).size(), 1u);
  ASSERT_EQ(Pick<PersistGrant>(effects).size(), 1u);
  const FencePair raised = Pick<PersistGrant>(effects).at(0).record.granted;
  EXPECT_EQ(raised.coordinator, mine.coordinator);
  EXPECT_EQ(raised.term, Term(mine.term.value() + 6));
  const v1::LeaseResponse answer = Pick<AnswerLease>(effects).at(0).response;
  EXPECT_FALSE(answer.granted());
  EXPECT_EQ(FromProto(answer.highest()), raised);
  EXPECT_EQ(answer.electors(), 3u) << "the other must see that it is the smaller half";
  const auto asked = Pick<SendLeaseRequest>(effects);
  ASSERT_FALSE(asked.empty());
  v1::LeaseResponse granted;
  granted.set_granted(true);
  *granted.mutable_highest() = ToProto(raised);
  bool leads = false;
  for (const SendLeaseRequest& one : asked) {
    leads |= !Pick<BecameCoordinator>(node->OnLeaseResponse(one, granted, At(1110))).empty();
  }
  EXPECT_TRUE(leads);
  EXPECT_EQ(*node->Leading(At(1111)), raised);
}

TEST(Election, TheSmallerHalfStepsDownAtTheLargerOnesAnswer) {
  auto node = MakeCoordinator();  // a, of three
  const std::set<NodeId> four = {Id('a'), Id('b'), Id('c'), Id('d')};
  node->OnMembershipChanged(four, four, At(1100));
  const FencePair mine = *node->Leading(At(1100));
  SendLeaseRequest to_d;
  to_d.to = Id('d');
  *to_d.request.mutable_fence() = ToProto(mine);
  to_d.request.set_lease_ms(2000);
  to_d.sent_at = At(1101);
  v1::LeaseResponse answer;  // d leads a half of five, in an older term
  answer.mutable_highest()->set_term(mine.term.value() - 1);
  answer.mutable_highest()->set_coordinator_id(Id('d').value());
  answer.set_electors(5);
  EXPECT_EQ(Pick<LostCoordination>(node->OnLeaseResponse(to_d, answer, At(1102))).size(), 1u);
}

TEST(Election, LessThanHalfOfTheListElectsNobodyForAWhile) {
  auto node = Make('b', GrantRecord{{Term(1), Id('a')}, milliseconds(2000)});
  const std::set<NodeId> five = {Id('a'), Id('b'), Id('c'), Id('d'), Id('e')};
  node->OnMemberList(five, At(0));
  node->OnMembershipChanged({Id('b'), Id('c')}, five, At(0));
  for (int ms = 0; ms < 29'900; ms += 50) node->OnTick(At(ms));
  EXPECT_EQ(node->highest_term(), Term(1)) << "it raises no term";
  ASSERT_TRUE(node->InMinority(At(20'000)).has_value());
  EXPECT_EQ(node->InMinority(At(20'000))->live, 2u);
  EXPECT_EQ(node->InMinority(At(20'000))->listed, 5u);
  EXPECT_EQ(*node->InMinority(At(20'000))->until, At(30'000));
  bool asks = false;
  for (int ms = 29'900; ms < 31'000; ms += 50) {
    asks |= !Pick<SendLeaseRequest>(node->OnTick(At(ms))).empty();
  }
  EXPECT_TRUE(asks);
}

TEST(Election, HalfOfTheListMayElect) {
  auto node = Make('b');
  const std::set<NodeId> four = {Id('a'), Id('b'), Id('c'), Id('d')};
  node->OnMemberList(four, At(0));
  node->OnMembershipChanged({Id('b'), Id('c')}, four, At(0));
  bool asks = false;
  for (int ms = 0; ms < 2000; ms += 50) {
    asks |= !Pick<SendLeaseRequest>(node->OnTick(At(ms))).empty();
  }
  EXPECT_TRUE(asks);
}

TEST(Election, AQuorumIsCountedOfTheListAlsoAfterARestart) {
  ElectionOptions options;
  options.consistency = Consistency::kQuorum;
  auto node = Make('b', std::nullopt, options);
  node->OnMemberList({Id('a'), Id('b'), Id('c')}, At(0));
  node->OnMembershipChanged({Id('b')}, {Id('b')}, At(0));  // it has heard of nobody yet
  for (int ms = 0; ms < 100'000; ms += 50) node->OnTick(At(ms));
  EXPECT_FALSE(node->Leading(At(100'000)).has_value());
  EXPECT_TRUE(node->InMinority(At(100'000)).has_value());
  // A person forgets the two others.
  node->OnMemberList({Id('b')}, At(100'000));
  bool leads = false;
  for (int ms = 100'000; ms < 102'000; ms += 50) {
    leads |= !Pick<BecameCoordinator>(node->OnTick(At(ms))).empty();
  }
  EXPECT_TRUE(leads);
}

TEST(Election, WithoutAListAQuorumTakesAsManyAsAreToWriteIt) {
  ElectionOptions options;
  options.consistency = Consistency::kQuorum;
  options.first_members = 3;
  auto node = Make('b', std::nullopt, options);
  node->OnMembershipChanged({Id('a'), Id('b')}, {Id('a'), Id('b')}, At(0));
  for (int ms = 0; ms < 20'000; ms += 50) {
    for (const auto& asked : Pick<SendLeaseRequest>(node->OnTick(At(ms)))) {
      v1::LeaseResponse yes;
      yes.set_granted(true);
      node->OnLeaseResponse(asked, yes, At(ms));
    }
  }
  EXPECT_FALSE(node->Leading(At(20'000)).has_value());
}

TEST(Election, AFullDiskEndsALeadAndItsEndMakesItPossibleAgain) {
  auto node = MakeCoordinator();
  v1::Reason full;
  full.set_code("STATE_DISK_FULL");
  auto effects = node->OnDiskTrouble(full, At(1200));
  ASSERT_EQ(Pick<LostCoordination>(effects).size(), 1u);
  EXPECT_EQ(Pick<LostCoordination>(effects).at(0).why.code(), "STATE_DISK_FULL");
  for (int ms = 1200; ms < 20'000; ms += 50) {
    EXPECT_TRUE(Pick<SendLeaseRequest>(node->OnTick(At(ms))).empty()) << "it stands";
  }
  node->OnDiskTrouble(std::nullopt, At(20'000));
  bool stands = false;
  for (int ms = 20'000; ms < 22'000; ms += 50) {
    stands |= !Pick<SendLeaseRequest>(node->OnTick(At(ms))).empty();
  }
  EXPECT_TRUE(stands);
}

TEST(Election, AGrantThatIsWrittenLateCounts) {
  auto node = Make('b');
  node->OnLeaseRequest(Id('a'), Request(7, 'a'), At(100));
  node->OnPersistFailed(At(100));
  EXPECT_FALSE(node->CheckFence({Term(7), Id('a')}).ok());
  ASSERT_TRUE(node->Unsaved().has_value());
  EXPECT_EQ(node->Unsaved()->granted, (FencePair{Term(7), Id('a')}));
  node->OnPersisted(At(5000));
  EXPECT_FALSE(node->Unsaved().has_value());
  EXPECT_TRUE(node->CheckFence({Term(7), Id('a')}).ok());
  // To another it lends itself only when that lease, which may be relied on, is over.
  const auto early = node->OnLeaseRequest(Id('c'), Request(8, 'c'), At(5100));
  EXPECT_FALSE(Pick<AnswerLease>(early).at(0).response.granted());
  const auto late = node->OnLeaseRequest(Id('c'), Request(8, 'c'), At(7100));
  EXPECT_TRUE(Pick<AnswerLease>(late).at(0).response.granted());
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
  v1::LeaseResponse no = No(8, 'c');
  no.set_electors(3);
  const auto effects = node->OnLeaseResponse(asked[0], no, At(1601));
  EXPECT_EQ(Pick<LostCoordination>(effects).size(), 1u);
  EXPECT_EQ(node->highest_term(), Term(8));
}

TEST(Election, AHigherPairThatNobodyObeysIsOutdone) {
  auto node = MakeCoordinator();
  const auto asked = Pick<SendLeaseRequest>(node->OnTick(At(1600)));
  const auto effects = node->OnLeaseResponse(asked[0], No(8, 'c'), At(1601));
  ASSERT_EQ(Pick<PersistGrant>(effects).size(), 1u);
  EXPECT_EQ(Pick<PersistGrant>(effects).at(0).record.granted, (FencePair{Term(9), Id('a')}));
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
  // It lends itself out and stands no more, however long nobody else does.
  for (int ms = 1150; ms < 20'000; ms += 50) {
    EXPECT_TRUE(Pick<SendLeaseRequest>(node->OnTick(At(ms))).empty()) << ms;
  }
  EXPECT_TRUE(Ask(*node, 'c', Request(3, 'c'), 20'000).granted());
}

}  // namespace
}  // namespace macrame::agentd
