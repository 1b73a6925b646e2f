// Who is answered by a beacon service, how often, and what it says: with a node played by hand.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "discovery/beacons/socket_beacon_service.h"
#include "transport/asio_dispatcher.h"

namespace macrame::discovery {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string IdOf(char digit) { return std::string(32, digit); }

BeaconTrust Trust(char seed = 'k') { return {"loom", std::string(8, seed), std::string(32, seed)}; }

// A socket on the loopback interface: a node whose beacons are written by hand.
class Hand {
 public:
  Hand() : fd_(::socket(AF_INET, SOCK_DGRAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Hand() { ::close(fd_); }
  Hand(const Hand&) = delete;
  Hand& operator=(const Hand&) = delete;

  uint16_t port() const {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin_port);
  }
  void Send(const std::string& bytes, uint16_t port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    ::sendto(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof(to));
  }
  // What has come in by now.
  std::vector<std::string> Take() {
    std::vector<std::string> frames;
    char bytes[2048];
    while (true) {
      const ssize_t got = ::recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
      if (got < 0) return frames;
      frames.emplace_back(bytes, static_cast<size_t>(got));
    }
  }

 private:
  const int fd_;
};

class BeaconAnswersTest : public ::testing::Test {
 protected:
  BeaconAnswersTest() {
    const auto interfaces = ListInterfaces(KindFromName);
    for (const Interface& interface : *interfaces) {
      if (interface.is_loopback) options_.interfaces = {interface.name};
    }
    {
      const Hand free;
      options_.port = free.port();
    }
    // Nothing goes out by itself once the burst is over.
    options_.intervals.searching = seconds(60);
    options_.interface_poll = milliseconds(50);
    self_.set_node_id(IdOf('a'));
    self_.set_incarnation(1);
    self_.set_hostname("weaver-a");
    self_.set_control_port(7001);
  }

  void Start() {
    BeaconServiceCallbacks callbacks;
    callbacks.on_peer_clock = [this](const NodeId& node, uint64_t sent_unix_ms) {
      told_.push_back(absl::StrCat("clock ", node.value().substr(0, 1), " ", sent_unix_ms));
    };
    callbacks.on_peer = [this](const v1::NodeIdentity& identity) {
      told_.push_back(absl::StrCat("peer ", identity.hostname()));
    };
    callbacks.on_beacon = [this](const HeardBeacon& beacon) {
      told_.push_back(absl::StrCat("beacon ", beacon.sequence));
    };
    callbacks.on_unknown_node = [this](const v1::UnknownNode& node) {
      told_.push_back(absl::StrCat("unknown ", node.reason().code()));
    };
    service_ = std::make_unique<SocketBeaconService>(dispatcher_, options_, self_, Trust(),
                                                     std::move(callbacks));
    service_->Start();
  }

  // Plays `steps` one after the other, each when the one before has been true; once a test.
  bool Play(std::vector<std::function<bool()>> steps, Duration limit = seconds(20)) {
    size_t at = 0;
    const MonotonicTime until = dispatcher_.Now() + limit;
    std::function<void()> look = [&] {
      while (at < steps.size() && steps[at]()) ++at;
      if (at == steps.size() || dispatcher_.Now() >= until) return dispatcher_.Stop();
      dispatcher_.PostAfter(milliseconds(5), look);
    };
    dispatcher_.Post(look);
    dispatcher_.Run();
    return at == steps.size();
  }
  // A step that lets time pass.
  std::function<bool()> Wait(Duration time) {
    return [this, time, until = std::optional<MonotonicTime>()]() mutable {
      if (!until) until = dispatcher_.Now() + time;
      return dispatcher_.Now() >= *until;
    };
  }
  std::function<bool()> Do(std::function<void()> what) {
    return [what = std::move(what)] {
      what();
      return true;
    };
  }

