// The list of members, as agents write it and as people take nodes off it.

#include "agentd/state/member_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using sim::CodeOf;
using ::testing::Contains;
using ::testing::Not;
using ::testing::SizeIs;

class MemberWriterTest : public sim::AskedAgents {
 protected:
  void BeginQuorum(int nodes) {
    Begin(nodes, [](auto& options) { options.consistency = Consistency::kQuorum; });
    sim().RunFor(15'000);
  }
  const std::set<NodeId>& Listed(int at) { return parts(at).member_writer.listed(); }
  absl::StatusOr<v1::ForgetNodeResponse> Forget(int at, const NodeId& node, bool alone = false) {
    v1::ForgetNodeRequest request;
    request.set_node_id(node.value());
    request.set_alone(alone);
    return Ask(at, kForgetNode, request);
  }
};

TEST_F(MemberWriterTest, TheListFollowsTheLiveMembersAndIsTheSameEverywhere) {
  Begin(3);
  for (int at = 0; at < 3; ++at) EXPECT_THAT(Listed(at), SizeIs(3)) << at;
  const int gone = Follower();
  sim().Crash(gone);
  sim().RunFor(12'000);
  for (int at = 0; at < 3; ++at) {
    if (at == gone) continue;
    EXPECT_THAT(Listed(at), Not(Contains(id(gone)))) << at;
  }
  sim().Start(gone);
  sim().RunFor(10'000);
  for (int at = 0; at < 3; ++at) EXPECT_THAT(Listed(at), SizeIs(3)) << at;
}

// What was on the list at a start counts: two of three that come back alone know that they lack
// one.
TEST_F(MemberWriterTest, TheListOutlivesRestarts) {
  BeginQuorum(3);
  for (int at = 0; at < 3; ++at) sim().Crash(at);
  sim().Start(0);
  EXPECT_THAT(Listed(0), SizeIs(3));
  sim().RunFor(10'000);
  EXPECT_EQ(Leader(), -1) << "one of three leads nobody";
  sim().Start(1);
  sim().RunFor(8000);
  EXPECT_NE(Leader(), -1);
}

TEST_F(MemberWriterTest, AQuorumsListShrinksByOrderAlone) {
  BeginQuorum(3);
  const int gone = Follower();
  sim().Crash(gone);
  sim().RunFor(60'000);
  EXPECT_THAT(Listed(Leader()), Contains(id(gone)));
  const auto forgotten = Forget(Follower(), id(gone));
  ASSERT_TRUE(forgotten.ok()) << forgotten.status();
  EXPECT_THAT(forgotten->member_ids(), SizeIs(2));
  sim().RunFor(1500);
  for (int at = 0; at < 3; ++at) {
    if (at == gone) continue;
    EXPECT_THAT(Listed(at), SizeIs(2)) << at;
  }
  // It comes back: it is a member as any that joins.
  sim().Start(gone);
  sim().RunFor(15'000);
  EXPECT_THAT(Listed(Leader()), SizeIs(3));
}

TEST_F(MemberWriterTest, WhoIsAliveUnknownOrTheLastIsNotForgotten) {
  BeginQuorum(2);
  const auto alive = Forget(Leader(), id(Follower()));
  EXPECT_EQ(alive.status().code(), absl::StatusCode::kFailedPrecondition) << alive.status();
  const auto itself = Forget(Leader(), id(Leader()));
  EXPECT_FALSE(itself.ok());
  const auto unknown = Forget(Leader(), NodeId(std::string(32, 'f')));
  EXPECT_EQ(CodeOf(unknown), reasons::kNodeNotFound) << unknown.status();
  EXPECT_THAT(Listed(Leader()), SizeIs(2));
}

// One of two died for good: whoever is left is told to go on alone, by a person.
TEST_F(MemberWriterTest, WhoIsLeftGoesOnAloneByOrder) {
  BeginQuorum(2);
  const int left = Follower(), gone = Leader();
  sim().Crash(gone);
  sim().RunFor(20'000);
  ASSERT_EQ(Leader(), -1);
  EXPECT_EQ(CodeOf(Forget(left, id(gone))), reasons::kNoCoordinator) << "not without a majority";
  const auto alone = Forget(left, id(gone), /*alone=*/true);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_THAT(alone->member_ids(), SizeIs(1));
  ASSERT_TRUE(RunUntil([&] { return Leader() == left; }, 10'000));
  sim().RunFor(3000);
  // It is written: the next start knows it, too.
  sim().Crash(left);
  sim().Start(left);
  sim().RunFor(10'000);
  EXPECT_EQ(Leader(), left);
  EXPECT_THAT(Listed(left), SizeIs(1));
}

// Also by mistake from another machine: `alone` is for the socket of the node that is left.
TEST_F(MemberWriterTest, AnOrderToGoOnAloneIsTakenFromThisMachineOnly) {
  BeginQuorum(3);
  const int left = Follower();
  for (int other = 0; other < 3; ++other) {
    if (other != left) sim().Crash(other);
  }
  sim().RunFor(8000);
  v1::ForgetNodeRequest request;
  request.set_node_id(id((left + 1) % 3).value());
  request.set_alone(true);
  EXPECT_EQ(CodeOf(AskAs((left + 2) % 3, left, kForgetNode, request)), reasons::kNoCoordinator);
  EXPECT_THAT(Listed(left), SizeIs(3));
}

// A node with a coordinator has nothing to do alone.
TEST_F(MemberWriterTest, WhereThereIsACoordinatorItForgetsAsEver) {
  BeginQuorum(3);
  const int gone = Follower();
  sim().Crash(gone);
  sim().RunFor(8000);
  ASSERT_TRUE(Forget(Follower(), id(gone), /*alone=*/true).ok());
  sim().RunFor(1500);
  EXPECT_THAT(Listed(Leader()), SizeIs(2));
}

}  // namespace
}  // namespace macrame::agentd
