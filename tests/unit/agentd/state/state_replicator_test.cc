#include "agentd/state/state_replicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "agentd/cores/gang_reconciler.h"
#include "agentd/cores/member_list.h"
#include "agentd/cores/state_keys.h"
#include "proto/reasons.h"
#include "tests/sim/sim_disk.h"
#include "tests/support/fake_dispatcher.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::SizeIs;

const NodeId kSelf(std::string(32, 'a'));
const NodeId kOther(std::string(32, 'b'));
const NodeId kThird(std::string(32, 'c'));

// How writes were answered: the code, or "ok".
class Answers {
 public:
  StateReplicator::Done Next() {
    const size_t number = codes_.size();
    codes_.emplace_back("waits");
    return [this, number](const absl::Status& status) {
      EXPECT_EQ(codes_[number], "waits") << "answered twice";
      codes_[number] = status.ok() ? "ok" : ReasonOf(status).code();
      last_ = status;
    };
  }
  const std::vector<std::string>& codes() const { return codes_; }
  const absl::Status& last() const { return last_; }

 private:
  std::vector<std::string> codes_;
  absl::Status last_;
};

// One node's replicator over a disk in memory; no other node can be called.
class StateReplicatorTest : public ::testing::Test {
 protected:
  StateReplicatorTest() {
    disk_.node_id = kSelf;
    Restart();
  }

  void Restart() {
    replicator_.reset();
    sim::DiskEvents events;
    events.before_grant = events.after_grant = [] {};
    events.before_entry = [](const v1::StateEntry&) {};
    events.forgets_grant = events.forgets_change = [] { return false; };
    process_ = std::make_shared<sim::Process>(0, 1);
    store_ = std::make_unique<sim::SimStore>(disk_, process_, events);
    election_ = std::make_unique<Election>(
        kSelf, ElectionOptions(), std::nullopt, [] { return uint64_t{0}; }, dispatcher_.Now());
    replicator_ = std::make_unique<StateReplicator>(
        dispatcher_, kSelf, *store_, *election_, channels_, StateReplicator::Options(),
        StateReplicator::Callbacks{
            [this] { return electorate_; }, [this] { return electorate_; },
            [this] { return electorate_; }, [this] { return is_open_; }, [this] { ++changes_; },
            [this](const v1::GangRecord& record) { apart_.push_back(record.deployment()); }});
  }
  void Lead(uint64_t term = 1) { replicator_->BeginLeading({Term(term), kSelf}); }
  void Write(const std::string& key, const std::string& value) {
    replicator_->Write(key, value, answers_.Next());
  }
  void Tick(Duration after) {
    dispatcher_.AdvanceBy(after);
    replicator_->Tick();
  }
  // As a coordinator elsewhere wrote it.
  static StateEntries Foreign(uint64_t term, const std::string& key, const std::string& value) {
    StateTable table(kOther);
    table.BeginLeading({Term(term), kOther});
    EXPECT_TRUE(table.Propose(key, value).ok());
    StateEntries entries;
    *entries.Add() = table.entries().at(key);
    return entries;
  }
  std::string ValueOf(const std::string& key) const {
    const v1::StateEntry* entry = replicator_->table().Find(key);
    return entry == nullptr ? "" : entry->value();
  }
  // What is in memory is on the disk, and nothing else.
  void ExpectDiskHoldsTheTable() const {
    const auto& table = replicator_->table().entries();
    ASSERT_EQ(disk_.entries.size(), table.size());
    for (const auto& [key, entry] : table) {
      ASSERT_TRUE(disk_.entries.contains(key)) << key;
      EXPECT_EQ(VersionOf(disk_.entries.at(key)), VersionOf(entry)) << key;
    }
  }

  transport::FakeDispatcher dispatcher_;
  sim::SimDisk disk_;
  sim::ProcessPtr process_;
  std::unique_ptr<sim::SimStore> store_;
  std::unique_ptr<Election> election_;
  PeerChannels channels_{[](const auto&...) { return nullptr; }};
  std::set<NodeId> electorate_;
  bool is_open_ = true;
  int changes_ = 0;
  std::vector<std::string> apart_;
  Answers answers_;
  std::unique_ptr<StateReplicator> replicator_;
};

