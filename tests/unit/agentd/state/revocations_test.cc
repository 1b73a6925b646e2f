#include "agentd/state/revocations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "agentd/base/rpc_methods.h"
#include "tests/unit/agentd/lone_node.h"
#include "transport/trust.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using tests::IdOf;

class RevocationsTest : public ::testing::Test {
 protected:
  RevocationsTest() { node_.writes_members = true; }

  static const transport::ClusterSecret& Secret() {
    static const transport::ClusterSecret secret = *transport::CreateClusterSecret("home");
    return secret;
  }
  static v1::Revocation Of(const NodeId& node, const transport::ClusterSecret& secret = Secret()) {
    v1::Revocation revocation;
    revocation.set_node_id(node.value());
    revocation.set_revoked_unix_ms(1'790'000'000'123);
    revocation.set_hostname("host");
    revocation.set_signature(
        *transport::SignRevocation(secret, node, revocation.revoked_unix_ms()));
    return revocation;
  }
  static NodeId Numbered(int number) { return NodeId(absl::StrFormat("%032x", number)); }
  static v1::RevocationList List(const std::vector<v1::Revocation>& revocations) {
    v1::RevocationList list;
    for (const v1::Revocation& one : revocations) *list.add_revocations() = one;
    return list;
  }
  void Trust() {
    revocations_.SetAuthority(Secret().authority_certificate_pem, Secret().cluster_id);
  }
  // What is told of goes by, as in an agent: the members' table and the channels drop them.
  void Pass(Duration span) {
    for (Duration passed{}; passed < span; passed += milliseconds(50)) {
      node_.Pass(milliseconds(50));
      revocations_.TakeState();
      node_.member_writer.Take();
      revocations_.Tick();
      node_.dispatcher.RunPosted();
    }
  }
  v1::RevocationList Written() const {
    v1::RevocationList list;
    const v1::StateEntry* entry = node_.replicator.table().Find(kRevokedKey);
    if (entry != nullptr) list.ParseFromString(entry->value());
    return list;
  }
  v1::RevocationList Saved() const {
    v1::RevocationList list;
    list.ParseFromString(node_.store.revocations);
    return list;
  }
  tests::FakePeers::Calls Told() const {
    tests::FakePeers::Calls told;
    for (const auto& call : node_.peers.calls()) {
      if (call->path == kTakeRevocations.path) told.push_back(call);
    }
    return told;
  }

  tests::LoneNode node_;
  std::vector<std::set<NodeId>> changes_;
  Revocations revocations_{{node_.dispatcher, node_.election, node_.store, node_.replicator,
                            node_.member_writer, node_.members, node_.channels, node_.self,
                            [this](const std::set<NodeId>& nodes) { changes_.push_back(nodes); }}};
};

TEST_F(RevocationsTest, WhatTheAuthoritySignedIsTakenKeptAndToldOnce) {
  Trust();
  revocations_.Take(List({Of(IdOf('b'))}));
  EXPECT_TRUE(revocations_.Has(IdOf('b')));
  EXPECT_THAT(Saved().revocations(), SizeIs(1));
  EXPECT_THAT(changes_, IsEmpty()) << "this may be the answer of a call to it";
  node_.dispatcher.RunPosted();
  EXPECT_THAT(changes_, ElementsAre(std::set<NodeId>{IdOf('b')}));
  revocations_.Take(List({Of(IdOf('b'))}));
  node_.dispatcher.RunPosted();
  EXPECT_THAT(changes_, SizeIs(1)) << "no news";
  revocations_.Take(List({Of(IdOf('c')), Of(IdOf('d'))}));
  node_.dispatcher.RunPosted();
  ASSERT_THAT(changes_, SizeIs(2)) << "one word for both";
  EXPECT_THAT(changes_.back(), SizeIs(3));
}

