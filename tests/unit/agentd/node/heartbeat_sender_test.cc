#include "agentd/node/heartbeat_sender.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>

#include "agentd/cores/node_news.h"
#include "agentd/node/grpc_channels.h"
#include "agentd/node/report_table.h"
#include "tests/support/fake_dispatcher.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Worth = MemberMonitor::BeaconWorth;

constexpr uint64_t kNews = 77;

// A port that takes connections and never answers.
class SilentPort {
 public:
  SilentPort() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(fd_, 64), 0);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
  }
  ~SilentPort() { close(fd_); }
  uint32_t port() const { return port_; }

 private:
  int fd_;
  uint32_t port_ = 0;
};

v1::NodeIdentity IdentityAt(const NodeId& node, uint32_t port) {
  v1::NodeIdentity identity;
  identity.set_node_id(node.value());
  identity.set_incarnation(1);
  identity.set_hostname("host-" + node.value().substr(0, 1));
  identity.set_control_port(port);
  v1::NodeAddress& address = *identity.add_addresses();
  address.set_ip("127.0.0.1");
  address.set_interface_kind(v1::INTERFACE_KIND_LOOPBACK);
  return identity;
}

NodeId Id(char digit) { return NodeId(std::string(32, digit)); }

class HeartbeatSenderTest : public ::testing::Test {
 protected:
  HeartbeatSenderTest() { channels_.UsePlain(); }

  // Ticks as the agent does while `duration` passes; beacons of `heard` come each 500 ms.
  void Pass(Duration duration, const std::vector<NodeId>& heard = {}, uint64_t news = kNews) {
    for (Duration passed{}; passed < duration; passed += milliseconds(50)) {
      for (const NodeId& node : heard) {
        if (passed.count() % Duration(milliseconds(500)).count() == 0) {
          sender_.NoteBeacon({node, "", 0, 1, ++sequence_, news}, Worth::kHeard);
        }
      }
      sender_.Tick();
      now_ += milliseconds(50);
      dispatcher_.AdvanceBy(milliseconds(50));
    }
  }
  void Join(const NodeId& node) {
    members_.HeardMember(IdentityAt(node, port_.port()), "", false);
    sender_.TakeAddresses();
    sender_.NoteReceived(node);
  }
  int Sent() const {
    int all = 0;
    for (const auto& [node, count] : sent_) all += count;
    return all;
  }

  transport::FakeDispatcher dispatcher_;
  MonotonicTime now_ = dispatcher_.Now();
  SilentPort port_;
  const NodeId self_ = Id('0');
  // Of '0' and an even digit '0' calls first, of '0' and an odd one the other.
  const NodeId ours_ = Id('2');
  const NodeId theirs_ = Id('3');
  PeerChannels channels_{GrpcChannels(dispatcher_, self_)};
  MemberMonitor members_{dispatcher_,
                         IdentityAt(self_, 1),
                         discovery::FailureLimits(),
                         {[](const auto&) {}, [](const NodeId&) {}, [](const NodeId&) { return 0; },
                          [](const NodeId&) {}}};
  std::map<NodeId, int> sent_;
  bool urgent_ = false;
  uint64_t sequence_ = 0;
  v1::Inventory inventory_;
  v1::NodeLinks links_;
  HeartbeatSender sender_{
      dispatcher_,
      channels_,
      members_,
      self_,
      HeartbeatOptions(),
      {[] { return v1::HeartbeatRequest(); },
       [this]() -> const v1::Inventory& { return inventory_; },
       [this](const NodeId& node) {  // asked once for each heartbeat that is sent
         ++sent_[node];
         return uint64_t{0};
       },
       [this]() -> const v1::NodeLinks& { return links_; },
       [](const NodeId&) { return uint64_t{0}; }, [](const NodeId&, v1::HeartbeatResponse) {},
       [](const NodeId&) { return kNews; }, [this](const NodeId&) { return urgent_; }}};
};

TEST_F(HeartbeatSenderTest, OfTwoNodesOneCallsFirst) {
  int first = 0;
  for (char a = '0'; a <= '9'; ++a) {
    for (char b = '0'; b <= '9'; ++b) {
      if (a == b) continue;
      EXPECT_NE(CallsFirst(Id(a), Id(b)), CallsFirst(Id(b), Id(a)));
      first += CallsFirst(Id('4'), Id(b)) && a == '0';
    }
  }
  EXPECT_NEAR(first, 4, 1);
}

