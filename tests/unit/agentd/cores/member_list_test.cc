#include "agentd/cores/member_list.h"

#include <gtest/gtest.h>

#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;

NodeId Id(char letter) { return NodeId(std::string(32, letter)); }
MonotonicTime At(int64_t ms) { return MonotonicTime(milliseconds(1'000'000 + ms)); }
using Nodes = std::set<NodeId>;

class MemberListTest : public ::testing::Test {
 protected:
  MemberListTest() { table_.BeginLeading({Term(1), Id('a')}); }

  // What is due now, written down.
  bool WriteDue(MemberList& list, const Nodes& granted, const Nodes& live, int64_t ms) {
    const auto due = list.Due(table_, granted, live, true, At(ms));
    if (!due.has_value()) return false;
    EXPECT_TRUE(table_.Propose(kMembersKey, due->SerializeAsString()).ok());
    return true;
  }
  Nodes Listed() const { return ListedMembers(table_); }

  StateTable table_{Id('a')};
};

TEST_F(MemberListTest, FollowsTheLiveMembers) {
  MemberList list(Id('a'), Consistency::kAvailable);
  list.BeginLeading(At(0));
  EXPECT_TRUE(WriteDue(list, {Id('a'), Id('b')}, {Id('a'), Id('b')}, 0));
  EXPECT_EQ(Listed(), (Nodes{Id('a'), Id('b')}));
  const Nodes three = {Id('a'), Id('b'), Id('c')};
  EXPECT_TRUE(WriteDue(list, three, three, 100)) << "who granted its lease is listed at once";
  EXPECT_EQ(Listed(), three);
  EXPECT_FALSE(WriteDue(list, three, three, 200));
  const Nodes left = {Id('a'), Id('b')};
  EXPECT_FALSE(WriteDue(list, left, left, 1000));
  EXPECT_FALSE(WriteDue(list, left, left, 3900)) << "away for a moment";
  EXPECT_TRUE(WriteDue(list, left, left, 4000));
  EXPECT_EQ(Listed(), left);
}

TEST_F(MemberListTest, WhoIsBackInTimeStays) {
  MemberList list(Id('a'), Consistency::kAvailable);
  list.BeginLeading(At(0));
  const Nodes both = {Id('a'), Id('b')};
  WriteDue(list, both, both, 0);
  EXPECT_FALSE(WriteDue(list, {Id('a')}, {Id('a')}, 1000));
  EXPECT_FALSE(WriteDue(list, both, both, 3500));
  EXPECT_FALSE(WriteDue(list, {Id('a')}, {Id('a')}, 4500)) << "its absence counts anew";
  EXPECT_EQ(Listed(), both);
}