TEST_F(RevocationsTest, NothingIsBelievedThatTheAuthorityDidNotSign) {
  Trust();
  std::vector<v1::Revocation> forged;
  forged.push_back(Of(IdOf('b'), *transport::CreateClusterSecret("home")));
  forged.push_back(Of(IdOf('b')));
  forged.back().set_node_id(IdOf('c').value());
  forged.push_back(Of(IdOf('b')));
  forged.back().set_revoked_unix_ms(forged.back().revoked_unix_ms() + 1);
  forged.push_back(Of(IdOf('b')));
  forged.back().set_signature("");
  forged.push_back(Of(IdOf('b')));
  forged.back().mutable_signature()->append(1, '\0');
  forged.push_back(Of(IdOf('b')));
  forged.back().set_signature(std::string(4096, 'x'));
  for (const std::string& id : {std::string(), std::string("../../etc"), std::string(32, 'Z'),
                                std::string(31, 'b'), std::string(1 << 20, 'b')}) {
    forged.push_back(Of(NodeId(id)));
  }
  for (const v1::Revocation& one : forged) {
    revocations_.Take(List({one}));
    EXPECT_FALSE(revocations_.Has(NodeId(one.node_id()))) << one.ShortDebugString().substr(0, 200);
  }
  node_.dispatcher.RunPosted();
  EXPECT_THAT(changes_, IsEmpty());
  EXPECT_EQ(node_.store.revocations, "");
  // Among forged ones a true one counts all the same.
  forged.push_back(Of(IdOf('e')));
  revocations_.Take(List(forged));
  EXPECT_TRUE(revocations_.Has(IdOf('e')));
  EXPECT_THAT(Saved().revocations(), SizeIs(1));
}

TEST_F(RevocationsTest, BeforeItIsKnownWhoseSignaturesCountNobodyIsRevoked) {
  revocations_.Take(List({Of(IdOf('b'))}));
  EXPECT_FALSE(revocations_.Has(IdOf('b')));
  Trust();
  EXPECT_FALSE(revocations_.Has(IdOf('b')));
  revocations_.Take(List({Of(IdOf('b'))}));
  EXPECT_TRUE(revocations_.Has(IdOf('b')));
}

TEST_F(RevocationsTest, WhatWasOnceHeardStaysWhateverOtherListsSay) {
  Trust();
  revocations_.Take(List({Of(IdOf('b')), Of(IdOf('c'))}));
  revocations_.Take(List({}));
  revocations_.Take(List({Of(IdOf('d'))}));
  for (const char node : std::string("bcd")) EXPECT_TRUE(revocations_.Has(IdOf(node))) << node;
  ASSERT_NE(revocations_.Find(IdOf('b')), nullptr);
  EXPECT_EQ(revocations_.Find(IdOf('b'))->hostname(), "host");
  EXPECT_EQ(revocations_.Find(IdOf('e')), nullptr);
}

TEST_F(RevocationsTest, AfterARestartTheDiskTellsAndADamagedOneTellsNothing) {
  for (const bool is_damaged : {false, true}) {
    node_.store.revocations = List({Of(IdOf('b'))}).SerializeAsString();
    if (is_damaged) node_.store.revocations = "\xff\xff\xff";
    Revocations after({node_.dispatcher, node_.election, node_.store, node_.replicator,
                       node_.member_writer, node_.members, node_.channels, node_.self,
                       [](const std::set<NodeId>&) {}});
    EXPECT_FALSE(after.Has(IdOf('b')));
    after.SetAuthority(Secret().authority_certificate_pem, Secret().cluster_id);
    EXPECT_EQ(after.Has(IdOf('b')), !is_damaged);
    node_.dispatcher.RunPosted();
  }
}

// A node whose disk is full obeys all the same.
TEST_F(RevocationsTest, WhatIsOnNoDiskCountsAsLongAsTheAgentRuns) {
  Trust();
  node_.store.is_full = true;
  revocations_.Take(List({Of(IdOf('b'))}));
  node_.dispatcher.RunPosted();
  EXPECT_TRUE(revocations_.Has(IdOf('b')));
  EXPECT_THAT(changes_, SizeIs(1));
  node_.store.is_full = false;
  revocations_.Take(List({Of(IdOf('c'))}));
  EXPECT_THAT(Saved().revocations(), SizeIs(2)) << "the next time both are written";
}

