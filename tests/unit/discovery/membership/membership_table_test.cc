#include "discovery/membership/membership_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace macrame::discovery {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const MonotonicTime kStart(std::chrono::hours(2));
const std::string kSelf = "0000000000000000000000000000aaaa";
const std::string kB = "b0bb0000000000000000000000000001";
const std::string kC = "c0cc0000000000000000000000000002";

v1::NodeAddress Address(const std::string& ip, v1::InterfaceKind kind = v1::INTERFACE_KIND_ETHERNET,
                        const std::string& name = "en0", uint32_t prefix = 24) {
  v1::NodeAddress address;
  address.set_ip(ip);
  address.set_interface_name(name);
  address.set_interface_kind(kind);
  address.set_prefix_length(prefix);
  return address;
}

v1::NodeIdentity Identity(const std::string& id, uint64_t incarnation, const std::string& hostname,
                          std::vector<v1::NodeAddress> addresses) {
  v1::NodeIdentity identity;
  identity.set_node_id(id);
  identity.set_incarnation(incarnation);
  identity.set_hostname(hostname);
  identity.set_control_port(7000);
  identity.set_agent_version("0.1.0");
  for (auto& address : addresses) *identity.add_addresses() = address;
  return identity;
}

MembershipTable Table() {
  return MembershipTable(Identity(kSelf, 1, "weaver-1", {Address("10.0.0.1")}));
}

std::vector<std::string> Names(const MembershipEvents& events) {
  std::vector<std::string> names;
  for (const auto& event : events) names.push_back(std::string(MembershipChangeName(event.change)));
  return names;
}

// What everybody is called by a node that met the others in this order.
std::map<std::string, std::string> CalledBy(const v1::NodeIdentity& self,
                                            const std::vector<v1::NodeIdentity>& met) {
  MembershipTable table(self);
  for (const v1::NodeIdentity& other : met) {
    if (other.node_id() != self.node_id()) table.HearMember(other, nullptr, kStart);
  }
  std::map<std::string, std::string> names;
  for (const v1::NodeIdentity& one : met) {
    names[one.node_id()] = table.DisplayName(NodeId(one.node_id()));
  }
  return names;
}

std::vector<std::string> Ips(const std::vector<v1::NodeAddress>& addresses) {
  std::vector<std::string> ips;
  for (const auto& address : addresses) ips.push_back(address.ip());
  return ips;
}

v1::Reason Dead() {
  v1::Reason reason;
  reason.set_code("NODE_DEAD");
  return reason;
}

