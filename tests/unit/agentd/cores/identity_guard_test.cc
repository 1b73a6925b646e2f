#include "agentd/cores/identity_guard.h"

#include <gtest/gtest.h>

#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const MonotonicTime kStart(std::chrono::hours(2));
const std::string kHere = "machine1", kElsewhere = "machine2";

NodeId Id(char digit) { return NodeId(std::string(32, digit)); }

v1::NodeIdentity Self(const std::string& machine, uint64_t incarnation = 6) {
  v1::NodeIdentity identity;
  identity.set_node_id(Id('a').value());
  identity.set_incarnation(incarnation);
  identity.set_machine(machine);
  identity.set_hostname(machine == kHere ? "weaver-1" : "weaver-9");
  identity.add_addresses()->set_ip(machine == kHere ? "10.0.0.1" : "10.0.0.9");
  identity.set_control_port(7000);
  return identity;
}

IdentityGuard Guard(const std::string& last_machine, IdentityGuardOptions options = {}) {
  IdentityGuard guard(last_machine, options, kStart);
  guard.SetSelf(Self(kHere));
  return guard;
}

TEST(IdentityGuard, OnlyTheMachineThatHasThePlaceGivesOrders) {
  v1::Fence fence;
  fence.set_coordinator_id(Id('a').value());
  EXPECT_TRUE(CheckMachine(Self(kHere), fence).ok()) << "its machine is not known";
  fence.set_machine(kHere);
  EXPECT_TRUE(CheckMachine(Self(kHere), fence).ok());
  EXPECT_TRUE(CheckMachine(Self(""), fence).ok());
  fence.set_machine(kElsewhere);
  const absl::Status refused = CheckMachine(Self(kHere), fence);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(refused).code(), "NODE_ID_CLASH");
  EXPECT_NE(ReasonOf(refused).message().find("weaver-1"), std::string::npos);
}

TEST(IdentityGuard, ARestartOnTheSameMachineIsSureAtOnce) {
  for (const std::string& last : {kHere, std::string()}) {
    const IdentityGuard guard = Guard(last);
    EXPECT_EQ(guard.standing(), Standing::kSure);
    EXPECT_FALSE(guard.Problem().has_value());
  }
}

TEST(IdentityGuard, AnotherMachineLooksAndTakesOverWhenNothingAnswers) {
  IdentityGuard guard = Guard(kElsewhere);
  guard.SetListed({Id('a')});
  EXPECT_EQ(guard.standing(), Standing::kLooking);
  EXPECT_EQ(guard.Problem()->code(), "NODE_ID_CLASH");
  EXPECT_FALSE(guard.OnTick(kStart + milliseconds(2900)));
  EXPECT_TRUE(guard.OnTick(kStart + milliseconds(3000)));
  EXPECT_TRUE(guard.is_sure());
  EXPECT_FALSE(guard.OnTick(kStart + milliseconds(3100))) << "said once";
  EXPECT_FALSE(guard.Problem().has_value());
}

TEST(IdentityGuard, WithOthersListedOneOfThemHasToTakeIt) {
  IdentityGuard guard = Guard(kElsewhere);
  guard.SetListed({Id('a'), Id('b'), Id('c')});
  EXPECT_FALSE(guard.OnTick(kStart + seconds(10)));
  guard.OnTaken(Id('z'));
  EXPECT_FALSE(guard.OnTick(kStart + seconds(11))) << "who is not listed knows nothing";
  guard.OnTaken(Id('c'));
  EXPECT_TRUE(guard.OnTick(kStart + seconds(12)));
  // Nobody in reach: as long as a minority waits.
  IdentityGuard alone = Guard(kElsewhere);
  alone.SetListed({Id('a'), Id('b'), Id('c')});
  EXPECT_FALSE(alone.OnTick(kStart + seconds(29)));
  EXPECT_TRUE(alone.OnTick(kStart + seconds(30)));
}