TEST_F(HeartbeatSenderTest, WhoseBeaconsAreHeardIsCalledSeldom) {
  Join(ours_);
  Join(theirs_);
  Pass(milliseconds(9950), {ours_, theirs_});
  EXPECT_EQ(Sent(), 0);
  Pass(milliseconds(250), {ours_, theirs_});
  EXPECT_EQ(sent_[ours_], 1);
  EXPECT_EQ(sent_[theirs_], 0) << "it is the other's turn";
  Pass(milliseconds(2500), {ours_, theirs_});
  EXPECT_EQ(sent_[theirs_], 1) << "which is late";
}

TEST_F(HeartbeatSenderTest, OfManyMembersEachIsCalledMoreSeldom) {
  std::vector<NodeId> all;
  for (const char a : std::string("2468bdf")) {
    for (const char b : std::string("02")) {
      all.push_back(NodeId(std::string(31, a) + b));
      Join(all.back());
    }
  }
  Pass(milliseconds(15000), all);
  EXPECT_EQ(Sent(), 0) << "14 members: 17.5 s, and a quarter more where it is the other's turn";
  Pass(milliseconds(7000), all);
  EXPECT_EQ(sent_.size(), 14u);
}

// Whoever is heard only by beacons counts for dead after a while: what is sent comes before.
TEST(FullInterval, GrowsWithTheMembersAndStaysWhereBeaconsAreTrusted) {
  const HeartbeatOptions options;
  EXPECT_EQ(FullInterval(options, 1), seconds(10));
  EXPECT_EQ(FullInterval(options, 8), seconds(10));
  EXPECT_EQ(FullInterval(options, 12), seconds(15));
  EXPECT_EQ(FullInterval(options, 1000), seconds(20));
  EXPECT_LT(FullInterval(options, 1000) * 5 / 4 + options.timeout * 4,
            discovery::FailureLimits().beacons_trusted_for);
}

TEST_F(HeartbeatSenderTest, WhoseBeaconsStayAwayIsCalledBeforeItIsSuspect) {
  Join(ours_);
  Pass(milliseconds(2000), {ours_});
  EXPECT_EQ(Sent(), 0);
  Pass(milliseconds(350));
  EXPECT_EQ(Sent(), 0) << "one beacon that is late says nothing";
  Pass(milliseconds(150));
  EXPECT_EQ(sent_[ours_], 1) << "1 s after the last beacon; suspect_after is 1.5 s";
}

TEST_F(HeartbeatSenderTest, WithoutBeaconsEachIntervalAndOnlyOneOfThePairCalls) {
  Join(ours_);
  Join(theirs_);
  for (int i = 0; i < 3; ++i) {
    Pass(milliseconds(550));
    sender_.NoteReceived(theirs_);
    sender_.NoteReceived(ours_);
  }
  EXPECT_EQ(sent_[ours_], 1) << "which is not answered here, so no second one is sent yet";
  EXPECT_EQ(sent_[theirs_], 0);
}

TEST_F(HeartbeatSenderTest, ABeaconWithNewsIsAskedAtOnceWhereTheyAreActedOn) {
  Join(ours_);
  Pass(seconds(1), {ours_});
  Pass(milliseconds(900), {ours_}, kNews + 1);
  EXPECT_EQ(Sent(), 0) << "nobody acts on them here";
  Pass(milliseconds(300), {ours_}, kNews + 1);
  EXPECT_EQ(Sent(), 1) << "2 s after the last exchange";
  sent_.clear();
  urgent_ = true;
  Join(Id('4'));
  Pass(seconds(1), {Id('4')});
  EXPECT_EQ(sent_[Id('4')], 0);
  Pass(milliseconds(50), {Id('4')}, kNews + 1);
  EXPECT_EQ(sent_[Id('4')], 1);
}

