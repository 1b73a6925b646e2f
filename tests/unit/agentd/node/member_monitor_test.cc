#include "agentd/node/member_monitor.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "agentd/cores/log_guard.h"
#include "agentd/node/peer_channels.h"
#include "tests/support/fake_dispatcher.h"

namespace macrame::agentd {
namespace {

using discovery::MembershipChange;
using std::chrono::milliseconds;

v1::NodeIdentity Identity(char digit, uint64_t incarnation = 1) {
  v1::NodeIdentity identity;
  identity.set_node_id(std::string(32, digit));
  identity.set_incarnation(incarnation);
  identity.set_hostname(std::string("host-") + digit);
  identity.set_control_port(4000);
  return identity;
}

class MemberMonitorTest : public ::testing::Test {
 protected:
  // Ticks as the agent does while `duration` passes.
  void Pass(Duration duration) {
    for (Duration passed{}; passed < duration; passed += milliseconds(100)) {
      dispatcher_.AdvanceBy(milliseconds(100));
      monitor_.Tick();
    }
  }
  MemberMonitor::BeaconWorth HearBeacon(uint64_t incarnation, uint64_t sequence,
                                        const std::string& machine = "", uint32_t port = 4000) {
    return monitor_.HeardBeacon({peer_, machine, port, incarnation, sequence, 0});
  }
  int Count(MembershipChange change) const {
    int count = 0;
    for (const auto& event : events_) count += event.change == change;
    return count;
  }

  transport::FakeDispatcher dispatcher_;
  std::vector<discovery::MembershipEvent> events_;
  int probes_ = 0;
  int asks_sent_ = 0;  // each time the monitor wants it
  std::vector<NodeId> gone_;
  MemberMonitor monitor_{
      dispatcher_,
      Identity('0'),
      discovery::FailureLimits(),
      {[this](const auto& event) { events_.push_back(event); },
       [this](const NodeId&) { ++probes_; }, [this](const NodeId&) { return asks_sent_; },
       [this](const NodeId& node) { gone_.push_back(node); }}};
  const NodeId peer_{std::string(32, 'a')};
};

// Anybody on the network can send beacons with names of its choice.
TEST_F(MemberMonitorTest, UnknownNodesOfManyNamesDoNotHideInTheLogThatAMemberDied) {
  std::ostringstream log;
  const std::shared_ptr<spdlog::logger> before = spdlog::default_logger();
  auto logger = std::make_shared<spdlog::logger>(
      "lines", std::make_shared<spdlog::sinks::ostream_sink_mt>(log));
  logger->set_pattern("%v");
  spdlog::set_default_logger(std::move(logger));
  monitor_.HeardMember(Identity('a'), "10.0.0.2", false);
  for (int i = 0; i < 2000; ++i) {
    v1::UnknownNode unknown;
    unknown.set_node_id(absl::StrFormat("%032x", i + 1));
    std::string name;
    for (int n = i; n > 0; n /= 16) name.push_back(static_cast<char>('g' + n % 16));
    unknown.mutable_reason()->set_message(name + " at 10.0.0.9 has no secret");
    monitor_.HeardUnknownNode(unknown);
  }
  Pass(std::chrono::seconds(6));
  spdlog::set_default_logger(before);
  ASSERT_EQ(Count(MembershipChange::kDead), 1);

  LogGuard guard;
  bool told = false;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(log.str(), '\n'))) {
    const auto written = guard.Take(line, dispatcher_.Now());
    told |= written.has_value() && written->find("host-a (aaaaaaaa): dead") != std::string::npos;
  }
  EXPECT_TRUE(told);
}

TEST_F(MemberMonitorTest, AMemberThatAnswersNoBeaconIsDeadSooner) {
  for (const int asks : {0, 2}) {
    monitor_.HeardMember(Identity('a', static_cast<uint64_t>(2 + asks)), "10.0.0.2", false);
    asks_sent_ = asks;
    const MonotonicTime start = dispatcher_.Now();
    while (monitor_.IsAlive(peer_) || monitor_.Live().contains(peer_)) {
      dispatcher_.AdvanceBy(std::chrono::milliseconds(100));
      monitor_.Tick();
      ASSERT_LT(dispatcher_.Now() - start, std::chrono::seconds(4));
    }
    const auto took = dispatcher_.Now() - start;
    EXPECT_EQ(took, std::chrono::milliseconds(asks == 0 ? 3000 : 1900));
  }
}