TEST(IdentityGuard, WithAQuorumAMajorityBesideItHasTo) {
  IdentityGuardOptions options;
  options.consistency = Consistency::kQuorum;
  IdentityGuard guard = Guard(kElsewhere, options);
  EXPECT_FALSE(guard.OnTick(kStart + seconds(100))) << "without a list nobody can tell";
  guard.SetListed({Id('a'), Id('b'), Id('c')});
  guard.OnTaken(Id('b'));
  EXPECT_FALSE(guard.OnTick(kStart + seconds(100)))
      << "c may still count its vote on the other machine";
  guard.OnTaken(Id('c'));
  EXPECT_TRUE(guard.OnTick(kStart + seconds(100)));
}

TEST(IdentityGuard, OfTwoWithAQuorumTheOtherOneIsEnough) {
  IdentityGuardOptions options;
  options.consistency = Consistency::kQuorum;
  IdentityGuard guard = Guard(kElsewhere, options);
  guard.SetListed({Id('a'), Id('b')});
  EXPECT_FALSE(guard.OnTick(kStart + seconds(100)));
  guard.OnTaken(Id('b'));
  EXPECT_TRUE(guard.OnTick(kStart + seconds(100)));
}

TEST(IdentityGuard, WhoStaysTellsOfTheCopyForAWhile) {
  IdentityGuard guard = Guard(kHere);
  guard.OnTaken(Id('b'));
  guard.OnTick(kStart + seconds(10));
  ASSERT_FALSE(guard.OnRefused(Self(kElsewhere, 50)));
  EXPECT_TRUE(guard.Problem().has_value());
  guard.OnTick(kStart + seconds(10) + kHolderTold);
  EXPECT_FALSE(guard.Problem().has_value());
}

TEST(IdentityGuard, ACopyIsRefusedForGoodAndSaysBothMachines) {
  IdentityGuard guard = Guard(kElsewhere);
  EXPECT_FALSE(guard.KeepsPlace());
  EXPECT_TRUE(guard.OnRefused(Self(kElsewhere, 5)));
  EXPECT_FALSE(guard.OnRefused(Self(kElsewhere, 5))) << "told once";
  EXPECT_EQ(guard.standing(), Standing::kRefused);
  EXPECT_FALSE(guard.OnTick(kStart + std::chrono::hours(1)));
  const v1::Reason reason = *guard.Problem();
  EXPECT_EQ(reason.code(), "NODE_ID_CLASH");
  EXPECT_NE(reason.message().find("weaver-9 (10.0.0.9:7000)"), std::string::npos);
  EXPECT_NE(reason.message().find("weaver-1 (10.0.0.1:7000)"), std::string::npos);
  EXPECT_NE(reason.remedy().find("on weaver-1"), std::string::npos) << reason.remedy();
}

// A cable was cut, and on each side one of two machines was refused for the other's sake.
TEST(IdentityGuard, WhoRanHereLastLooksAgainWhenTheOtherIsNotHeard) {
  IdentityGuard guard = Guard(kHere);
  guard.SetListed({Id('a'), Id('b')});
  guard.OnTick(kStart);
  ASSERT_TRUE(guard.OnRefused(Self(kElsewhere, 9)));
  guard.OnTick(kStart + seconds(9));
  guard.OnOtherHeard(Self(kElsewhere, 9));
  guard.OnTick(kStart + seconds(18));
  EXPECT_EQ(guard.standing(), Standing::kRefused) << "it was heard 9 s ago";
  EXPECT_FALSE(guard.OnTick(kStart + seconds(19)));
  ASSERT_EQ(guard.standing(), Standing::kLooking);
  EXPECT_EQ(guard.Problem()->message().find("disk of"), std::string::npos);
  // Members still count the other as alive; the next time it waits twice as long.
  ASSERT_TRUE(guard.OnRefused(Self(kElsewhere, 9)));
  guard.OnTick(kStart + seconds(38));
  EXPECT_EQ(guard.standing(), Standing::kRefused);
  guard.OnTick(kStart + seconds(39));
  ASSERT_EQ(guard.standing(), Standing::kLooking);
  guard.OnTaken(Id('b'));
  EXPECT_FALSE(guard.OnTick(kStart + seconds(41))) << "it looks for 3 s, as any other";
  EXPECT_TRUE(guard.OnTick(kStart + seconds(42)));
  EXPECT_TRUE(guard.KeepsPlace());
}

