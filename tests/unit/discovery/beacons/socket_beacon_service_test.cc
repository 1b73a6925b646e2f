// Several services on one machine's loopback, over real sockets.

#include "discovery/beacons/socket_beacon_service.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <set>

#include "tests/unit/free_port.h"
#include "transport/asio_dispatcher.h"

namespace macrame::discovery {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string IdOf(char digit) { return std::string(32, digit); }

BeaconTrust Trust(char seed = 'k') { return {"loom", std::string(8, seed), std::string(32, seed)}; }

std::string LoopbackName() {
  const auto interfaces = ListInterfaces(KindFromName);
  for (const Interface& interface : *interfaces) {
    if (interface.is_loopback) return interface.name;
  }
  return "";
}

class Peer {
 public:
  Peer(transport::AsioDispatcher& dispatcher, char digit, BeaconServiceOptions options,
       std::optional<BeaconTrust> trust, uint32_t control_port = 0) {
    v1::NodeIdentity self;
    self.set_node_id(IdOf(digit));
    self.set_incarnation(1);
    self.set_hostname(std::string("weaver-") + digit);
    self.set_control_port(control_port == 0 ? 7000u + static_cast<unsigned char>(digit)
                                            : control_port);
    self.set_agent_version("0.1.0");
    BeaconServiceCallbacks callbacks;
    callbacks.on_peer = [this](const v1::NodeIdentity& identity) {
      peers[identity.node_id()] = identity;
    };
    callbacks.on_beacon = [this](const HeardBeacon& beacon) { beacons.push_back(beacon); };
    callbacks.news = [digit] { return 70u + static_cast<unsigned char>(digit); };
    callbacks.on_unknown_node = [this](const v1::UnknownNode& unknown_node) {
      unknown_nodes[unknown_node.node_id()] = unknown_node;
    };
    callbacks.on_own_id_elsewhere = [this](const v1::NodeIdentity& identity, bool) {
      clash_with = identity.hostname();
    };
    service = std::make_unique<SocketBeaconService>(dispatcher, std::move(options), self,
                                                    std::move(trust), std::move(callbacks));
    service->Start();
  }

  std::map<std::string, v1::NodeIdentity> peers;
  std::map<std::string, v1::UnknownNode> unknown_nodes;
  std::vector<HeardBeacon> beacons;
  std::string clash_with;
  std::unique_ptr<SocketBeaconService> service;
};

class SocketBeaconServiceTest : public ::testing::Test {
 protected:
  BeaconServiceOptions Options() {
    BeaconServiceOptions options;
    options.port = port_;
    options.interfaces = {LoopbackName()};
    return options;
  }

  // Runs until `done` holds, at most `limit`. The dispatcher can be run once, so once a test.
  bool RunUntil(std::function<bool()> done, Duration limit) {
    const MonotonicTime until = dispatcher_.Now() + limit;
    std::function<void()> look = [&] {
      if (done() || dispatcher_.Now() >= until) {
        dispatcher_.Stop();
      } else {
        dispatcher_.PostAfter(milliseconds(5), look);
      }
    };
    dispatcher_.Post(look);
    dispatcher_.Run();
    return done();
  }