TEST_F(StateReplicatorTest, AloneAWriteIsTrueAtOnceAndOutlivesARestart) {
  Lead();
  Write("deployment/m", "wanted");
  EXPECT_THAT(answers_.codes(), ElementsAre("ok"));
  EXPECT_EQ(changes_, 1) << "whoever reads the state here is told";
  EXPECT_TRUE(replicator_->IsIdle());
  Restart();
  EXPECT_EQ(ValueOf("deployment/m"), "wanted");
  replicator_->Remove("deployment/m", "", answers_.Next());
  EXPECT_EQ(answers_.codes().back(), reasons::kNoCoordinator) << "it does not lead yet";
  Lead(2);
  replicator_->Set("deployment/m", "", answers_.Next());
  EXPECT_EQ(answers_.codes().back(), "ok");
  EXPECT_EQ(ValueOf("deployment/m"), "");
  ExpectDiskHoldsTheTable();
}

TEST_F(StateReplicatorTest, WhoDoesNotLeadChangesNothing) {
  Write("deployment/m", "wanted");
  replicator_->Remove("deployment/m", "", answers_.Next());
  EXPECT_THAT(answers_.codes(), ElementsAre(reasons::kNoCoordinator, reasons::kNoCoordinator));
  EXPECT_THAT(disk_.entries, IsEmpty());
}

// What is not there is removed at once, also before this coordinator wrote anything, and after its
// time nobody waits for an answer that never comes.
TEST_F(StateReplicatorTest, WhatIsNotThereIsRemovedAtOnce) {
  Lead();
  Write("deployment/m", "wanted");
  Restart();
  Lead(2);
  replicator_->Remove("speeds", "", answers_.Next());
  EXPECT_EQ(answers_.codes().back(), "ok");
  Write("deployment/n", "wanted");
  replicator_->Remove("speeds", "", answers_.Next());
  EXPECT_EQ(answers_.codes().back(), "ok");
  replicator_->StopLeading();
  replicator_->Remove("speeds", "", answers_.Next());
  EXPECT_EQ(answers_.codes().back(), reasons::kNoCoordinator);
  EXPECT_TRUE(replicator_->IsIdle());
}

// A removal that waits for its majority is not there yet for the next who asks for it.
TEST_F(StateReplicatorTest, WhoRemovesTheSameIsAnsweredWithTheFirst) {
  Lead();
  Write("cordon/n", "drained");
  electorate_ = {kSelf, kOther, kThird};
  replicator_->Remove("cordon/n", "", answers_.Next());
  replicator_->Remove("cordon/n", "", answers_.Next());
  EXPECT_THAT(answers_.codes(), ElementsAre("ok", "waits", "waits"));
  electorate_ = {kSelf};
  Tick(milliseconds(100));
  EXPECT_THAT(answers_.codes(), ElementsAre("ok", "ok", "ok"));
}

// cores/README.md, "Election", 2: before the first list of members nothing else is written.
TEST_F(StateReplicatorTest, BeforeTheFirstListOfMembersNothingElseIsWrittenOrRemoved) {
  Lead();
  Write("deployment/m", "wanted");
  is_open_ = false;
  Write("deployment/n", "wanted");
  replicator_->Remove("deployment/m", "", answers_.Next());
  replicator_->Set("deployment/m", "", answers_.Next());
  EXPECT_THAT(answers_.codes(), ElementsAre("ok", reasons::kNoCoordinator, reasons::kNoCoordinator,
                                            reasons::kNoCoordinator));
  EXPECT_THAT(std::string(answers_.last().message()), HasSubstr("list"));
  EXPECT_EQ(ValueOf("deployment/m"), "wanted");
  Write(std::string(kMembersKey), "list");
  EXPECT_EQ(answers_.codes().back(), "ok");
}