TEST(MembershipTable, NodesOfOneHostnameAreCalledTheSameByEverybody) {
  const std::vector<v1::NodeIdentity> nodes = {Identity(kSelf, 1, "studio", {Address("10.0.0.1")}),
                                               Identity(kB, 1, "studio", {Address("10.0.0.2")}),
                                               Identity(kC, 1, "mini", {Address("10.0.0.3")})};
  const std::map<std::string, std::string> names = {
      {kSelf, "studio-0000"}, {kB, "studio-b0bb"}, {kC, "mini"}};
  std::vector<size_t> order = {0, 1, 2};
  do {
    const std::vector<v1::NodeIdentity> met = {nodes[order[0]], nodes[order[1]], nodes[order[2]]};
    for (const v1::NodeIdentity& self : nodes) EXPECT_EQ(CalledBy(self, met), names);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(MembershipTable, CandidateBecomesMember) {
  MembershipTable table = Table();
  table.HearCandidate(Identity(kB, 3, "weaver-2", {Address("10.0.0.2")}), kStart);
  ASSERT_EQ(table.HeartbeatTargets().size(), 1u);
  EXPECT_EQ(table.HeartbeatTargets()[0].state, v1::NODE_STATE_UNSPECIFIED);
  EXPECT_FALSE(table.AllMembersAlive());
  EXPECT_TRUE(table.Members().empty());
  const auto events =
      table.HearMember(Identity(kB, 3, "weaver-2", {Address("10.0.0.2")}), nullptr, kStart);
  EXPECT_THAT(Names(events), ElementsAre("joined"));
  ASSERT_EQ(table.HeartbeatTargets().size(), 1u);
  EXPECT_EQ(table.HeartbeatTargets()[0].state, v1::NODE_STATE_ALIVE);
  EXPECT_EQ(table.HeartbeatTargets()[0].control_port, 7000u);
  EXPECT_TRUE(table.AllMembersAlive());
  EXPECT_THAT(Names(table.HearMember(Identity(kB, 3, "weaver-2", {Address("10.0.0.2")}), nullptr,
                                     kStart + seconds(1))),
              IsEmpty());
}

TEST(MembershipTable, OneNodeOnManyAddressesIsOneNodeBestFirst) {
  MembershipTable table(Identity(
      kSelf, 1, "weaver-1",
      {Address("10.0.0.1"), Address("192.168.7.1", v1::INTERFACE_KIND_THUNDERBOLT, "en2", 30)}));
  const auto wifi = Address("10.9.0.2", v1::INTERFACE_KIND_WIFI, "en1");
  const auto ethernet = Address("10.0.0.2");
  const auto thunderbolt = Address("192.168.7.2", v1::INTERFACE_KIND_THUNDERBOLT, "en3", 30);
  const auto far_thunderbolt = Address("192.168.8.2", v1::INTERFACE_KIND_THUNDERBOLT, "en4", 30);
  const auto vpn = Address("100.64.0.2", v1::INTERFACE_KIND_VPN, "utun3");
  const auto bridge = Address("10.55.0.2", v1::INTERFACE_KIND_BRIDGE, "bridge0");
  for (const auto& address : {wifi, ethernet, thunderbolt}) {
    table.HearCandidate(Identity(kB, 3, "weaver-2", {address}), kStart);
  }
  EXPECT_EQ(table.HeartbeatTargets().size(), 1u);
  table.HearMember(
      Identity(kB, 3, "weaver-2", {bridge, vpn, wifi, ethernet, far_thunderbolt, thunderbolt}),
      nullptr, kStart);
  ASSERT_EQ(table.Members().size(), 1u);
  // Where it was met or a network is shared, then what is worth a try: no link to its other
  // neighbour.
  EXPECT_THAT(
      Ips(table.HeartbeatTargets()[0].addresses),
      ElementsAre("192.168.7.2", "10.0.0.2", "10.9.0.2", "192.168.8.2", "100.64.0.2", "10.55.0.2"));
}

TEST(MembershipTable, LoopbackAddressesOfOthersAreOnlyForThoseWhoUseLoopback) {
  const auto loopback = Address("127.0.0.1", v1::INTERFACE_KIND_LOOPBACK, "lo", 8);
  MembershipTable apart = Table();
  apart.HearMember(Identity(kB, 1, "b", {loopback, Address("10.0.0.2")}), nullptr, kStart);
  EXPECT_THAT(Ips(apart.HeartbeatTargets()[0].addresses), ElementsAre("10.0.0.2"));
  MembershipTable same_machine(Identity(kSelf, 1, "a", {loopback}));
  same_machine.HearMember(Identity(kB, 1, "b", {loopback}), nullptr, kStart);
  EXPECT_THAT(Ips(same_machine.HeartbeatTargets()[0].addresses), ElementsAre("127.0.0.1"));
}

TEST(MembershipTable, OlderNewsIsIgnoredAndARestartIsSeen) {
  MembershipTable table = Table();
  table.HearMember(Identity(kB, 5, "weaver-2", {Address("10.0.0.2")}), nullptr, kStart);
  EXPECT_THAT(Names(table.HearMember(Identity(kB, 4, "old-name", {Address("10.0.0.9")}), nullptr,
                                     kStart + seconds(1))),
              IsEmpty());
  EXPECT_EQ(table.Find(NodeId(kB))->identity.hostname(), "weaver-2");
  EXPECT_THAT(Names(table.HearMember(Identity(kB, 6, "weaver-2", {Address("10.0.0.3")}), nullptr,
                                     kStart + seconds(2))),
              ElementsAre("restarted"));
  EXPECT_THAT(Ips(table.HeartbeatTargets()[0].addresses), ElementsAre("10.0.0.3"));
}

TEST(MembershipTable, DeathAndReturn) {
  MembershipTable table = Table();
  table.HearMember(Identity(kB, 5, "weaver-2", {Address("10.0.0.2")}), nullptr, kStart);
  EXPECT_THAT(Names(table.SetState(NodeId(kB), v1::NODE_STATE_SUSPECT, {}, kStart)),
              ElementsAre("suspect"));
  EXPECT_THAT(Names(table.SetState(NodeId(kB), v1::NODE_STATE_SUSPECT, {}, kStart)), IsEmpty());
  EXPECT_EQ(table.LiveMembers().size(), 1u);
  EXPECT_THAT(Names(table.SetState(NodeId(kB), v1::NODE_STATE_DEAD, Dead(), kStart)),
              ElementsAre("dead"));
  EXPECT_TRUE(table.LiveMembers().empty());
  EXPECT_EQ(table.Members().size(), 1u);
  EXPECT_EQ(table.Find(NodeId(kB))->state_reason.code(), "NODE_DEAD");
  EXPECT_FALSE(table.AllMembersAlive());
  EXPECT_EQ(table.HeartbeatTargets().size(), 1u);  // it may come back
  EXPECT_TRUE(table.KnownIdentities().empty());
  table.Tick(kStart + std::chrono::hours(100));
  EXPECT_EQ(table.Members().size(), 1u);  // and never vanishes
  EXPECT_THAT(Names(table.HearMember(Identity(kB, 5, "weaver-2", {Address("10.0.0.2")}), nullptr,
                                     kStart + seconds(9))),
              ElementsAre("alive"));
  EXPECT_EQ(table.Find(NodeId(kB))->state_reason.code(), "");
}

TEST(MembershipTable, AGoodbyeOfTheRunBeforeIsNothing) {
  MembershipTable table = Table();
  const auto identity = Identity(kB, 6, "weaver-2", {Address("10.0.0.2")});
  table.HearMember(identity, nullptr, kStart);
  EXPECT_THAT(Names(table.Leave(NodeId(kB), Incarnation(5), kStart)), IsEmpty());
  EXPECT_EQ(table.Find(NodeId(kB))->state, v1::NODE_STATE_ALIVE);
  EXPECT_THAT(Names(table.Leave(NodeId(kB), Incarnation(6), kStart)), ElementsAre("left"));
}

TEST(MembershipTable, OneThatLeftStaysAwayUntilItStartsAgain) {
  MembershipTable table = Table();
  const auto identity = Identity(kB, 5, "weaver-2", {Address("10.0.0.2")});
  table.HearMember(identity, nullptr, kStart);
  EXPECT_THAT(Names(table.Leave(NodeId(kB), Incarnation(5), kStart)), ElementsAre("left"));
  EXPECT_TRUE(table.HeartbeatTargets().empty());
  EXPECT_TRUE(table.AllMembersAlive());
  EXPECT_THAT(Names(table.HearMember(identity, nullptr, kStart + seconds(1))), IsEmpty());
  EXPECT_THAT(Names(table.SetState(NodeId(kB), v1::NODE_STATE_DEAD, Dead(), kStart)), IsEmpty());
  table.HearCandidate(Identity(kB, 6, "weaver-2", {Address("10.0.0.2")}), kStart + seconds(2));
  EXPECT_EQ(table.HeartbeatTargets().size(), 1u);
  EXPECT_THAT(Names(table.HearMember(Identity(kB, 6, "weaver-2", {Address("10.0.0.2")}), nullptr,
                                     kStart + seconds(2))),
              ElementsAre("restarted"));
  EXPECT_EQ(table.LiveMembers().size(), 1u);
}

TEST(MembershipTable, ForgettingIsForTheDead) {
  MembershipTable table = Table();
  table.HearMember(Identity(kB, 5, "weaver-2", {Address("10.0.0.2")}), nullptr, kStart);
  EXPECT_EQ(table.Forget(NodeId(kB)).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(table.Forget(NodeId(kC)).status().code(), absl::StatusCode::kNotFound);
  table.SetState(NodeId(kB), v1::NODE_STATE_DEAD, Dead(), kStart);
  EXPECT_TRUE(table.Forget(NodeId(kB)).ok());
  EXPECT_TRUE(table.Members().empty());
}

TEST(MembershipTable, TwoHostsWithOneIdClash) {
  MembershipTable table = Table();
  const auto first = Identity(kB, 5, "weaver-2", {Address("10.0.0.2")});
  const auto clone = Identity(kB, 5, "weaver-9", {Address("10.0.0.9")});
  table.HearMember(first, nullptr, kStart);
  table.HearMember(clone, nullptr, kStart + seconds(1));  // may have moved
  const auto events = table.HearMember(first, nullptr, kStart + seconds(2));
  ASSERT_THAT(Names(events), ElementsAre("id_clash"));
  EXPECT_EQ(events[0].reason.code(), "NODE_ID_CLASH");
  EXPECT_NE(events[0].reason.message().find("weaver-9"), std::string::npos);
  // Said once, listed while it lasts.
  EXPECT_THAT(Names(table.HearMember(first, nullptr, kStart + seconds(3))), IsEmpty());
  ASSERT_EQ(table.Problems(kStart + seconds(4)).size(), 1u);
  EXPECT_EQ(table.Members().size(), 1u);
  EXPECT_TRUE(table.Problems(kStart + seconds(60)).empty());
}

TEST(MembershipTable, ClonesOnOneHostnameAreFoundByTheirAddresses) {
  MembershipTable table = Table();
  table.HearMember(Identity(kB, 5, "weaver-2", {Address("10.0.0.2")}), nullptr, kStart);
  table.HearMember(Identity(kB, 5, "weaver-2", {Address("10.0.0.9")}), nullptr,
                   kStart + seconds(1));
  EXPECT_THAT(Names(table.HearMember(Identity(kB, 5, "weaver-2", {Address("10.0.0.2")}), nullptr,
                                     kStart + seconds(2))),
              ElementsAre("id_clash"));
}

TEST(MembershipTable, AFormerIncarnationThatKeepsSpeakingIsAClash) {
  MembershipTable table = Table();
  table.HearMember(Identity(kB, 5, "weaver-2", {Address("10.0.0.2")}), nullptr, kStart);
  table.HearMember(Identity(kB, 6, "weaver-9", {Address("10.0.0.9")}), nullptr,
                   kStart + seconds(1));
  const auto old = Identity(kB, 5, "weaver-2", {Address("10.0.0.2")});
  EXPECT_THAT(Names(table.HearMember(old, nullptr, kStart + seconds(2))), IsEmpty());
  EXPECT_THAT(Names(table.HearMember(old, nullptr, kStart + seconds(10))), ElementsAre("id_clash"));
}

TEST(MembershipTable, MovesAndFlappingLinksAreNoClash) {
  MembershipTable table = Table();
  const auto wifi = Address("10.9.0.2", v1::INTERFACE_KIND_WIFI, "en1");
  for (int i = 0; i < 20; ++i) {
    const auto now = kStart + seconds(i);
    const auto events =
        i % 2 == 0
            ? table.HearMember(Identity(kB, 5, "b", {Address("10.0.0.2"), wifi}), nullptr, now)
            : table.HearMember(Identity(kB, 5, "b", {wifi}), nullptr, now);
    for (const auto& name : Names(events)) EXPECT_NE(name, "id_clash");
  }
  // A new lease, once.
  EXPECT_THAT(Names(table.HearMember(Identity(kB, 5, "b", {Address("10.7.0.2")}), nullptr,
                                     kStart + seconds(30))),
              ElementsAre("changed"));
}

TEST(MembershipTable, OwnIdElsewhere) {
  MembershipTable table = Table();
  EXPECT_THAT(
      Names(table.HearMember(Identity(kSelf, 9, "copy", {Address("10.0.0.8")}), nullptr, kStart)),
      ElementsAre("id_clash"));
  EXPECT_THAT(Names(table.HearOwnIdElsewhere("copy", "10.0.0.8", kStart + seconds(1))), IsEmpty());
  EXPECT_TRUE(table.Members().empty());
  EXPECT_EQ(table.Problems(kStart + seconds(1)).size(), 1u);
}

TEST(MembershipTable, HostnamesMayCollide) {
  MembershipTable table = Table();
  EXPECT_THAT(Names(table.HearMember(Identity(kB, 1, "Mac Studio", {Address("10.0.0.2")}), nullptr,
                                     kStart)),
              ElementsAre("joined"));
  EXPECT_EQ(table.DisplayName(NodeId(kB)), "Mac Studio");
  EXPECT_THAT(Names(table.HearMember(Identity(kC, 1, "mac studio.local", {Address("10.0.0.3")}),
                                     nullptr, kStart)),
              ElementsAre("joined", "hostname_clash"));
  EXPECT_EQ(table.DisplayName(NodeId(kB)), "Mac Studio-b0bb");
  EXPECT_EQ(table.DisplayName(NodeId(kC)), "mac studio.local-c0cc");
  EXPECT_EQ(table.DisplayName(NodeId(kSelf)), "weaver-1");
  EXPECT_EQ(table.DisplayName(NodeId("d000000000000000000000000000000d")), "d0000000");
}

TEST(MembershipTable, VersionSkewIsTold) {
  MembershipTable table = Table();
  auto identity = Identity(kB, 1, "weaver-2", {Address("10.0.0.2")});
  identity.set_agent_version("0.2.0");
  EXPECT_THAT(Names(table.HearMember(identity, nullptr, kStart)),
              ElementsAre("joined", "version_skew"));
  ASSERT_EQ(table.Problems(kStart).size(), 1u);
  EXPECT_EQ(table.Problems(kStart)[0].code(), "VERSION_SKEW");
}

TEST(MembershipTable, UnknownNodesAreCountedAndBounded) {
  MembershipTable table = Table();
  v1::UnknownNode unknown_node;
  unknown_node.set_hostname("other");
  unknown_node.mutable_reason()->set_code("OTHER_CLUSTER");
  unknown_node.set_node_id(kB);
  EXPECT_THAT(Names(table.HearUnknownNode(unknown_node, kStart)), ElementsAre("unknown node"));
  for (int i = 0; i < 9; ++i) {
    EXPECT_THAT(Names(table.HearUnknownNode(unknown_node, kStart + seconds(i))), IsEmpty());
  }
  EXPECT_EQ(table.UnknownNodes()[0].beacons_heard(), 10u);
  unknown_node.mutable_reason()->set_code("BAD_SIGNATURE");
  EXPECT_THAT(Names(table.HearUnknownNode(unknown_node, kStart + seconds(9))),
              ElementsAre("unknown node"));
  for (int i = 0; i < 1000; ++i) {
    unknown_node.set_node_id("x" + std::to_string(i));
    table.HearUnknownNode(unknown_node, kStart + seconds(10));
  }
  EXPECT_EQ(table.UnknownNodes().size(), kUnknownNodesMax);
  table.Tick(kStart + seconds(100));
  EXPECT_TRUE(table.UnknownNodes().empty());
  EXPECT_TRUE(table.Members().empty());
}

std::string IdOf(int i) {
  char id[33];
  snprintf(id, sizeof(id), "%032x", i + 4096);
  return id;
}

TEST(MembershipTable, MembersAreBoundedAndOnlyTheGoneEvict) {
  MembershipTable table = Table();
  for (size_t i = 0; i < kMembersMax; ++i) {
    table.HearMember(Identity(IdOf(static_cast<int>(i)), 1, "n" + std::to_string(i), {}), nullptr,
                     kStart);
  }
  EXPECT_THAT(Names(table.HearMember(Identity(kB, 1, "late", {}), nullptr, kStart)),
              ElementsAre("refused"));
  EXPECT_THAT(Names(table.HearMember(Identity(kB, 1, "late", {}), nullptr, kStart + seconds(1))),
              IsEmpty());
  table.SetState(NodeId(IdOf(7)), v1::NODE_STATE_DEAD, Dead(), kStart + seconds(2));
  table.SetState(NodeId(IdOf(3)), v1::NODE_STATE_DEAD, Dead(), kStart + seconds(3));
  const auto events = table.HearMember(Identity(kB, 1, "late", {}), nullptr, kStart + seconds(4));
  ASSERT_THAT(Names(events), ElementsAre("forgotten", "joined"));
  EXPECT_EQ(events[0].node.value(), IdOf(7));
  table.Leave(NodeId(IdOf(9)), Incarnation(0), kStart + seconds(5));
  const auto next = table.HearMember(Identity(kC, 1, "later", {}), nullptr, kStart + seconds(6));
  ASSERT_THAT(Names(next), ElementsAre("forgotten", "joined"));
  EXPECT_EQ(next[0].node.value(), IdOf(9));
}

TEST(MembershipTable, CandidatesAreBoundedAndForgotten) {
  MembershipTable table = Table();
  for (int i = 0; i < 1000; ++i) {
    table.HearCandidate(Identity(IdOf(i), 1, "c", {Address("10.0.0.2")}), kStart);
  }
  EXPECT_EQ(table.HeartbeatTargets().size(), kCandidatesMax);
  for (int i = 0; i < 100; ++i) {
    table.HearCandidate(Identity(IdOf(1), 1, "c", {Address("10.1.0." + std::to_string(i))}),
                        kStart);
  }
  for (const auto& target : table.HeartbeatTargets()) {
    EXPECT_LE(target.addresses.size(), kAddressesPerNodeMax);
  }
  table.Tick(kStart + seconds(31));
  EXPECT_TRUE(table.HeartbeatTargets().empty());
  table.HearCandidate(Identity("not an id", 1, "c", {}), kStart);
  table.HearCandidate(Identity(kSelf, 1, "me", {}), kStart);
  EXPECT_TRUE(table.HeartbeatTargets().empty());
}

v1::NodeIdentity OnMachine(const v1::NodeIdentity& identity, char machine) {
  v1::NodeIdentity on = identity;
  on.set_machine(std::string(8, machine));
  return on;
}

TEST(MembershipTable, ACopyOfALiveMemberIsRefusedWhateverItsIncarnation) {
  MembershipTable table = Table();
  const auto member = OnMachine(Identity(kB, 5, "weaver-2", {Address("10.0.0.2")}), 'm');
  const auto copy = OnMachine(Identity(kB, 6, "weaver-2", {Address("10.0.0.9")}), 'x');
  table.HearMember(member, nullptr, kStart);
  EXPECT_THAT(Names(table.HearMember(copy, nullptr, kStart + seconds(1))), IsEmpty());
  EXPECT_EQ(table.AdmissionOf(copy), Admission::kAsked) << "nobody has asked the member yet";
  // What it was asked before proves nothing, nor what it said by itself: it may have ended since.
  table.HearMember(member, nullptr, kStart + milliseconds(1200), kStart + milliseconds(900));
  table.HearMember(member, nullptr, kStart + milliseconds(1300));
  table.HearMember(copy, nullptr, kStart + milliseconds(1500));
  EXPECT_EQ(table.AdmissionOf(copy), Admission::kAsked);
  table.HearMember(member, nullptr, kStart + milliseconds(1700), kStart + milliseconds(1600));
  EXPECT_EQ(table.AdmissionOf(copy), Admission::kRefused);
  const auto events = table.HearMember(copy, nullptr, kStart + seconds(2));
  ASSERT_THAT(Names(events), ElementsAre("id_clash"));
  const v1::Reason reason = events[0].reason;
  EXPECT_EQ(reason.code(), "NODE_ID_CLASH");
  EXPECT_NE(reason.message().find("10.0.0.2:7000"), std::string::npos) << reason.message();
  EXPECT_NE(reason.message().find("10.0.0.9:7000"), std::string::npos) << reason.message();
  EXPECT_NE(reason.remedy().find("--new-identity"), std::string::npos) << reason.remedy();
  EXPECT_EQ(table.AdmissionOf(member), Admission::kTaken);
  EXPECT_EQ(table.Find(NodeId(kB))->identity.incarnation(), 5u);
  EXPECT_THAT(Ips(table.HeartbeatTargets()[0].addresses), ElementsAre("10.0.0.2"));
  EXPECT_EQ(table.Problems(kStart + seconds(3)).size(), 1u);
}

// Copies of a container or image carry one machine-id, too: they are on one machine for all that
// they say.
TEST(MembershipTable, ACopyThatSaysItIsTheSameMachineIsRefusedToo) {
  const auto member = OnMachine(Identity(kB, 5, "weaver-2", {Address("10.0.0.2")}), 'm');
  for (const auto& copy : {
           OnMachine(Identity(kB, 6, "weaver-2", {Address("10.0.0.9")}), 'm'),
           OnMachine(Identity(kB, 6, "weaver-9", {Address("10.0.0.2")}), 'm'),
           OnMachine(Identity(kB, 5, "weaver-9", {Address("10.0.0.9")}), 'm'),
       }) {
    MembershipTable table = Table();
    table.HearMember(member, nullptr, kStart);
    EXPECT_THAT(Names(table.HearMember(copy, nullptr, kStart + seconds(1))), IsEmpty());
    EXPECT_EQ(table.AdmissionOf(copy), Admission::kAsked);
    table.HearCandidate(copy, kStart + seconds(1));
    EXPECT_THAT(Ips(table.HeartbeatTargets()[0].addresses), ElementsAre("10.0.0.2"));
    table.HearMember(member, nullptr, kStart + milliseconds(1200), kStart + milliseconds(1100));
    EXPECT_THAT(Names(table.HearMember(copy, nullptr, kStart + seconds(2))),
                ElementsAre("id_clash"));
    EXPECT_EQ(table.AdmissionOf(copy), Admission::kRefused);
    EXPECT_EQ(table.AdmissionOf(member), Admission::kTaken);
    const v1::Reason reason = table.Problems(kStart + seconds(3))[0];
    EXPECT_NE(reason.message().find("machine-id"), std::string::npos) << reason.message();
    EXPECT_NE(reason.remedy().find("--new-identity"), std::string::npos) << reason.remedy();
    EXPECT_EQ(table.Find(NodeId(kB))->identity.hostname(), "weaver-2");
    // When the first is dead its place is free.
    table.SetState(NodeId(kB), v1::NODE_STATE_DEAD, Dead(), kStart + seconds(9));
    table.HearMember(copy, nullptr, kStart + seconds(10));
    EXPECT_EQ(table.Find(NodeId(kB))->identity.hostname(), copy.hostname());
    EXPECT_EQ(table.AdmissionOf(copy), Admission::kTaken);
  }
}

TEST(MembershipTable, ARestartWhereItWasIsTakenAtOnce) {
  const auto before =
      OnMachine(Identity(kB, 5, "weaver-2", {Address("10.0.0.2"), Address("10.1.0.2")}), 'm');
  for (auto after : {
           Identity(kB, 6, "weaver-2", {Address("10.0.0.2"), Address("10.1.0.2")}),
           Identity(kB, 6, "weaver-2", {Address("10.1.0.2")}),
           Identity(kB, 6, "Weaver-2.local", {}),
       }) {
    MembershipTable table = Table();
    table.HearMember(before, nullptr, kStart);
    after.set_control_port(7123);
    EXPECT_THAT(Names(table.HearMember(OnMachine(after, 'm'), nullptr, kStart + seconds(1))),
                ElementsAre("restarted"));
  }
  // What its former run said comes late, from wherever that was.
  MembershipTable table = Table();
  table.HearMember(before, nullptr, kStart);
  table.HearMember(OnMachine(Identity(kB, 6, "weaver-2", {Address("10.0.0.2")}), 'm'), nullptr,
                   kStart + seconds(1));
  const auto echo = OnMachine(Identity(kB, 4, "weaver-2", {Address("10.9.0.2")}), 'm');
  EXPECT_THAT(Names(table.HearMember(echo, nullptr, kStart + seconds(2))), IsEmpty());
  EXPECT_EQ(table.AdmissionOf(echo), Admission::kTaken);
}

TEST(MembershipTable, BeaconsOfACopyMoveNobody) {
  MembershipTable table = Table();
  table.HearMember(OnMachine(Identity(kB, 5, "weaver-2", {Address("10.0.0.2")}), 'm'), nullptr,
                   kStart);
  table.HearCandidate(OnMachine(Identity(kB, 9, "weaver-2", {Address("10.0.0.9")}), 'x'), kStart);
  EXPECT_TRUE(table.AllMembersAlive());
  EXPECT_THAT(Ips(table.HeartbeatTargets()[0].addresses), ElementsAre("10.0.0.2"));
  EXPECT_TRUE(table.Problems(kStart).empty());
}

TEST(MembershipTable, AMovedDiskTakesThePlaceOfTheDead) {
  MembershipTable table = Table();
  const auto before = OnMachine(Identity(kB, 5, "weaver-2", {Address("10.0.0.2")}), 'm');
  // An old copy: it counted fewer starts.
  const auto moved = OnMachine(Identity(kB, 3, "weaver-2", {Address("10.0.0.9")}), 'x');
  table.HearMember(before, nullptr, kStart);
  table.HearMember(moved, nullptr, kStart + seconds(1));
  table.SetState(NodeId(kB), v1::NODE_STATE_DEAD, Dead(), kStart + seconds(3));
  table.HearCandidate(moved, kStart + seconds(3));
  EXPECT_THAT(Ips(table.HeartbeatTargets()[0].addresses), ElementsAre("10.0.0.9"));
  EXPECT_THAT(Names(table.HearMember(moved, nullptr, kStart + seconds(4))),
              ElementsAre("restarted"));
  EXPECT_EQ(table.AdmissionOf(moved), Admission::kTaken);
  EXPECT_EQ(table.AdmissionOf(before), Admission::kAsked) << "the place is taken now";
  EXPECT_THAT(Ips(table.HeartbeatTargets()[0].addresses), ElementsAre("10.0.0.9"));
}

TEST(MembershipTable, AMachineThatSaysNothingOfItselfIsTheSame) {
  MembershipTable table = Table();
  table.HearMember(Identity(kB, 5, "weaver-2", {Address("10.0.0.2")}), nullptr, kStart);
  const auto upgraded = OnMachine(Identity(kB, 6, "weaver-2", {Address("10.0.0.2")}), 'm');
  EXPECT_THAT(Names(table.HearMember(upgraded, nullptr, kStart + seconds(1))),
              ElementsAre("restarted"));
}

TEST(MembershipTable, AnIncarnationThatNoNodeReachesIsNotBelieved) {
  MembershipTable table = Table();
  table.HearMember(Identity(kB, 5, "weaver-2", {Address("10.0.0.2")}), nullptr, kStart);
  const auto liar = Identity(kB, ~uint64_t{0}, "weaver-2", {Address("10.0.0.9")});
  EXPECT_THAT(Names(table.HearMember(liar, nullptr, kStart + seconds(1))), IsEmpty());
  table.HearCandidate(liar, kStart + seconds(1));
  EXPECT_EQ(table.Find(NodeId(kB))->identity.incarnation(), 5u);
  EXPECT_THAT(Ips(table.HeartbeatTargets()[0].addresses), ElementsAre("10.0.0.2"));
}

}  // namespace
}  // namespace macrame::discovery