TEST_F(MemberMonitorTest, AMemberThatRefusesAndIsSilentIsGoneAndASilentOneIsNot) {
  monitor_.HeardMember(Identity('a'), "10.0.0.2", false);
  monitor_.HeardMember(Identity('b'), "10.0.0.3", false);
  for (int tenths = 0; tenths < 40; ++tenths) {
    dispatcher_.AdvanceBy(milliseconds(100));
    if (tenths == 6 || tenths == 9) {
      monitor_.HeartbeatFailed(peer_, discovery::HeartbeatFailure::kRefused);
    }
    monitor_.Tick();
  }
  EXPECT_FALSE(monitor_.IsAlive(peer_));
  EXPECT_FALSE(monitor_.IsAlive(NodeId(std::string(32, 'b')))) << "dead by its silence";
  EXPECT_EQ(gone_, std::vector<NodeId>{peer_});
}

TEST_F(MemberMonitorTest, ARevokedMemberIsForgottenAndNotListenedToAgain) {
  monitor_.HeardMember(Identity('a'), "10.0.0.2", false);
  monitor_.HeardMember(Identity('b'), "10.0.0.3", false);
  monitor_.SetRevoked({peer_});
  EXPECT_FALSE(monitor_.IsMember(peer_));
  EXPECT_EQ(monitor_.Live().size(), 1u);
  EXPECT_EQ(Count(MembershipChange::kForgotten), 1);
  monitor_.HeardMember(Identity('a', 2), "10.0.0.2", false);
  monitor_.HeardCandidate(Identity('a', 2));
  EXPECT_FALSE(monitor_.IsMember(peer_));
  EXPECT_EQ(monitor_.table().HeartbeatTargets().size(), 1u);
}

TEST_F(MemberMonitorTest, ACandidateIsNoMemberUntilItsHeartbeat) {
  monitor_.HeardCandidate(Identity('a'));
  EXPECT_FALSE(monitor_.IsMember(peer_));
  EXPECT_TRUE(monitor_.Live().empty());
  monitor_.HeardMember(Identity('a'), "10.0.0.2", false);
  EXPECT_TRUE(monitor_.IsAlive(peer_));
  EXPECT_EQ(Count(MembershipChange::kJoined), 1);
  EXPECT_EQ(monitor_.Live().size(), 1u);
}

TEST_F(MemberMonitorTest, SilenceMakesSuspectThenDeadAndAHeartbeatAliveAgain) {
  monitor_.HeardMember(Identity('a'), "", true);
  Pass(milliseconds(2000));
  EXPECT_EQ(Count(MembershipChange::kSuspect), 1);
  EXPECT_GT(probes_, 0);
  EXPECT_EQ(monitor_.Live().size(), 1u);
  Pass(milliseconds(6000));
  EXPECT_EQ(Count(MembershipChange::kDead), 1);
  EXPECT_TRUE(monitor_.Live().empty());
  EXPECT_EQ(monitor_.All().size(), 1u);
  monitor_.HeardMember(Identity('a'), "", false);
  EXPECT_TRUE(monitor_.IsAlive(peer_));
}

TEST_F(MemberMonitorTest, TwoRefusalsAreEnoughForOneThatIsNotHeardEither) {
  monitor_.HeardMember(Identity('a'), "", true);
  Pass(milliseconds(1000));
  EXPECT_EQ(Count(MembershipChange::kSuspect), 0);
  monitor_.HeartbeatFailed(peer_, discovery::HeartbeatFailure::kRefused);
  monitor_.HeartbeatFailed(peer_, discovery::HeartbeatFailure::kRefused);
  EXPECT_EQ(Count(MembershipChange::kDead), 1);
}

TEST_F(MemberMonitorTest, WhoLeftComesBackOnlyWithALaterRun) {
  monitor_.HeardMember(Identity('a', 1), "", true);
  monitor_.Leave(peer_);
  EXPECT_TRUE(monitor_.All().empty());
  monitor_.HeardMember(Identity('a', 1), "", true);
  EXPECT_FALSE(monitor_.IsAlive(peer_));
  monitor_.HeardMember(Identity('a', 2), "", true);
  EXPECT_TRUE(monitor_.IsAlive(peer_));
  Pass(milliseconds(1000));
  EXPECT_TRUE(monitor_.IsAlive(peer_));
}

TEST_F(MemberMonitorTest, BeaconsOfItsRunKeepAMemberAlive) {
  using Worth = MemberMonitor::BeaconWorth;
  EXPECT_EQ(HearBeacon(1, 1), Worth::kNothing) << "no member yet";
  monitor_.HeardMember(Identity('a', 2), "", true);
  EXPECT_EQ(HearBeacon(1, 9), Worth::kNothing) << "an earlier run";
  for (uint64_t number = 1; number <= 20; ++number) {
    EXPECT_EQ(HearBeacon(2, number), Worth::kHeard);
    Pass(milliseconds(500));
  }
  EXPECT_TRUE(monitor_.IsAlive(peer_));
  EXPECT_EQ(Count(MembershipChange::kSuspect), 0);
  EXPECT_EQ(HearBeacon(3, 1), Worth::kWantsHeartbeat) << "a later run";
}