TEST_F(HeartbeatSenderTest, WhoGoesByCountersHasThemAtEachInterval) {
  Join(ours_);
  Join(theirs_);
  Pass(milliseconds(1000), {ours_, theirs_});
  EXPECT_EQ(Sent(), 0);
  sender_.KeepFresh();
  Pass(milliseconds(100), {ours_, theirs_});
  EXPECT_EQ(sent_[ours_], 1);
  EXPECT_EQ(sent_[theirs_], 1) << "whoever's turn it is";
  sent_.clear();
  for (int i = 0; i < 10; ++i) {
    sender_.NoteReceived(ours_);
    sender_.NoteReceived(theirs_);
    sender_.KeepFresh();
    Pass(milliseconds(550), {ours_, theirs_});
  }
  EXPECT_GE(sent_[ours_], 2) << "three unanswered ones at most";
  EXPECT_GE(sent_[theirs_], 2);
}

// Of a member that can be called one way only, both calls tell: by the other's alone it is healthy.
TEST_F(HeartbeatSenderTest, WhoIsCalledFromIsCalledBackOnce) {
  Join(theirs_);
  const auto pass = [&](Duration duration) {
    for (Duration passed{}; passed < duration; passed += milliseconds(500)) {
      sender_.NoteReceived(theirs_);
      Pass(milliseconds(500), {theirs_});
    }
  };
  pass(seconds(29));
  EXPECT_EQ(Sent(), 0);
  pass(seconds(2));
  EXPECT_GE(sent_[theirs_], 1);
}

TEST_F(HeartbeatSenderTest, AnAgentThatTellsNoNewsIsCalledAsIfItWereNotHeard) {
  Join(ours_);
  Pass(milliseconds(550), {ours_}, 0);
  EXPECT_EQ(sent_[ours_], 1);
}

TEST_F(HeartbeatSenderTest, CandidatesAreDialledAFewAtATimeByWhoseTurnItIs) {
  for (const char digit : std::string("2468bdf")) {
    members_.HeardCandidate(IdentityAt(Id(digit), port_.port()));
  }
  members_.HeardCandidate(IdentityAt(theirs_, port_.port()));
  sender_.Wake();
  sender_.Tick();
  EXPECT_LE(Sent(), kFirstCallsMax);
  EXPECT_GE(Sent(), 1);
  EXPECT_TRUE(sender_.IsSearching());
  Pass(milliseconds(900));
  EXPECT_LE(Sent(), kFirstCallsMax) << "their slots are taken for a second";
  EXPECT_EQ(sent_[theirs_], 0);
  Pass(seconds(3));
  EXPECT_EQ(sent_[theirs_], 1) << "it did not call in time";
}

TEST(NodeNews, OnlyWhatOthersActOnIsNews) {
  v1::HeartbeatRequest heartbeat;
  heartbeat.set_inventory_revision(3);
  v1::RankStatus& rank = *heartbeat.add_ranks();
  rank.set_deployment("tiny");
  rank.set_phase(v1::RANK_PHASE_LOADING);
  const uint64_t before = NewsOf(heartbeat);
  EXPECT_NE(before, 0u);
  rank.set_tokens_per_second(12);
  heartbeat.set_sequence(9);
  heartbeat.mutable_load()->set_memory_available_bytes(5);
  EXPECT_EQ(NewsOf(heartbeat), before);
  rank.set_phase(v1::RANK_PHASE_READY);
  const uint64_t ready = NewsOf(heartbeat);
  EXPECT_NE(ready, before);
  heartbeat.set_draining(true);
  EXPECT_NE(NewsOf(heartbeat), ready);
  heartbeat.set_draining(false);
  heartbeat.set_inventory_revision(4);
  EXPECT_NE(NewsOf(heartbeat), ready);
}

TEST(NodeNews, TheReceiverOfAHeartbeatHasTheDigestThatItsSendersBeaconTells) {
  const NodeId node = Id('a');
  ReportTable reports;
  EXPECT_EQ(reports.NewsHeard(node), 0u);
  v1::HeartbeatRequest heartbeat;
  *heartbeat.mutable_identity() = IdentityAt(node, 7);
  heartbeat.set_sequence(1);
  heartbeat.add_ranks()->set_deployment("tiny");
  reports.Take(node, heartbeat, MonotonicTime(seconds(1)));
  EXPECT_EQ(reports.NewsHeard(node), NewsOf(heartbeat));
}

}  // namespace
}  // namespace macrame::agentd
