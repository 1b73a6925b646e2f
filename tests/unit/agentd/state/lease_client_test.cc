#include "agentd/state/lease_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "agentd/base/rpc_methods.h"
#include "agentd/cores/member_list.h"
#include "tests/unit/agentd/lone_node.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using tests::IdOf;

class LeaseClientTest : public ::testing::Test {
 protected:
  int Told(const std::string& what) const {
    return static_cast<int>(std::count(node_.told.begin(), node_.told.end(), what));
  }
  // What went out by itself with this path, and is open.
  std::vector<std::shared_ptr<tests::PeerCall>> LeaseCalls() const {
    tests::FakePeers::Calls calls;
    for (const auto& call : node_.peers.Open()) {
      if (call->path == kRequestLease.path) calls.push_back(call);
    }
    return calls;
  }
  static v1::LeaseResponse Granted() {
    v1::LeaseResponse response;
    response.set_granted(true);
    return response;
  }
  // Another member gives its votes and its leases as often as it is asked.
  void PassWithVotes(Duration span) {
    for (Duration passed{}; passed < span; passed += milliseconds(50)) {
      node_.Pass(milliseconds(50));
      for (const auto& call : LeaseCalls()) call->Answer(Granted());
      for (auto& one : std::exchange(node_.asked, {})) one.done(Granted());
    }
  }

  tests::LoneNode node_;
};

TEST_F(LeaseClientTest, WhoIsAloneLeadsAfterAMomentAndItsGrantIsOnDiskFirst) {
  node_.Pass(milliseconds(500));
  EXPECT_EQ(Told("leads"), 0) << "others may still be found";
  node_.Pass(seconds(8));
  EXPECT_EQ(Told("leads"), 1);
  EXPECT_TRUE(node_.Leads());
  ASSERT_TRUE(node_.store.grant.has_value());
  EXPECT_EQ(node_.store.grant->granted.coordinator, node_.self);
  EXPECT_EQ(node_.store.grant->granted, *node_.election.Leading(node_.dispatcher.Now()));
}

TEST_F(LeaseClientTest, ALeaseIsOnDiskWhenItsAnswerComes) {
  const auto answer = node_.GrantTo(IdOf('b'), 5);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(answer->granted());
  ASSERT_TRUE(node_.store.grant.has_value());
  EXPECT_EQ(node_.store.grant->granted.coordinator, IdOf('b'));
  EXPECT_EQ(Told("obeys"), 1);
}

TEST_F(LeaseClientTest, WhereTheDiskIsFullNobodyGetsALeaseAndIsToldWhy) {
  node_.store.is_full = true;
  const auto refused = node_.GrantTo(IdOf('b'), 5);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(ReasonOf(refused.status()).code(), reasons::kStateDiskFull);
  EXPECT_FALSE(node_.election.CheckFence({Term(5), IdOf('b')}).ok()) << "its orders are not obeyed";
  EXPECT_FALSE(node_.GrantTo(IdOf('c'), 6).ok() && node_.GrantTo(IdOf('c'), 6)->granted());
  node_.Pass(seconds(10));
  EXPECT_EQ(Told("leads"), 0) << "rather no vote than one that is forgotten";

  node_.store.is_full = false;
  node_.Pass(seconds(3));
  const auto granted = node_.GrantTo(IdOf('b'), 7);
  ASSERT_TRUE(granted.ok()) << granted.status();
  EXPECT_TRUE(granted->granted());
}

TEST_F(LeaseClientTest, ACoordinatorThatCanWriteNothingResignsAndLeadsAgainAfterwards) {
  node_.Pass(seconds(8));
  ASSERT_TRUE(node_.Leads());
  node_.store.is_full = true;
  node_.replicator.Write("k", "v", [](const absl::Status&) {});
  node_.Pass(milliseconds(500));
  EXPECT_TRUE(node_.Leads()) << "a moment is no trouble";
  node_.Pass(seconds(3));
  EXPECT_FALSE(node_.Leads());
  EXPECT_EQ(Told("leads no more"), 1);
  node_.store.is_full = false;
  node_.Pass(seconds(15));
  EXPECT_TRUE(node_.Leads());
  EXPECT_EQ(Told("leads"), 2);
  EXPECT_TRUE(node_.store.saved.contains("k")) << "what the disk refused is written after all";
}