TEST_F(RevocationsTest, ListsAndNamesAreBounded) {
  Trust();
  v1::Revocation named = Of(IdOf('b'));
  named.set_hostname(std::string(4096, 'h'));
  revocations_.Take(List({named}));
  ASSERT_TRUE(revocations_.Has(IdOf('b')));
  EXPECT_EQ(revocations_.Find(IdOf('b'))->hostname(), "");
  std::vector<v1::Revocation> many;
  for (int number = 1; number <= static_cast<int>(kRevokedMax) + 20; ++number) {
    many.push_back(Of(Numbered(number)));
  }
  for (size_t from = 0; from < many.size(); from += 100) {
    EXPECT_EQ(revocations_.full(), false) << from;
    revocations_.Take(List({many.begin() + static_cast<long>(from),
                            many.begin() + static_cast<long>(std::min(from + 100, many.size()))}));
  }
  EXPECT_TRUE(revocations_.full());
  EXPECT_THAT(Saved().revocations(), SizeIs(kRevokedMax));
  EXPECT_TRUE(revocations_.Has(IdOf('b'))) << "who is out stays out";
}

TEST_F(RevocationsTest, TheRestOfAListThatIsTooLongIsNotLookedAt) {
  Trust();
  std::vector<v1::Revocation> flood(kRevokedMax,
                                    Of(IdOf('b'), *transport::CreateClusterSecret("x")));
  flood.push_back(Of(IdOf('c')));
  revocations_.Take(List(flood));
  EXPECT_FALSE(revocations_.Has(IdOf('c')));
}

// --- the desired state ---------------------------------------------------------------------------

TEST_F(RevocationsTest, TheCoordinatorWritesDownWhatTheStateLacks) {
  Trust();
  Pass(seconds(8));
  ASSERT_TRUE(node_.Leads());
  EXPECT_THAT(Written().revocations(), IsEmpty());
  revocations_.Take(List({Of(IdOf('b'))}));
  Pass(seconds(2));
  ASSERT_THAT(Written().revocations(), SizeIs(1));
  EXPECT_EQ(Written().revocations(0).node_id(), IdOf('b').value());
  const auto version = VersionOf(*node_.replicator.table().Find(kRevokedKey));
  Pass(seconds(10));
  EXPECT_EQ(VersionOf(*node_.replicator.table().Find(kRevokedKey)), version) << "once is enough";
}

TEST_F(RevocationsTest, WhatStandsInTheStateIsTakenFromIt) {
  Trust();
  Pass(seconds(8));
  ASSERT_TRUE(node_.Leads());
  node_.replicator.Write(std::string(kRevokedKey), List({Of(IdOf('b'))}).SerializeAsString(),
                         [](const absl::Status&) {});
  Pass(milliseconds(100));
  EXPECT_TRUE(revocations_.Has(IdOf('b')));
  EXPECT_THAT(Saved().revocations(), SizeIs(1));
}

// Whoever could write a long list of forged ones could else hide the true ones behind them.
TEST_F(RevocationsTest, ForgedOnesInTheStateAreWrittenAway) {
  Trust();
  Pass(seconds(8));
  revocations_.Take(List({Of(IdOf('b'))}));
  Pass(seconds(2));
  const auto other_cluster = *transport::CreateClusterSecret("x");
  for (const std::string& value :
       {List({Of(IdOf('c'), other_cluster), Of(IdOf('b'))}).SerializeAsString(),
        List({Of(IdOf('b'), other_cluster)}).SerializeAsString(), List({}).SerializeAsString(),
        std::string("\xff\xff")}) {
    node_.replicator.Write(std::string(kRevokedKey), value, [](const absl::Status&) {});
    Pass(seconds(3));
    ASSERT_THAT(Written().revocations(), SizeIs(1));
    EXPECT_EQ(Written().revocations(0).node_id(), IdOf('b').value());
    EXPECT_EQ(Written().revocations(0).signature(), revocations_.Find(IdOf('b'))->signature());
  }
}