TEST_F(StateReplicatorTest, AWriteThatNoMajorityTakesIsToldAfterItsLimitAndMayStillComeTrue) {
  electorate_ = {kSelf, kOther, kThird};
  Lead();
  Write("deployment/m", "wanted");
  EXPECT_FALSE(replicator_->IsIdle());
  Tick(milliseconds(4900));
  EXPECT_THAT(answers_.codes(), ElementsAre("waits"));
  Tick(milliseconds(100));
  EXPECT_THAT(answers_.codes(), ElementsAre(reasons::kNotAcknowledged));
  EXPECT_EQ(ValueOf("deployment/m"), "wanted");
  ExpectDiskHoldsTheTable();
  // The others died since: this node alone is the majority, and nobody is answered twice.
  electorate_ = {kSelf};
  Tick(seconds(1));
  EXPECT_THAT(answers_.codes(), SizeIs(1));
}

TEST_F(StateReplicatorTest, WritesThatWaitAreAnsweredWhenTheMajorityIsSmaller) {
  electorate_ = {kSelf, kOther, kThird};
  Lead();
  Write("deployment/m", "wanted");
  electorate_ = {kSelf};
  Tick(milliseconds(100));
  EXPECT_THAT(answers_.codes(), ElementsAre("ok"));
}

// What is refused for want of room was not made: neither here nor on the disk nor anywhere later.
TEST_F(StateReplicatorTest, AWriteBeyondThoseThatMayWaitIsNotMade) {
  electorate_ = {kSelf, kOther, kThird};
  Lead();
  for (size_t i = 0; i < kWritesWaitingMax; ++i) Write(absl::StrCat("tenant/", i), "limits");
  EXPECT_THAT(answers_.codes(), Not(Contains(Not("waits"))));
  const std::string digest = replicator_->table().Digest();
  Write("tenant/late", "limits");
  EXPECT_EQ(answers_.codes().back(), reasons::kNotAcknowledged);
  EXPECT_EQ(answers_.last().code(), absl::StatusCode::kResourceExhausted);
  replicator_->Remove("tenant/0", "", answers_.Next());
  EXPECT_EQ(answers_.codes().back(), reasons::kNotAcknowledged);
  EXPECT_EQ(replicator_->table().Digest(), digest);
  EXPECT_EQ(ValueOf("tenant/late"), "");
  EXPECT_EQ(ValueOf("tenant/0"), "limits");
  ExpectDiskHoldsTheTable();
}

TEST_F(StateReplicatorTest, WhoeverWaitsIsToldWhenThisNodeLeadsNoMore) {
  electorate_ = {kSelf, kOther, kThird};
  Lead();
  Write("deployment/m", "wanted");
  // One that writes again at once gets no further.
  replicator_->Write("deployment/n", "wanted",
                     [this](const absl::Status&) { Write("deployment/o", "wanted"); });
  replicator_->StopLeading();
  EXPECT_THAT(answers_.codes(), ElementsAre(reasons::kNoCoordinator, reasons::kNoCoordinator));
  EXPECT_TRUE(replicator_->IsIdle());
  Tick(seconds(10));
  EXPECT_EQ(ValueOf("deployment/o"), "");
}

// --- the disk ------------------------------------------------------------------------------------

TEST_F(StateReplicatorTest, WhatIsOnNoDiskIsNotAcknowledged) {
  Lead();
  disk_.is_full = true;
  Write("deployment/m", "wanted");
  EXPECT_THAT(answers_.codes(), ElementsAre("waits"));
  Tick(milliseconds(500));
  EXPECT_THAT(answers_.codes(), ElementsAre("waits"));
  disk_.is_full = false;
  Tick(milliseconds(500));
  EXPECT_THAT(answers_.codes(), ElementsAre("ok"));
  ExpectDiskHoldsTheTable();
}

// The last of a key counts, in whatever order the disk takes them.
TEST_F(StateReplicatorTest, WhatADiskRefusedIsWrittenBeforeWhatCameLater) {
  Lead();
  Write("deployment/m", "first");
  disk_.is_full = true;
  Write("deployment/m", "second");
  Write("deployment/n", "one");
  Write("deployment/m", "third");
  replicator_->Remove("deployment/n", "", answers_.Next());
  disk_.is_full = false;
  Write("deployment/o", "last");
  ExpectDiskHoldsTheTable();
  EXPECT_EQ(disk_.entries.at("deployment/m").value(), "third");
  EXPECT_TRUE(disk_.entries.at("deployment/n").removed());
}

