#include "agentd/cores/link_schedule.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

using std::chrono::seconds;

LinkPair Pair(const std::string& to, const std::string& ip) {
  LinkPair pair;
  pair.to_node_id = to;
  pair.from_ip = "10.0.0.1";
  pair.to_ip = ip;
  return pair;
}

MonotonicTime At(double s) {
  return MonotonicTime() + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s));
}

TEST(LinkSchedule, MeasuresEachPairOnceAndOneAtATime) {
  LinkSchedule schedule;
  schedule.SetPairs({Pair("b", "10.0.0.2"), Pair("c", "10.0.0.3")});
  EXPECT_FALSE(schedule.IsIdle());
  const auto first = schedule.Next(At(1));
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(schedule.Next(At(1)).has_value()) << "one is under way";
  schedule.Done(*first, true, At(1));
  EXPECT_FALSE(schedule.Next(At(1.05)).has_value()) << "a pause between any two";
  const auto second = schedule.Next(At(1.2));
  ASSERT_TRUE(second.has_value());
  EXPECT_NE(first->to_ip, second->to_ip);
  schedule.Done(*second, true, At(1.2));
  EXPECT_TRUE(schedule.IsIdle());
  EXPECT_FALSE(schedule.Next(At(300)).has_value());
  EXPECT_TRUE(schedule.Next(At(700)).has_value()) << "seldom again";
}

TEST(LinkSchedule, FailuresAreTriedEverMoreSeldom) {
  LinkSchedule schedule;
  schedule.SetPairs({Pair("b", "10.0.0.2")});
  double now = 1;
  double pause = 0;
  for (int i = 0; i < 4; ++i) {
    const auto pair = schedule.Next(At(now));
    ASSERT_TRUE(pair.has_value()) << now;
    schedule.Done(*pair, false, At(now));
    double next = now;
    while (!schedule.Next(At(next)).has_value()) next += 0.5;
    schedule.Done(*pair, false, At(next));  // what the loop started
    EXPECT_GT(next - now, pause);
    pause = next - now;
    now = next + 400;
    schedule.Hurry("nobody");
  }
}

TEST(LinkSchedule, WhatFailedOfAPeerThatIsBackIsTriedAtOnce) {
  LinkSchedule schedule;
  schedule.SetPairs({Pair("b", "10.0.0.2"), Pair("c", "10.0.0.3")});
  schedule.Done(*schedule.Next(At(1)), false, At(1));
  schedule.Done(*schedule.Next(At(2)), false, At(2));
  EXPECT_FALSE(schedule.Next(At(3)).has_value());
  schedule.RetryFailed("c");
  const auto pair = schedule.Next(At(3));
  ASSERT_TRUE(pair.has_value());
  EXPECT_EQ(pair->to_node_id, "c");
  schedule.Done(*pair, true, At(3));
  schedule.RetryFailed("c");
  EXPECT_FALSE(schedule.Next(At(4)).has_value()) << "what is known is not measured for that";
}

TEST(LinkSchedule, APairThatChangedIsMeasuredAtOnce) {
  LinkSchedule schedule;
  LinkPair pair = Pair("b", "10.0.0.2");
  schedule.SetPairs({pair});
  schedule.Done(*schedule.Next(At(1)), true, At(1));
  schedule.SetPairs({pair});
  EXPECT_FALSE(schedule.Next(At(2)).has_value());
  pair.from_interface = "en9";
  schedule.SetPairs({pair});
  EXPECT_TRUE(schedule.Next(At(3)).has_value());
}