// A pre-vote leaves no trace and goes by itself; a lease is asked for in a heartbeat.
TEST_F(LeaseClientTest, VotesAreAskedForApartAndLeasesInHeartbeats) {
  node_.Meet(IdOf('b'));
  while (LeaseCalls().empty() && node_.told.empty()) node_.Pass(milliseconds(50));
  ASSERT_THAT(LeaseCalls(), Not(IsEmpty()));
  EXPECT_TRUE(LeaseCalls().front()->As<v1::LeaseRequest>().pre_vote());
  EXPECT_THAT(node_.asked, IsEmpty());
  LeaseCalls().front()->Answer(Granted());
  EXPECT_THAT(node_.told, Contains("reached b"));
  node_.Pass(milliseconds(50));
  ASSERT_THAT(node_.asked, Not(IsEmpty()));
  EXPECT_EQ(node_.asked.front().node, IdOf('b'));
  EXPECT_FALSE(node_.asked.front().request.pre_vote());
  EXPECT_GT(node_.asked.front().request.lease_ms(), 0u);
  EXPECT_FALSE(node_.Leads());
  node_.asked.front().done(Granted());
  EXPECT_TRUE(node_.Leads());
}

TEST_F(LeaseClientTest, AnAgentWhoseHeartbeatsHaveNoLeasesIsAskedApart) {
  node_.Meet(IdOf('b'));
  while (node_.asked.empty()) {
    node_.Pass(milliseconds(50));
    for (const auto& call : LeaseCalls()) call->Answer(Granted());
  }
  auto asked = std::exchange(node_.asked, {});
  const size_t before = node_.peers.calls().size();
  asked.front().done(absl::UnimplementedError("no leases here"));
  ASSERT_GT(node_.peers.calls().size(), before);
  const auto request = node_.peers.last().As<v1::LeaseRequest>();
  EXPECT_EQ(request.SerializeAsString(), asked.front().request.SerializeAsString());
  node_.peers.last().Answer(Granted());
  EXPECT_TRUE(node_.Leads());
}

// An error that a node gives itself says that it is there.
TEST_F(LeaseClientTest, WhoAnswersWithARefusalWasReachedAndWhoIsSilentWasNot) {
  const absl::Status own = ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNoCoordinator,
                                        "this node is not sure of its place");
  const std::vector<std::pair<absl::Status, std::string>> ends = {
      {absl::UnavailableError("connection refused"), "missed b"},
      {absl::DeadlineExceededError("no answer"), "missed b"},
      {own, "reached b"},
      {absl::PermissionDeniedError("not a member"), "reached b"},
      {absl::FailedPreconditionError("must send a heartbeat first"), "reached b"}};
  for (const auto& [status, words] : ends) {
    tests::LoneNode node;
    node.Meet(IdOf('b'));
    while (node.peers.Open().empty()) node.Pass(milliseconds(50));
    node.peers.last().End(status);
    EXPECT_THAT(node.told, Contains(words)) << status;
    EXPECT_THAT(node.told, Not(Contains(words == "missed b" ? "reached b" : "missed b"))) << status;
    EXPECT_FALSE(node.Leads());
  }
}