TEST_F(MemberListTest, AQuorumGrowsByOneAndNeverShrinksByItself) {
  MemberList list(Id('a'), Consistency::kQuorum);
  list.BeginLeading(At(0));
  const Nodes three = {Id('a'), Id('b'), Id('c')};
  EXPECT_TRUE(WriteDue(list, three, three, 0));
  EXPECT_EQ(Listed(), three);
  const Nodes five = {Id('a'), Id('b'), Id('c'), Id('d'), Id('e')};
  EXPECT_FALSE(WriteDue(list, five, five, 100));
  EXPECT_TRUE(WriteDue(list, five, five, 3100));
  EXPECT_EQ(Listed().size(), 4u) << "one at a time";
  EXPECT_FALSE(list.Due(table_, five, five, /*committed=*/false, At(3200)).has_value());
  EXPECT_TRUE(WriteDue(list, five, five, 3300));
  EXPECT_EQ(Listed(), five);
  EXPECT_FALSE(WriteDue(list, {Id('a')}, {Id('a')}, 100'000));
  EXPECT_EQ(Listed(), five);
}

TEST_F(MemberListTest, ANewCoordinatorOfAQuorumFirstWritesTheListUnderItsTerm) {
  const Nodes three = {Id('a'), Id('b'), Id('c')};
  MemberList first(Id('a'), Consistency::kQuorum);
  first.BeginLeading(At(0));
  WriteDue(first, three, three, 0);
  table_.BeginLeading({Term(2), Id('a')});
  MemberList second(Id('a'), Consistency::kQuorum);
  second.BeginLeading(At(0));
  EXPECT_TRUE(WriteDue(second, {Id('a'), Id('b')}, {Id('a'), Id('b')}, 0));
  EXPECT_EQ(Listed(), three);
  EXPECT_EQ(table_.Find(kMembersKey)->term(), 2u);
}

TEST_F(MemberListTest, WhoIsForgottenIsRememberedUntilItIsBack) {
  MemberList list(Id('a'), Consistency::kQuorum);
  list.BeginLeading(At(0));
  const Nodes three = {Id('a'), Id('b'), Id('c')};
  WriteDue(list, three, three, 0);
  const Nodes live = {Id('a'), Id('b')};
  EXPECT_EQ(ReasonOf(WithoutMember(table_, three, true, Id('c')).status()).code(), "NODE_ALIVE");
  EXPECT_EQ(ReasonOf(WithoutMember(table_, live, false, Id('f')).status()).code(),
            "NODE_NOT_FOUND");
  const auto without = WithoutMember(table_, live, true, Id('c'));
  ASSERT_TRUE(without.ok());
  ASSERT_TRUE(table_.Propose(kMembersKey, without->SerializeAsString()).ok());
  EXPECT_EQ(Listed(), live);
  EXPECT_EQ(ForgottenMembers(table_), Nodes{Id('c')});
  EXPECT_FALSE(WriteDue(list, three, three, 1000));
  EXPECT_TRUE(WriteDue(list, three, three, 5000));
  EXPECT_EQ(Listed(), three);
  EXPECT_TRUE(ForgottenMembers(table_).empty());
}

TEST_F(MemberListTest, TheLastMemberStays) {
  MemberList list(Id('a'), Consistency::kAvailable);
  list.BeginLeading(At(0));
  WriteDue(list, {Id('a')}, {Id('a')}, 0);
  EXPECT_FALSE(WithoutMember(table_, {}, true, Id('a')).ok());
}

TEST(KeptValues, AreWrittenOverWhatAMergeBringsAtOnceWhileLeading) {
  StateTable table(Id('a'));
  table.SetKeeps([](std::string_view key) { return key == "gang/m"; });
  table.BeginLeading({Term(1), Id('a')});
  ASSERT_TRUE(table.Propose("gang/m", "ours").ok());
  StateTable other(Id('b'));
  other.BeginLeading({Term(9), Id('b')});
  const auto theirs = other.Propose("gang/m", "theirs");
  StateEntries entries(theirs->change.put.begin(), theirs->change.put.end());
  table.BeginLeading({Term(10), Id('a')});
  const MergeResult merged = table.Merge(entries, false);
  ASSERT_EQ(merged.kept.size(), 1u);
  EXPECT_EQ(merged.kept[0].theirs.value(), "theirs");
  EXPECT_NE(merged.restored, 0u);
  EXPECT_TRUE(merged.lost.empty());
  EXPECT_EQ(table.Find("gang/m")->value(), "ours");
  EXPECT_EQ(table.Find("gang/m")->term(), 10u);
  EXPECT_GT(VersionOf(*table.Find("gang/m")), VersionOf(entries[0])) << "it wins everywhere";
}

TEST(KeptValues, AreWrittenOverWhenThisNodeLeadsNextButNotWhenAnotherDoes) {
  for (const bool another : {false, true}) {
    StateTable table(Id('a'));
    table.SetKeeps([](std::string_view) { return true; });
    table.BeginLeading({Term(1), Id('a')});
    ASSERT_TRUE(table.Propose("gang/m", "ours").ok());
    table.StopLeading();
    StateTable other(Id('b'));
    other.BeginLeading({Term(9), Id('b')});
    const auto theirs = other.Propose("gang/m", "theirs");
    StateEntries entries(theirs->change.put.begin(), theirs->change.put.end());
    table.Merge(entries, false);
    if (another) table.ForgetKept();
    table.BeginLeading({Term(10), Id('a')});
    EXPECT_EQ(table.RestoreKept().change.empty(), another);
    EXPECT_EQ(table.Find("gang/m")->value(), another ? "theirs" : "ours");
  }
}

}  // namespace
}  // namespace macrame::agentd