TEST_F(MemberMonitorTest, ABeaconThatIsPlayedAgainIsNoSignOfLife) {
  using Worth = MemberMonitor::BeaconWorth;
  monitor_.HeardMember(Identity('a'), "", true);
  EXPECT_EQ(HearBeacon(1, 7), Worth::kHeard);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(HearBeacon(1, 7), Worth::kNothing);
    EXPECT_EQ(HearBeacon(1, 6), Worth::kNothing);
    Pass(milliseconds(500));
  }
  EXPECT_EQ(Count(MembershipChange::kDead), 1);
  EXPECT_EQ(HearBeacon(1, 8), Worth::kWantsHeartbeat);
  EXPECT_FALSE(monitor_.IsAlive(peer_)) << "the dead are raised by a heartbeat alone";
  monitor_.Leave(peer_);
  EXPECT_EQ(HearBeacon(1, 9), Worth::kNothing);
}

TEST_F(MemberMonitorTest, ABeaconOfACopyOfItsDiskIsNoSignOfLife) {
  using Worth = MemberMonitor::BeaconWorth;
  v1::NodeIdentity identity = Identity('a');
  identity.set_machine("machine1");
  monitor_.HeardMember(identity, "", true);
  EXPECT_EQ(HearBeacon(1, 3, "machine1"), Worth::kHeard);
  for (uint64_t number = 1; number <= 10; ++number) {
    EXPECT_EQ(HearBeacon(9, number, "machine2"), Worth::kNothing) << "another machine";
    EXPECT_EQ(HearBeacon(1, 50 + number, "", 4001), Worth::kNothing) << "another port";
    Pass(milliseconds(500));
  }
  EXPECT_EQ(Count(MembershipChange::kDead), 1);
  EXPECT_EQ(HearBeacon(1, 4, "machine1"), Worth::kWantsHeartbeat) << "the copy's numbers count not";
}

TEST(HostPortTest, AddressesOfBothFamilies) {
  EXPECT_EQ(HostPort("10.0.0.7", 80), "10.0.0.7:80");
  EXPECT_EQ(HostPort("fd00::7", 80), "[fd00::7]:80");
}

TEST_F(MemberMonitorTest, OneThatIsHeardAndCantBeCalledIsTold) {
  monitor_.HeardMember(Identity('a'), "10.0.0.2", false);
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(monitor_.Undialled().empty() || i >= 4);
    monitor_.HeartbeatFailed(peer_, discovery::HeartbeatFailure::kTimeout);
    Pass(milliseconds(500));
    monitor_.HeardMember(Identity('a'), "10.0.0.2", false);
  }
  EXPECT_EQ(monitor_.Undialled(), std::set<NodeId>{peer_});
  monitor_.NoteCall(peer_, true);
  EXPECT_TRUE(monitor_.Undialled().empty());
}

TEST_F(MemberMonitorTest, ACopyCountsForNothingAndTheMemberIsAsked) {
  v1::NodeIdentity member = Identity('a', 1), copy = Identity('a', 2);
  member.set_machine("machine1");
  copy.set_machine("machine2");
  monitor_.HeardMember(member, "10.0.0.2", true, dispatcher_.Now());
  dispatcher_.AdvanceBy(milliseconds(500));
  EXPECT_EQ(monitor_.HeardMember(copy, "10.0.0.9", false), discovery::Admission::kAsked);
  EXPECT_EQ(probes_, 1);
  monitor_.HeardMember(member, "", true, dispatcher_.Now());
  EXPECT_EQ(monitor_.HeardMember(copy, "10.0.0.9", false), discovery::Admission::kRefused);
  EXPECT_EQ(Count(MembershipChange::kIdClash), 1);
  EXPECT_EQ(Count(MembershipChange::kRestarted), 0);
  // The member falls silent; what its copy says keeps it no more alive than before.
  for (int i = 0; i < 40 && monitor_.IsAlive(peer_); ++i) {
    Pass(milliseconds(100));
    monitor_.HeardMember(copy, "10.0.0.9", false);
  }
  Pass(milliseconds(2000));
  EXPECT_EQ(Count(MembershipChange::kDead), 1);
  EXPECT_EQ(monitor_.HeardMember(copy, "10.0.0.9", false), discovery::Admission::kTaken);
}

}  // namespace
}  // namespace macrame::agentd