TEST(IdentityGuard, NewsOfItselfOrOfAnotherNodeRefusesNobody) {
  IdentityGuard guard = Guard(kElsewhere);
  EXPECT_FALSE(guard.OnRefused(Self(kHere)));
  EXPECT_FALSE(guard.OnRefused(Self("")));
  v1::NodeIdentity other = Self(kElsewhere);
  other.set_node_id(Id('b').value());
  EXPECT_FALSE(guard.OnRefused(other));
  EXPECT_EQ(guard.standing(), Standing::kLooking);
}

// Copies of a container carry the machine-id, too.
v1::NodeIdentity CopyHere(uint64_t incarnation) {
  v1::NodeIdentity copy = Self(kElsewhere, incarnation);
  copy.set_machine(kHere);
  return copy;
}

TEST(IdentityGuard, ACopyThatSaysItIsTheSameMachineYieldsToWhoeverRuns) {
  IdentityGuard copy(kHere, {}, kStart);
  copy.SetSelf(CopyHere(7));
  EXPECT_TRUE(copy.is_sure()) << "it might be a restart";
  EXPECT_TRUE(copy.OnRefused(Self(kHere, 6)));
  EXPECT_EQ(copy.standing(), Standing::kRefused);
  const v1::Reason reason = *copy.Problem();
  EXPECT_EQ(reason.code(), "NODE_ID_CLASH");
  EXPECT_NE(reason.message().find("weaver-1 (10.0.0.1:7000), which answers"), std::string::npos);
  EXPECT_NE(reason.message().find("machine-id"), std::string::npos) << reason.message();
  EXPECT_NE(reason.remedy().find("on weaver-9"), std::string::npos) << reason.remedy();
  EXPECT_NE(reason.remedy().find("--new-identity"), std::string::npos) << reason.remedy();
  // Whom it was copied from stays, whoever says what.
  IdentityGuard first = Guard(kHere);
  first.OnTaken(Id('b'));
  EXPECT_FALSE(first.OnRefused(CopyHere(7)));
  EXPECT_TRUE(first.KeepsPlace());
  EXPECT_TRUE(first.Problem().has_value()) << "it tells of the copy";
}

TEST(IdentityGuard, ItsFormerRunAtTheSamePlaceRefusesNobody) {
  IdentityGuard guard = Guard(kHere);
  EXPECT_FALSE(guard.OnRefused(Self(kHere, 5)));
  EXPECT_TRUE(guard.is_sure());
}

TEST(IdentityGuard, OneThatHasJustStartedYieldsToWhoeverRuns) {
  IdentityGuard guard = Guard(kHere);
  EXPECT_FALSE(guard.KeepsPlace());
  EXPECT_TRUE(guard.OnRefused(Self(kElsewhere, 9)));
}

TEST(IdentityGuard, OfTwoThatAreSettledExactlyOneStays) {
  for (const auto& [here, elsewhere] : {std::pair(5, 6), std::pair(6, 5), std::pair(6, 6)}) {
    IdentityGuard one(kHere, {}, kStart), two(kElsewhere, {}, kStart);
    one.SetSelf(Self(kHere, here));
    two.SetSelf(Self(kElsewhere, elsewhere));
    one.OnTaken(Id('b'));
    two.OnTick(kStart + seconds(2));
    ASSERT_TRUE(one.KeepsPlace() && two.KeepsPlace());
    const bool first = one.OnRefused(Self(kElsewhere, elsewhere));
    const bool second = two.OnRefused(Self(kHere, here));
    EXPECT_NE(first, second);
    EXPECT_EQ(first, here > elsewhere) << "a copy has started once more";
    EXPECT_TRUE((first ? two : one).Problem().has_value()) << "the one that stays tells of it too";
  }
}

}  // namespace
}  // namespace macrame::agentd