  static BeaconCodec Codec(char digit, std::optional<BeaconTrust> trust = Trust()) {
    return BeaconCodec({NodeId(IdOf(digit)), Incarnation(1), 7002}, std::move(trust));
  }
  static v1::Beacon Question() {
    v1::Beacon beacon;
    beacon.set_hostname("weaver-b");
    beacon.set_sent_unix_ms(123);
    beacon.set_reply_wanted(true);
    return beacon;
  }
  bool HasProblem(const std::string& code) const {
    for (const v1::Reason& reason : service_->Problems()) {
      if (reason.code() == code) return true;
    }
    return false;
  }

  transport::AsioDispatcher dispatcher_;
  BeaconServiceOptions options_;
  v1::NodeIdentity self_;
  std::unique_ptr<SocketBeaconService> service_;
  std::vector<std::string> told_;
  Hand hand_;
};

TEST_F(BeaconAnswersTest, AMemberWhoAsksIsAnsweredAndFindsItselfHeard) {
  BeaconCodec codec = Codec('b');
  std::vector<std::string> answers;
  Start();
  ASSERT_TRUE(Play({Do([&] { hand_.Send(codec.Encode(Question()), options_.port); }), [&] {
                      answers = hand_.Take();
                      return !answers.empty();
                    }}));
  const DecodedBeacon answer = codec.Decode(answers[0]);
  ASSERT_EQ(answer.verdict, BeaconVerdict::kMember);
  EXPECT_EQ(answer.beacon.node_id(), IdOf('a'));
  EXPECT_FALSE(answer.beacon.reply_wanted()) << "or they would answer each other for ever";
  ASSERT_GE(answer.beacon.heard_node_ids_size(), 1);
  EXPECT_EQ(answer.beacon.heard_node_ids(0), IdOf('b'));
  EXPECT_EQ(told_, (std::vector<std::string>{"clock b 123", "peer weaver-b", "beacon 1"}));
}

TEST_F(BeaconAnswersTest, OneAddressIsAnsweredOnlySoOften) {
  BeaconCodec codec = Codec('b');
  size_t answers = 0;
  MonotonicTime begun, ended;
  Start();
  const auto shout = [&] {
    for (int i = 0; i < 40; ++i) hand_.Send(codec.Encode(Question()), options_.port);
    answers += hand_.Take().size();
    if (begun == MonotonicTime()) begun = dispatcher_.Now();
    ended = dispatcher_.Now();
    return ended - begun >= milliseconds(600);
  };
  ASSERT_TRUE(Play({shout, Wait(milliseconds(200)), Do([&] { answers += hand_.Take().size(); })}));
  EXPECT_GE(answers, 2u);
  // What still waited when the shouting ended is answered too.
  const auto most = (ended - begun + milliseconds(200)) / kAnswerInterval + 1;
  EXPECT_LE(answers, static_cast<size_t>(most));
  EXPECT_GT(told_.size(), 10 * answers) << "each beacon was heard all the same";
}

TEST_F(BeaconAnswersTest, OthersThanMembersAndEchoesAreNotAnswered) {
  BeaconTrust forged = Trust();
  forged.key = std::string(32, 'f');
  BeaconCodec member = Codec('b'), other = Codec('c', Trust('o')), none = Codec('d', std::nullopt);
  BeaconCodec forger = Codec('e', forged);
  const std::string once = member.Encode(Question());
  std::vector<std::string> answers;
  Start();
  ASSERT_TRUE(Play({Do([&] {
                      hand_.Send(other.Encode(Question()), options_.port);
                      hand_.Send(none.Encode(Question()), options_.port);
                      hand_.Send(forger.Encode(Question()), options_.port);
                      hand_.Send("who is there?", options_.port);
                    }),
                    [&] { return told_.size() >= 3; }, Wait(milliseconds(200)),
                    Do([&] { EXPECT_TRUE(hand_.Take().empty()); }),
                    Do([&] { hand_.Send(once, options_.port); }),
                    [&] { return !hand_.Take().empty(); }, Wait(milliseconds(100)),
                    // Recorded, and played again by somebody else.
                    Do([&] { hand_.Send(once, options_.port); }),
                    [&] { return service_->Count(BeaconVerdict::kReplayed) == 1; },
                    Wait(milliseconds(200)), Do([&] { EXPECT_TRUE(hand_.Take().empty()); })}));
  EXPECT_EQ(told_, (std::vector<std::string>{"unknown OTHER_CLUSTER", "unknown NO_SECRET",
                                             "unknown BAD_SIGNATURE", "clock b 123",
                                             "peer weaver-b", "beacon 1"}));
}

TEST_F(BeaconAnswersTest, AfterStopNothingIsSaidOrHeard) {
  BeaconCodec codec = Codec('b');
  uint64_t sent = 0;
  Start();
  service_->Stop();
  service_->Stop();
  sent = service_->beacons_sent();
  ASSERT_TRUE(Play({Do([&] {
                      hand_.Send(codec.Encode(Question()), options_.port);
                      service_->Turn();
                      service_->SetTakesTurns(true);
                      service_->SetAllPeersConnected(true);
                      service_->SetSignsOfLife(true);
                      EXPECT_EQ(service_->Ask(NodeId(IdOf('b'))), 0);
                    }),
                    Wait(milliseconds(300))}));
  EXPECT_EQ(service_->beacons_sent(), sent);
  EXPECT_TRUE(told_.empty());
  EXPECT_TRUE(hand_.Take().empty());
}

// Anybody can send such a datagram: it must not be a trouble for good.
TEST_F(BeaconAnswersTest, BeaconsOfAnotherVersionAreATroubleWhileTheyCome) {
  options_.intervals.settled = milliseconds(100);
  BeaconCodec codec = Codec('b');
  std::string newer = codec.Encode(Question());
  newer[4] = 2;
  Start();
  EXPECT_FALSE(HasProblem("VERSION_SKEW"));
  ASSERT_TRUE(Play(
      {Do([&] { hand_.Send(newer, options_.port); }), [&] { return HasProblem("VERSION_SKEW"); },
       [&] { return !HasProblem("VERSION_SKEW"); }, Do([&] { hand_.Send(newer, options_.port); }),
       [&] { return HasProblem("VERSION_SKEW"); }}));
  EXPECT_TRUE(told_.empty());
}

TEST_F(BeaconAnswersTest, MoreSeedsThanAreTakenAreNamed) {
  for (size_t i = 0; i < kSeedsMax + 2; ++i) {
    options_.seeds.push_back(absl::StrCat("127.0.0.1:", 40000 + i));
  }
  Start();
  std::vector<std::string> named;
  for (const v1::Reason& reason : service_->Problems()) {
    if (reason.code() == "SEED_UNRESOLVED") named.push_back(reason.message());
  }
  ASSERT_EQ(named.size(), 2u);
  EXPECT_NE(named[0].find(options_.seeds[kSeedsMax]), std::string::npos) << named[0];
  EXPECT_NE(named[1].find(options_.seeds[kSeedsMax + 1]), std::string::npos) << named[1];
}

TEST_F(BeaconAnswersTest, ASeedIsAskedAndItsAnswersAreHeard) {
  BeaconCodec codec = Codec('b');
  options_.seeds = {absl::StrCat("127.0.0.1:", hand_.port())};
  std::vector<std::string> asked;
  Start();
  ASSERT_TRUE(Play({[&] {
    asked = hand_.Take();
    return !asked.empty();
  }}));
  const DecodedBeacon beacon = codec.Decode(asked[0]);
  EXPECT_EQ(beacon.verdict, BeaconVerdict::kMember);
  EXPECT_TRUE(beacon.beacon.reply_wanted()) << "who is behind a seed hears of it by its answer";
}

}  // namespace
}  // namespace macrame::discovery