  transport::AsioDispatcher dispatcher_;
  const uint16_t port_ = FreePort(SOCK_DGRAM);
};

TEST_F(SocketBeaconServiceTest, ThreeOnOneMachineFindEachOther) {
  Peer a(dispatcher_, 'a', Options(), Trust());
  Peer b(dispatcher_, 'b', Options(), Trust());
  Peer c(dispatcher_, 'c', Options(), Trust());
  const MonotonicTime start = dispatcher_.Now();
  ASSERT_TRUE(
      RunUntil([&] { return a.peers.size() == 2 && b.peers.size() == 2 && c.peers.size() == 2; },
               seconds(5)));
  std::cout << "all three heard by all after " << (dispatcher_.Now() - start).count() / 1000
            << " ms\n";
  const v1::NodeIdentity& seen = a.peers.at(IdOf('b'));
  EXPECT_EQ(seen.hostname(), "weaver-b");
  EXPECT_EQ(seen.control_port(), 7000u + 'b');
  EXPECT_EQ(seen.addresses(0).ip(), "127.0.0.1");
  EXPECT_EQ(seen.addresses(0).interface_kind(), v1::INTERFACE_KIND_LOOPBACK);
  EXPECT_TRUE(a.unknown_nodes.empty());
  EXPECT_TRUE(a.service->Problems().empty());
}

TEST_F(SocketBeaconServiceTest, AMemberThatIsAskedAnswersTwiceAlsoBetweenItsTurns) {
  BeaconServiceOptions options = Options();
  options.intervals.searching = options.intervals.settled = seconds(60);
  Peer a(dispatcher_, 'a', options, Trust());
  Peer b(dispatcher_, 'b', options, Trust());
  EXPECT_EQ(a.service->Ask(NodeId(IdOf('b'))), 0) << "it was never heard";
  size_t before = 0;
  dispatcher_.PostAfter(milliseconds(1200), [&] {  // the burst is over
    ASSERT_TRUE(a.peers.contains(IdOf('b')));
    b.service->SetTakesTurns(true);
    before = a.beacons.size();
    EXPECT_EQ(a.service->Ask(NodeId(IdOf('b'))), 2);
  });
  ASSERT_TRUE(RunUntil([&] { return before != 0 && a.beacons.size() >= before + 2; }, seconds(5)));
  EXPECT_EQ(a.beacons.back().node.value(), IdOf('b'));
  EXPECT_GT(a.beacons.back().sequence, a.beacons[before - 1].sequence);
}

TEST_F(SocketBeaconServiceTest, OthersAreSeenAndNamedButNoPeers) {
  Peer member(dispatcher_, 'a', Options(), Trust());
  Peer other(dispatcher_, 'b', Options(), Trust('o'));
  Peer without(dispatcher_, 'c', Options(), std::nullopt);
  BeaconTrust forged = Trust();
  forged.key = std::string(32, 'f');
  Peer forger(dispatcher_, 'd', Options(), forged);
  ASSERT_TRUE(RunUntil(
      [&] { return member.unknown_nodes.size() == 3 && without.unknown_nodes.size() == 3; },
      seconds(5)));
  EXPECT_EQ(member.unknown_nodes.at(IdOf('b')).reason().code(), "OTHER_CLUSTER");
  EXPECT_EQ(member.unknown_nodes.at(IdOf('c')).reason().code(), "NO_SECRET");
  EXPECT_EQ(member.unknown_nodes.at(IdOf('d')).reason().code(), "BAD_SIGNATURE");
  EXPECT_EQ(without.unknown_nodes.at(IdOf('a')).cluster_name(), "loom");
  EXPECT_TRUE(member.peers.empty());
  EXPECT_TRUE(without.peers.empty());
}

TEST_F(SocketBeaconServiceTest, TheSecretMayArriveLater) {
  Peer a(dispatcher_, 'a', Options(), Trust());
  Peer b(dispatcher_, 'b', Options(), std::nullopt);
  dispatcher_.PostAfter(milliseconds(300), [&] { ASSERT_TRUE(b.service->SetTrust(Trust()).ok()); });
  EXPECT_TRUE(RunUntil([&] { return a.peers.size() == 1 && b.peers.size() == 1; }, seconds(5)));
}

TEST_F(SocketBeaconServiceTest, ACopiedStateFolderIsNoticedByBoth) {
  Peer a(dispatcher_, 'a', Options(), Trust(), 7001);
  Peer copy(dispatcher_, 'a', Options(), Trust(), 7002);
  EXPECT_TRUE(
      RunUntil([&] { return !a.clash_with.empty() && !copy.clash_with.empty(); }, seconds(5)));
  EXPECT_TRUE(a.peers.empty());
}

TEST_F(SocketBeaconServiceTest, WhoTakesTurnsHearsWhatHasComeInAndSendsSignsOfLife) {
  Peer a(dispatcher_, 'a', Options(), Trust());
  Peer b(dispatcher_, 'b', Options(), Trust());
  for (Peer* peer : {&a, &b}) {
    peer->service->SetAllPeersConnected(true);
    peer->service->SetSignsOfLife(true);
  }
  // Turns of 250 ms, as a quiet agent takes them; a only listens for three seconds.
  int turns = 0;
  std::function<void()> turn = [&] {
    a.service->SetTakesTurns(true);
    a.service->Turn();
    ++turns;
    dispatcher_.PostAfter(milliseconds(250), turn);
  };
  dispatcher_.PostAfter(milliseconds(1000), turn);
  ASSERT_TRUE(RunUntil([&] { return turns == 12; }, seconds(10)));
  // The burst's five, then one each 500 ms, and each beacon in a turn.
  EXPECT_GE(a.beacons.size(), 8u);
  EXPECT_GE(b.beacons.size(), 8u);
  size_t told = 0;
  for (size_t i = 1; i < a.beacons.size(); ++i) {
    EXPECT_GT(a.beacons[i].sequence, a.beacons[i - 1].sequence);
    const uint64_t news = a.beacons[i].news;
    EXPECT_TRUE(news == 0 || news == 70u + 'b') << news;
    told += news != 0;
  }
  EXPECT_GE(told, 5u);
}

TEST_F(SocketBeaconServiceTest, ASeedIsEnoughWhereBroadcastsDoNotReach) {
  // Two ports: each hears only what is sent to its own, hence only what a seed names.
  BeaconServiceOptions first = Options();
  BeaconServiceOptions second = Options();
  second.port = FreePort(SOCK_DGRAM);
  second.seeds = {"127.0.0.1:" + std::to_string(first.port)};
  Peer a(dispatcher_, 'a', first, Trust());
  Peer b(dispatcher_, 'b', second, Trust());
  EXPECT_TRUE(RunUntil([&] { return a.peers.size() == 1 && b.peers.size() == 1; }, seconds(5)));
}

TEST_F(SocketBeaconServiceTest, TroublesAreListedWithARemedy) {
  BeaconServiceOptions options = Options();
  options.interfaces = {"nosuch0"};
  options.seeds = {"bad:port:number:[", "ok.invalid:99999"};
  Peer a(dispatcher_, 'a', options, Trust());
  std::set<std::string> codes;
  for (const v1::Reason& reason : a.service->Problems()) {
    codes.insert(reason.code());
    EXPECT_FALSE(reason.remedy().empty()) << reason.code();
  }
  EXPECT_TRUE(codes.contains("NO_INTERFACE"));
  EXPECT_TRUE(codes.contains("SEED_UNRESOLVED"));
}

TEST_F(SocketBeaconServiceTest, ATakenPortIsToldAndTakenOverWhenFree) {
  const int holder = socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port_);
  ASSERT_EQ(bind(holder, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  BeaconServiceOptions options = Options();
  options.interface_poll = milliseconds(50);
  Peer a(dispatcher_, 'a', options, Trust());
  const auto has_port_problem = [&] {
    for (const v1::Reason& reason : a.service->Problems()) {
      if (reason.code() == "PORT_TAKEN") return true;
    }
    return false;
  };
  EXPECT_TRUE(has_port_problem());
  close(holder);
  EXPECT_TRUE(RunUntil([&] { return !has_port_problem(); }, seconds(5)));
}

TEST_F(SocketBeaconServiceTest, FloodsOfNoiseAreCountedAndDoNotHinder) {
  Peer a(dispatcher_, 'a', Options(), Trust());
  Peer b(dispatcher_, 'b', Options(), Trust());
  const int sender = socket(AF_INET, SOCK_DGRAM, 0);
  const int on = 1;
  setsockopt(sender, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on));
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(port_);
  inet_pton(AF_INET, "127.255.255.255", &target.sin_addr);
  std::function<void()> shout = [&] {
    for (int i = 0; i < 50; ++i) {
      const std::string noise(static_cast<size_t>(i * 30), static_cast<char>('A' + i % 26));
      sendto(sender, noise.data(), noise.size(), 0, reinterpret_cast<sockaddr*>(&target),
             sizeof(target));
    }
    dispatcher_.PostAfter(milliseconds(2), shout);
  };
  dispatcher_.Post(shout);
  EXPECT_TRUE(RunUntil(
      [&] {
        return a.peers.size() == 1 && b.peers.size() == 1 &&
               a.service->Count(BeaconVerdict::kMalformed) > 200;
      },
      seconds(5)));
  close(sender);
}

}  // namespace
}  // namespace macrame::discovery