// A successor has all that one of its electors had on disk.
TEST_F(LeaseClientTest, WhatAnElectorHoldsIsTakenBeforeItsLeaseCounts) {
  node_.Meet(IdOf('b'));
  while (node_.asked.empty()) {
    node_.Pass(milliseconds(50));
    for (const auto& call : LeaseCalls()) call->Answer(Granted());
  }
  EXPECT_TRUE(node_.asked.front().request.wants_entries());
  v1::LeaseResponse response = Granted();
  StateTable theirs(IdOf('b'));
  theirs.BeginLeading({Term(1), IdOf('b')});
  *response.add_entries() = theirs.Propose("model/m", "wanted")->change.put.front();
  node_.asked.front().done(response);
  ASSERT_TRUE(node_.Leads());
  ASSERT_NE(node_.replicator.table().Find("model/m"), nullptr);
  EXPECT_EQ(node_.replicator.table().Find("model/m")->value(), "wanted");
  EXPECT_TRUE(node_.store.saved.contains("model/m"));
}

TEST_F(LeaseClientTest, ALeaseWhoseEntriesCantBeKeptDoesNotCount) {
  node_.Meet(IdOf('b'));
  while (node_.asked.empty()) {
    node_.Pass(milliseconds(50));
    for (const auto& call : LeaseCalls()) call->Answer(Granted());
  }
  v1::LeaseResponse response = Granted();
  StateTable theirs(IdOf('b'));
  theirs.BeginLeading({Term(1), IdOf('b')});
  *response.add_entries() = theirs.Propose("model/m", "wanted")->change.put.front();
  node_.store.is_full = true;
  node_.asked.front().done(response);
  EXPECT_FALSE(node_.Leads());
  EXPECT_EQ(Told("leads"), 0);
}

TEST_F(LeaseClientTest, WhoeverIsGrantedALeaseIsGivenTheWholeStateWhenItAsks) {
  node_.Pass(seconds(8));
  ASSERT_TRUE(node_.Leads());
  node_.replicator.Write("model/m", "wanted", [](const absl::Status&) {});
  node_.leases.Resign();
  v1::LeaseRequest request;
  *request.mutable_fence() = ToProto({Term(9), IdOf('b')});
  request.set_lease_ms(2000);
  for (const bool wants : {false, true}) {
    request.set_wants_entries(wants);
    absl::StatusOr<v1::LeaseResponse> answer = absl::UnknownError("none");
    node_.leases.OnLeaseRequest(IdOf('b'), request,
                                [&](absl::StatusOr<v1::LeaseResponse> one) { answer = one; });
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(answer->granted());
    EXPECT_THAT(answer->entries(), SizeIs(wants ? 1 : 0));
  }
}

TEST_F(LeaseClientTest, WhoResignsGivesLeasesBackAndStandsNoMore) {
  node_.Meet(IdOf('b'));
  PassWithVotes(seconds(6));
  ASSERT_TRUE(node_.Leads());
  node_.leases.Resign();
  EXPECT_FALSE(node_.Leads());
  EXPECT_EQ(Told("leads no more"), 1);
  const auto calls = LeaseCalls();
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_EQ(calls.front()->node, IdOf('b'));
  EXPECT_EQ(calls.front()->As<v1::LeaseRequest>().lease_ms(), 0u);
  PassWithVotes(seconds(20));
  EXPECT_EQ(Told("leads"), 1);
  EXPECT_TRUE(node_.GrantTo(IdOf('b'), 99)->granted()) << "it goes on granting";
}

// The other is dead: who is left goes on alone, once it is not counted any more.
TEST_F(LeaseClientTest, WithoutTheOthersLeaseTheLeadEndsInTime) {
  node_.Meet(IdOf('b'));
  PassWithVotes(seconds(6));
  ASSERT_TRUE(node_.Leads());
  node_.asked.clear();
  for (Duration passed{}; passed < milliseconds(2500); passed += milliseconds(50)) {
    node_.dispatcher.AdvanceBy(milliseconds(50));
    node_.leases.Tick();
  }
  EXPECT_FALSE(node_.Leads());
  EXPECT_EQ(Told("leads no more"), 1);
}

}  // namespace
}  // namespace macrame::agentd