TEST_F(StateReplicatorTest, AlsoANodeThatDoesNotLeadWritesAgainWhatItsDiskRefused) {
  disk_.is_full = true;
  EXPECT_FALSE(replicator_->TakeEntries(Foreign(3, "deployment/m", "wanted")).ok());
  EXPECT_EQ(ValueOf("deployment/m"), "wanted");
  EXPECT_THAT(disk_.entries, IsEmpty());
  disk_.is_full = false;
  Tick(seconds(1));
  ExpectDiskHoldsTheTable();
}

// --- orders of a coordinator ---------------------------------------------------------------------

TEST_F(StateReplicatorTest, OnlyWhoHoldsTheLeaseIsObeyedAndInItsOwnNameAlone) {
  v1::ReplicateRequest order;
  *order.mutable_fence() = ToProto({Term(3), kOther});
  *order.mutable_entries() = Foreign(3, "deployment/m", "wanted");
  const auto not_granted = replicator_->OnReplicate(kOther, order);
  EXPECT_EQ(ReasonOf(not_granted.status()).code(), reasons::kNoCoordinator);
  v1::LeaseRequest lease;
  *lease.mutable_fence() = order.fence();
  lease.set_lease_ms(2000);
  election_->OnLeaseRequest(kOther, lease, dispatcher_.Now());
  const auto for_another = replicator_->OnReplicate(kThird, order);
  EXPECT_EQ(for_another.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(disk_.entries, IsEmpty());
  const auto taken = replicator_->OnReplicate(kOther, order);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_TRUE(taken->accepted());
  EXPECT_EQ(taken->state_digest(), replicator_->table().Digest());
  ExpectDiskHoldsTheTable();
  *order.mutable_fence() = ToProto({Term(2), kOther});
  const auto stale = replicator_->OnReplicate(kOther, order);
  EXPECT_EQ(ReasonOf(stale.status()).code(), reasons::kStaleTerm);
}

TEST_F(StateReplicatorTest, WhatADiskDoesNotTakeIsNotAccepted) {
  v1::ReplicateRequest order;
  *order.mutable_fence() = ToProto({Term(3), kOther});
  *order.mutable_entries() = Foreign(3, "deployment/m", "wanted");
  v1::LeaseRequest lease;
  *lease.mutable_fence() = order.fence();
  lease.set_lease_ms(2000);
  election_->OnLeaseRequest(kOther, lease, dispatcher_.Now());
  disk_.is_full = true;
  const auto refused = replicator_->OnReplicate(kOther, order);
  EXPECT_EQ(ReasonOf(refused.status()).code(), reasons::kStateDiskFull);
}

TEST_F(StateReplicatorTest, WhatMakesNoSenseIsLeftOutAndTheRestTaken) {
  StateEntries entries = Foreign(3, "deployment/m", "wanted");
  *entries.Add() = entries[0];
  entries[1].set_key("");
  *entries.Add() = entries[0];
  entries[2].set_key("deployment/n");
  entries[2].set_term(0);
  EXPECT_TRUE(replicator_->TakeEntries(entries).ok());
  EXPECT_THAT(replicator_->table().entries(),
              ElementsAre(::testing::Pair("deployment/m", ::testing::_)));
}

// --- what was written apart ----------------------------------------------------------------------

// Somebody was told that it is so, and it is not: they hear of it, whatever it was.
TEST_F(StateReplicatorTest, AnOrderThatGaveWayToAnotherHalfsIsTold) {
  const std::vector<std::string> orders = {"deployment/m", "cordon/n", "marks/n", "profile/m",
                                           "key/0123",     "tenant/t", "pause"};
  for (const std::string& key : orders) {
    Restart();
    disk_.entries.clear();
    Restart();
    Lead(2);
    Write(key, "here");
    ASSERT_TRUE(replicator_->TakeEntries(Foreign(3, key, "there")).ok());
    ASSERT_THAT(replicator_->lost_writes(), SizeIs(1)) << key;
    const v1::Reason& told = replicator_->lost_writes().front();
    EXPECT_EQ(told.code(), reasons::kWriteLost);
    EXPECT_THAT(told.message(), HasSubstr(key));
    EXPECT_FALSE(told.remedy().empty());
  }
}

TEST_F(StateReplicatorTest, WhatNobodyOrderedIsLostInSilence) {
  Lead(2);
  for (const std::string& key :
       {std::string("links"), std::string("speeds"), std::string(kMembersKey),
        std::string("crash/n"), std::string("refusal/r")}) {
    Write(key, "here");
    ASSERT_TRUE(replicator_->TakeEntries(Foreign(3, key, "there")).ok());
  }
  EXPECT_THAT(replicator_->lost_writes(), IsEmpty());
}

TEST_F(StateReplicatorTest, ASuccessorsWriteLosesNothing) {
  StateTable other(kOther);
  Lead(2);
  Write("cordon/n", "here");
  StateEntries before;
  replicator_->AddAllEntries(&before);
  other.Merge(before, true);
  other.BeginLeading({Term(3), kOther});
  ASSERT_TRUE(other.Propose("cordon/n", "later").ok());
  StateEntries after;
  *after.Add() = other.entries().at("cordon/n");
  ASSERT_TRUE(replicator_->TakeEntries(after).ok());
  EXPECT_EQ(ValueOf("cordon/n"), "later");
  EXPECT_THAT(replicator_->lost_writes(), IsEmpty());
}

TEST_F(StateReplicatorTest, TheLatestLostOrdersAreShown) {
  Lead(2);
  for (size_t i = 0; i < kLostWritesShownMax + 3; ++i) {
    const std::string key = absl::StrCat("profile/m", i);
    Write(key, "here");
    ASSERT_TRUE(replicator_->TakeEntries(Foreign(3, key, "there")).ok());
  }
  ASSERT_THAT(replicator_->lost_writes(), SizeIs(kLostWritesShownMax));
  EXPECT_THAT(replicator_->lost_writes().back().message(),
              HasSubstr(absl::StrCat("profile/m", kLostWritesShownMax + 2)));
}

// Two halves launched a gang each: whoever reconciles is told of the one that is not in force.
TEST_F(StateReplicatorTest, AGangsRecordThatGaveWayIsHandedOn) {
  v1::GangRecord record;
  record.set_deployment("m");
  record.set_epoch(2001);
  Lead(2);
  Write(GangKey("m"), record.SerializeAsString());
  record.set_epoch(3001);
  ASSERT_TRUE(replicator_->TakeEntries(Foreign(3, GangKey("m"), record.SerializeAsString())).ok());
  EXPECT_THAT(apart_, ElementsAre("m"));
  EXPECT_THAT(replicator_->lost_writes(), IsEmpty());
}

TEST_F(StateReplicatorTest, WhatIsKeptAgainstAMergeIsWrittenOverAndOnDisk) {
  replicator_->SetKeeps([](std::string_view key) { return key == "gang/m"; });
  Lead(2);
  Write("gang/m", "mine");
  ASSERT_TRUE(replicator_->TakeEntries(Foreign(3, "gang/m", "theirs")).ok());
  EXPECT_EQ(ValueOf("gang/m"), "mine");
  ExpectDiskHoldsTheTable();
  // Merged while nobody leads here: it is written when this node leads next.
  replicator_->StopLeading();
  ASSERT_TRUE(replicator_->TakeEntries(Foreign(4, "gang/m", "theirs again")).ok());
  EXPECT_EQ(ValueOf("gang/m"), "theirs again");
  Lead(5);
  EXPECT_EQ(ValueOf("gang/m"), "mine");
  ExpectDiskHoldsTheTable();
}

TEST_F(StateReplicatorTest, WhatWasKeptIsForgottenWhenAnotherLeads) {
  replicator_->SetKeeps([](std::string_view key) { return key == "gang/m"; });
  Lead(2);
  Write("gang/m", "mine");
  replicator_->StopLeading();
  ASSERT_TRUE(replicator_->TakeEntries(Foreign(4, "gang/m", "theirs")).ok());
  replicator_->ForgetKept();
  Lead(5);
  EXPECT_EQ(ValueOf("gang/m"), "theirs");
}

}  // namespace
}  // namespace macrame::agentd