// A measurement that began before the cable was plugged in again tells of the old one.
TEST(LinkSchedule, AChangeDuringAMeasurementIsMeasuredOnceMore) {
  LinkPair pair = Pair("b", "10.0.0.2");
  for (const char* how : {"hurry", "interface", "gone and back", "gone and added"}) {
    SCOPED_TRACE(how);
    LinkSchedule schedule;
    schedule.SetPairs({pair});
    const auto first = schedule.Next(At(1));
    ASSERT_TRUE(first.has_value());
    const std::string way = how;
    if (way == "interface") pair.from_interface = "en9";
    if (way == "hurry") {
      schedule.Hurry("b");
    } else {
      if (way.starts_with("gone")) schedule.SetPairs({});
      if (way == "gone and added") {
        schedule.AddPairs({pair});
      } else {
        schedule.SetPairs({pair});
      }
    }
    EXPECT_FALSE(schedule.Next(At(2)).has_value()) << "one at a time";
    schedule.Done(*first, true, At(3));
    EXPECT_FALSE(schedule.IsIdle());
    const auto second = schedule.Next(At(4));
    ASSERT_TRUE(second.has_value());
    EXPECT_EQ(second->from_interface, pair.from_interface);
    schedule.Done(*second, true, At(5));
    EXPECT_TRUE(schedule.IsIdle());
    EXPECT_FALSE(schedule.Next(At(6)).has_value()) << "once is enough";
  }
}

v1::LinkFacts Facts(const std::string& id, const std::string& hardware, const std::string& name,
                    v1::InterfaceKind kind, const std::string& ip) {
  v1::LinkFacts facts;
  facts.set_node_id(id);
  facts.set_hardware_id(hardware);
  v1::LinkInterface& interface = *facts.add_interfaces();
  interface.set_name(name);
  interface.set_kind(kind);
  v1::NodeAddress& address = *interface.add_addresses();
  address.set_ip(ip);
  address.set_prefix_length(24);
  return facts;
}

// A cable and a LAN: from the LAN's address to the cable's, packets would go over the cable.
TEST(LinkPairs, AddressesOfASubnetAreReachedFromItAlone) {
  const auto kind = v1::INTERFACE_KIND_ETHERNET;
  v1::LinkFacts a = Facts("a", "m", "lan0", kind, "192.0.2.1");
  v1::LinkFacts b = Facts("b", "n", "lan0", kind, "192.0.2.2");
  *a.add_interfaces() = Facts("a", "m", "cable0", kind, "198.51.100.1").interfaces(0);
  *b.add_interfaces() = Facts("b", "n", "cable0", kind, "198.51.100.2").interfaces(0);
  EXPECT_EQ(PairsBetween(a, b, false).size(), 2u);
  // Cut at one end: what is left is the LAN.
  a.mutable_interfaces(1)->set_is_up(v1::FACT_NO);
  const auto left = PairsBetween(a, b, false);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].to_ip, "192.0.2.2");
  // Behind a router every address may do.
  const v1::LinkFacts far = Facts("c", "o", "eth0", kind, "203.0.113.9");
  EXPECT_EQ(PairsBetween(a, far, false).size(), 1u);
}

TEST(LinkPairs, TwoAgentsInOneStackHaveTheLoopbackAlone) {
  const auto kind = v1::INTERFACE_KIND_ETHERNET;
  const v1::LinkFacts a = Facts("a", "m", "eth0", kind, "192.0.2.1");
  v1::LinkFacts b = Facts("b", "m", "eth0", kind, "192.0.2.1");
  const auto pairs = PairsBetween(a, b, false);
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].to_ip, "127.0.0.1");
  b = Facts("b", "m", "eth0", kind, "192.0.2.2");  // a namespace of its own on the same machine
  ASSERT_EQ(PairsBetween(a, b, false).size(), 1u);
  EXPECT_EQ(PairsBetween(a, b, false)[0].to_ip, "192.0.2.2");
}

TEST(LinkPairs, BridgesAndVpnsAreLeftOut) {
  const v1::LinkFacts a = Facts("a", "m", "en0", v1::INTERFACE_KIND_ETHERNET, "192.0.2.1");
  EXPECT_TRUE(
      PairsBetween(a, Facts("b", "n", "bridge100", v1::INTERFACE_KIND_BRIDGE, "192.0.2.2"), true)
          .empty());
  const v1::LinkFacts vpn = Facts("b", "n", "utun1", v1::INTERFACE_KIND_VPN, "192.0.2.2");
  EXPECT_TRUE(PairsBetween(a, vpn, false).empty());
  EXPECT_TRUE(PairsBetween(a, Facts("b", "n", "en0", v1::INTERFACE_KIND_ETHERNET, "0.0.0.0"), true)
                  .empty());
}

}  // namespace
}  // namespace macrame::agentd
