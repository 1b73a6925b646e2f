#include "discovery/probe/link_flaps.h"

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"

namespace macrame::discovery {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

class LinkFlapsTest : public ::testing::Test {
 protected:
  // A socket with an interface of its own, as `facts_` of the next probe.
  v1::ThunderboltPort& Port(uint32_t socket, v1::Fact connected, const std::string& peer = "") {
    v1::ThunderboltPort& port = *facts_.add_ports();
    port.set_socket(socket);
    port.set_domain_uuid(absl::StrCat("bus-", socket));
    port.set_interface_name(absl::StrCat("en", socket + 1));
    port.set_connected(connected);
    if (!peer.empty()) port.add_peers()->set_domain_uuid(peer);
    return port;
  }

  void Interface(uint32_t socket, v1::Fact is_up, v1::Fact has_carrier) {
    v1::LinkInterface& interface = *facts_.add_interfaces();
    interface.set_name(absl::StrCat("en", socket + 1));
    interface.set_is_up(is_up);
    interface.set_has_carrier(has_carrier);
  }

  // The drops of each port, after so long.
  std::vector<uint32_t> Probe(Duration later) {
    now_ += later;
    flaps_.Note(facts_, now_);
    std::vector<uint32_t> drops;
    for (const v1::ThunderboltPort& port : facts_.ports()) {
      drops.push_back(port.drops_last_hour());
    }
    facts_.Clear();
    return drops;
  }

  // One probe of socket 2 alone.
  uint32_t See(v1::Fact connected, Duration later = seconds(30), const std::string& peer = "") {
    Port(2, connected, peer);
    return Probe(later).front();
  }

  // One probe of a socket whose cable is told by its interface; system_profiler lags behind.
  uint32_t SeeCarrier(v1::Fact has_carrier, v1::Fact is_up = v1::FACT_YES,
                      v1::Fact connected = v1::FACT_YES) {
    Port(2, connected);
    Interface(2, is_up, has_carrier);
    return Probe(seconds(5)).front();
  }