TEST_F(RevocationsTest, ARevokedNodeIsTakenOffTheListOfMembers) {
  Trust();
  Pass(seconds(8));
  ASSERT_TRUE(node_.Leads());
  v1::MemberList list;
  for (const char node : std::string("ab")) list.add_node_ids(IdOf(node).value());
  node_.replicator.Write(std::string(kMembersKey), list.SerializeAsString(),
                         [](const absl::Status&) {});
  node_.member_writer.Take();
  ASSERT_THAT(node_.member_writer.listed(), SizeIs(2));
  revocations_.Take(List({Of(IdOf('b'))}));
  Pass(seconds(2));
  EXPECT_THAT(node_.member_writer.listed(), ElementsAre(node_.self));
  EXPECT_THAT(ForgottenMembers(node_.replicator.table()), ElementsAre(IdOf('b')))
      << "and not for the time being alone";
}

TEST_F(RevocationsTest, WhoDoesNotLeadTellsTheCoordinatorUntilItStandsThere) {
  Trust();
  node_.members.HeardMember(tests::IdentityOf(IdOf('c')), "10.0.0.1", true);
  const auto obey = [&] { node_.Obey(IdOf('c'), 5); };
  obey();
  revocations_.Take(List({Of(IdOf('b'))}));
  for (int second = 0; second < 14; ++second) {
    obey();
    node_.dispatcher.AdvanceBy(seconds(1));
    revocations_.Tick();
  }
  EXPECT_GE(Told().size(), 2u);
  EXPECT_LE(Told().size(), 4u) << "not each second";
  for (const auto& call : Told()) {
    EXPECT_EQ(call->node, IdOf('c'));
    const auto request = call->As<v1::TakeRevocationsRequest>();
    ASSERT_THAT(request.revoked().revocations(), SizeIs(1));
    EXPECT_EQ(request.revoked().revocations(0).node_id(), IdOf('b').value());
  }
  // The coordinator has written it.
  StateTable theirs(IdOf('c'));
  theirs.BeginLeading({Term(5), IdOf('c')});
  StateEntries entries;
  *entries.Add() =
      theirs.Propose(kRevokedKey, List({Of(IdOf('b'))}).SerializeAsString())->change.put.front();
  ASSERT_TRUE(node_.replicator.TakeEntries(entries).ok());
  const size_t before = Told().size();
  for (int second = 0; second < 14; ++second) {
    obey();
    node_.dispatcher.AdvanceBy(seconds(1));
    revocations_.Tick();
  }
  EXPECT_THAT(Told(), SizeIs(before));
}

TEST_F(RevocationsTest, ARevokedCoordinatorIsNotToldOfItself) {
  Trust();
  revocations_.Take(List({Of(IdOf('c'))}));
  for (int second = 0; second < 14; ++second) {
    node_.Obey(IdOf('c'), 5);
    node_.dispatcher.AdvanceBy(seconds(1));
    revocations_.Tick();
  }
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(RevocationsTest, AKeeperTellsEachLiveMemberButTheOneThatIsMeant) {
  Trust();
  for (const char node : std::string("bcd")) node_.Meet(IdOf(node));
  revocations_.Announce(Of(IdOf('c')));
  EXPECT_TRUE(revocations_.Has(IdOf('c')));
  std::set<NodeId> told;
  for (const auto& call : Told()) {
    EXPECT_TRUE(told.insert(call->node).second);
    EXPECT_EQ(call->As<v1::TakeRevocationsRequest>().revoked().revocations(0).node_id(),
              IdOf('c').value());
  }
  EXPECT_EQ(told, (std::set<NodeId>{IdOf('b'), IdOf('d')}));
  Told().front()->End(absl::UnavailableError("it is away"));
  Told().back()->Answer(v1::TakeRevocationsResponse());
}

}  // namespace
}  // namespace macrame::agentd