  LinkFlaps flaps_;
  MonotonicTime now_{std::chrono::hours(5)};
  v1::LinkFacts facts_;
};

TEST_F(LinkFlapsTest, ALinkThatGoesAndComesIsCountedEachTime) {
  EXPECT_EQ(See(v1::FACT_YES), 0u);
  for (uint32_t times = 1; times <= 4; ++times) {
    EXPECT_EQ(See(v1::FACT_NO), times - 1);
    EXPECT_EQ(See(v1::FACT_NO, seconds(20)), times - 1) << "it is gone once";
    EXPECT_EQ(See(v1::FACT_YES, seconds(40)), times) << "a minute after it was gone";
    EXPECT_EQ(See(v1::FACT_YES), times);
  }
}

TEST_F(LinkFlapsTest, ACableThatIsPulledOrComesLaterIsNoDrop) {
  See(v1::FACT_YES);
  EXPECT_EQ(See(v1::FACT_NO), 0u);
  EXPECT_EQ(See(v1::FACT_NO, seconds(61)), 0u);
  // The Mac at the other end restarted, or the plug came back much later.
  EXPECT_EQ(See(v1::FACT_YES, seconds(1)), 0u);
  See(v1::FACT_NO);
  EXPECT_EQ(See(v1::FACT_YES, seconds(61)), 0u) << "also when no probe came in between";
  EXPECT_EQ(See(v1::FACT_NO), 0u);
  EXPECT_EQ(See(v1::FACT_YES), 1u) << "the link that came late is one that may drop";
}

TEST_F(LinkFlapsTest, ACableThatIsPluggedInForTheFirstTimeIsNoDrop) {
  EXPECT_EQ(See(v1::FACT_NO), 0u);
  EXPECT_EQ(See(v1::FACT_YES), 0u);
}

TEST_F(LinkFlapsTest, ACableThatMovesToAnotherSocketIsNoDrop) {
  Port(1, v1::FACT_YES, "peer");
  Port(2, v1::FACT_NO);
  Probe(seconds(30));
  Port(1, v1::FACT_NO);
  Port(2, v1::FACT_NO);
  Probe(seconds(5));
  Port(1, v1::FACT_NO);
  Port(2, v1::FACT_YES, "peer");
  EXPECT_EQ(Probe(seconds(5)), (std::vector<uint32_t>{0, 0}));
}

TEST_F(LinkFlapsTest, ACableThatThenLeadsToAnotherComputerIsNoDrop) {
  See(v1::FACT_YES, seconds(30), "elm");
  See(v1::FACT_NO);
  EXPECT_EQ(See(v1::FACT_YES, seconds(5), "fir"), 0u);
  See(v1::FACT_NO);
  EXPECT_EQ(See(v1::FACT_YES, seconds(5), "fir"), 1u);
  See(v1::FACT_NO);
  EXPECT_EQ(See(v1::FACT_YES, seconds(5)), 2u) << "the computer is not listed yet";
}

TEST_F(LinkFlapsTest, WhatIsUnknownCountsAsNothing) {
  See(v1::FACT_YES);
  EXPECT_EQ(See(v1::FACT_UNKNOWN), 0u);
  EXPECT_EQ(See(v1::FACT_YES), 0u) << "unknown is not gone";
  See(v1::FACT_NO, seconds(5));
  EXPECT_EQ(See(v1::FACT_UNKNOWN, seconds(5)), 0u) << "nor there again";
  Probe(seconds(5));  // no port is told at all
  EXPECT_EQ(See(v1::FACT_YES, seconds(5)), 1u);
}

TEST_F(LinkFlapsTest, TheInterfaceTellsBeforeSystemProfilerDoes) {
  EXPECT_EQ(SeeCarrier(v1::FACT_YES), 0u);
  EXPECT_EQ(SeeCarrier(v1::FACT_NO), 0u);
  EXPECT_EQ(SeeCarrier(v1::FACT_YES, v1::FACT_YES, v1::FACT_NO), 1u) << "which follows late";
  EXPECT_EQ(SeeCarrier(v1::FACT_YES), 1u) << "and adds none";
}

TEST_F(LinkFlapsTest, AnInterfaceThatIsSwitchedOffIsNoDrop) {
  SeeCarrier(v1::FACT_YES);
  SeeCarrier(v1::FACT_NO, v1::FACT_NO);
  EXPECT_EQ(SeeCarrier(v1::FACT_YES), 0u);
  SeeCarrier(v1::FACT_NO, v1::FACT_UNKNOWN);
  EXPECT_EQ(SeeCarrier(v1::FACT_YES), 0u);
}

// Its interface has no carrier, for no computer is there.
TEST_F(LinkFlapsTest, TheLinkToADockIsFollowedByWhatIsConnected) {
  SeeCarrier(v1::FACT_NO);
  SeeCarrier(v1::FACT_NO, v1::FACT_YES, v1::FACT_NO);
  EXPECT_EQ(SeeCarrier(v1::FACT_NO), 1u);
}

TEST_F(LinkFlapsTest, EachSocketHasItsOwnAndOneWithoutANumberIsKnownByItsDomain) {
  for (const v1::Fact there : {v1::FACT_YES, v1::FACT_NO, v1::FACT_YES}) {
    Port(1, v1::FACT_YES);
    Port(0, there).set_domain_uuid("bus-a");
    Port(0, v1::FACT_YES).set_domain_uuid("bus-b");
    Port(0, there).set_domain_uuid("");
    const std::vector<uint32_t> drops = Probe(seconds(30));
    EXPECT_EQ(drops[0], 0u);
    EXPECT_EQ(drops[2], 0u);
    EXPECT_EQ(drops[3], 0u) << "which socket it is, is not known";
  }
  Port(0, v1::FACT_YES).set_domain_uuid("bus-a");
  EXPECT_EQ(Probe(seconds(30)), std::vector<uint32_t>{1});
}

TEST_F(LinkFlapsTest, OneSocketThatIsToldTwiceDoesNotDropByThat) {
  for (int i = 0; i < 3; ++i) {
    Port(2, v1::FACT_YES);
    Port(2, v1::FACT_NO);
    EXPECT_EQ(Probe(seconds(5)), (std::vector<uint32_t>{0, 0}));
  }
}

TEST_F(LinkFlapsTest, DropsAreForgottenAfterAnHour) {
  See(v1::FACT_YES);
  See(v1::FACT_NO);
  EXPECT_EQ(See(v1::FACT_YES), 1u);
  See(v1::FACT_NO, minutes(30));
  EXPECT_EQ(See(v1::FACT_YES), 2u);
  EXPECT_EQ(See(v1::FACT_YES, minutes(29)), 2u);
  EXPECT_EQ(See(v1::FACT_YES, minutes(1)), 1u);
  EXPECT_EQ(See(v1::FACT_YES, minutes(31)), 0u);
}

TEST_F(LinkFlapsTest, WhatIsRememberedIsBounded) {
  for (size_t i = 0; i < 2 * LinkFlaps::kDropsMax; ++i) {
    See(v1::FACT_NO, std::chrono::milliseconds(1));
    See(v1::FACT_YES, std::chrono::milliseconds(1));
  }
  EXPECT_EQ(See(v1::FACT_YES, seconds(1)), LinkFlaps::kDropsMax);
  // More sockets than there can be: those that are known are still followed.
  for (const v1::Fact there : {v1::FACT_YES, v1::FACT_NO, v1::FACT_YES}) {
    for (int i = 0; i < 1000; ++i) Port(0, there).set_domain_uuid(absl::StrCat("bus-", i));
    const std::vector<uint32_t> drops = Probe(seconds(1));
    EXPECT_EQ(drops[900], 0u);
  }
  See(v1::FACT_NO);
  EXPECT_EQ(See(v1::FACT_YES), LinkFlaps::kDropsMax);
  // Those that are gone for an hour make way.
  Probe(minutes(61));
  for (const v1::Fact there : {v1::FACT_YES, v1::FACT_NO}) {
    Port(0, there).set_domain_uuid("bus-900");
    Probe(seconds(1));
  }
  Port(0, v1::FACT_YES).set_domain_uuid("bus-900");
  EXPECT_EQ(Probe(seconds(1)), std::vector<uint32_t>{1});
}

// Whatever probes say, there are no more drops than times that the socket was told to be empty or
// its interface to be without a carrier.
TEST_F(LinkFlapsTest, NothingCountsThatWasNeverSeenGone) {
  std::mt19937 random(7);
  const v1::Fact facts[] = {v1::FACT_UNKNOWN, v1::FACT_NO, v1::FACT_YES};
  for (int round = 0; round < 200; ++round) {
    flaps_ = LinkFlaps();
    uint32_t gone = 0;
    for (int probe = 0; probe < 50; ++probe) {
      const v1::Fact connected = facts[random() % 3], carrier = facts[random() % 3];
      gone += connected == v1::FACT_NO || carrier == v1::FACT_NO ? 1 : 0;
      Port(2, connected);
      Interface(2, facts[random() % 3], carrier);
      EXPECT_LE(Probe(seconds(random() % 50)).front(), gone);
    }
  }
}

}  // namespace
}  // namespace macrame::discovery
