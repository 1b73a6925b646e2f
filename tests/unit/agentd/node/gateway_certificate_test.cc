#include "agentd/node/gateway_certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "agentd/base/rpc_methods.h"
#include "agentd/cores/https_names.h"
#include "proto/reasons.h"
#include "tests/unit/agentd/fake_peers.h"
#include "tests/unit/agentd/idle_machine.h"
#include "tests/unit/agentd/node/signed_membership.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::agentd {
namespace {

using std::chrono::seconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using tests::IdentityOf;
using tests::IdOf;
using transport::kSecondsPerDay;

constexpr int64_t kNow = 1'763'900'000;
const NodeId kSelf = IdOf('a');

class GatewayCertificateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = FreshFolder();
    secret_path_ = folder_ + "/cluster.secret";
    secret_ = *transport::CreateClusterSecret("home", kNow - 30 * kSecondsPerDay);
    channels_.UsePlain();
    own_.emplace(clock_, IdentityOf(kSelf, "10.0.0.9"), prober_, supervisor_);
    trust_.emplace(clock_, kSelf, secret_path_, channels_, members_,
                   [](const transport::NodeCredentials&) {});
  }

  void BeKeeper() {
    ASSERT_TRUE(transport::WriteClusterSecret(secret_, secret_path_).ok());
    ASSERT_TRUE(trust_->Load().ok());
    Restart();
  }
  // A node that joined with a token: others sign for it.
  void BeMember() {
    const auto membership = tests::SignedMembership(secret_, kSelf, kNow);
    ASSERT_TRUE(
        transport::WriteNodeMembership(membership, transport::NodeMembershipPath(secret_path_))
            .ok());
    ASSERT_TRUE(trust_->Load().ok());
    Restart();
  }
  void Restart(const std::string& state_folder = "",
               std::vector<std::string> names = {"models.lan"}) {
    certificate_.emplace(GatewayCertificate::Parts{clock_, *trust_, channels_, members_, *own_},
                         state_folder.empty() ? folder_ : state_folder, std::move(names));
  }
  // Time passes, and it looks as often as the agent has it look; the wall clock stands.
  void Pass(Duration span) {
    for (Duration passed{}; passed < span; passed += seconds(1)) {
      certificate_->Tick();
      clock_.AdvanceBy(seconds(1));
    }
  }
  // Until another member is asked to sign.
  bool PassUntilAsked() {
    const size_t before = peers_.calls().size();
    for (int second = 0; second < 600 && peers_.calls().size() == before; ++second) {
      Pass(seconds(1));
    }
    return peers_.calls().size() > before;
  }
  void MoveTo(const std::string& ip) {
    v1::NodeAddress address;
    address.set_ip(ip);
    own_->SetAddresses({address});
  }
  std::string Text(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary | std::ios::trunc) << text;
  }
  // As the gateway reads it.
  absl::StatusOr<transport::HttpsCertificate> OnDisk() const {
    return transport::DescribeHttpsCertificate(Text("https.crt"), Text("https.key"),
                                               secret_.authority_certificate_pem);
  }
  std::string Problem() const {
    const auto problem = certificate_->Problem();
    return problem.has_value() ? problem->message() : "";
  }
  // The keeper that is asked signs, by a clock of its own.
  void Sign(tests::PeerCall& call, int64_t unix_s, const transport::ClusterSecret& secret) {
    const auto request = call.As<v1::RenewCertificateRequest>();
    v1::RenewCertificateResponse response;
    response.set_certificate(*transport::SignHttpsRequest(
        secret, {request.https_names().begin(), request.https_names().end()},
        request.certificate_request(), unix_s));
    call.Answer(response);
  }

  std::string folder_, secret_path_;
  tests::SetClock clock_{kNow};
  tests::FakePeers peers_;
  PeerChannels channels_{peers_.Maker()};
  MemberMonitor members_{clock_,
                         IdentityOf(kSelf),
                         discovery::FailureLimits(),
                         {[](const auto&) {}, [](const NodeId&) {}, [](const NodeId&) { return 0; },
                          [](const NodeId&) {}}};
  transport::ClusterSecret secret_;
  tests::CountingProber prober_;
  tests::ListedRanks supervisor_;
  std::optional<OwnNode> own_;
  std::optional<NodeTrust> trust_;
  std::optional<GatewayCertificate> certificate_;
};

TEST_F(GatewayCertificateTest, AKeeperSignsItsOwnForItsNamesAndKeepsItPrivate) {
  BeKeeper();
  EXPECT_THAT(Problem(), HasSubstr("host-a"));
  certificate_->Tick();
  EXPECT_EQ(Problem(), "");
  const auto described = OnDisk();
  ASSERT_TRUE(described.ok()) << described.status();
  EXPECT_EQ(described->names, WantedHttpsNames(own_->identity(), {"models.lan"}));
  EXPECT_THAT(described->names, Contains("10.0.0.9"));
  EXPECT_THAT(described->names, Contains("models.lan"));
  struct stat info {};
  ASSERT_EQ(::stat((folder_ + "/https.key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_THAT(peers_.calls(), IsEmpty());
}

TEST_F(GatewayCertificateTest, BeforeTheNodeHasACertificateOfItsOwnNothingIsMade) {
  Restart();
  Pass(seconds(60));
  EXPECT_EQ(Text("https.crt"), "");
  EXPECT_THAT(peers_.calls(), IsEmpty());
  EXPECT_EQ(certificate_->Problem()->code(), reasons::kHttpsNotReady);
}

TEST_F(GatewayCertificateTest, WhatIsOnDiskOutlivesARestart) {
  BeKeeper();
  certificate_->Tick();
  const std::string first = Text("https.crt");
  Restart();
  Pass(seconds(20));
  EXPECT_EQ(Text("https.crt"), first);
  EXPECT_EQ(Problem(), "");
}

TEST_F(GatewayCertificateTest, FilesThatWereDamagedAreMadeAnew) {
  BeKeeper();
  certificate_->Tick();
  const std::string key = Text("https.key"), certificate = Text("https.crt");
  const std::vector<std::pair<std::string, std::string>> damages = {
      {"https.key", ""},
      {"https.key", key.substr(0, key.size() / 2)},
      {"https.crt", "\xff\x00x"},
      {"https.crt", certificate.substr(0, certificate.size() / 2)},
      {"https.crt", secret_.authority_certificate_pem}};
  for (const auto& [name, text] : damages) {
    Write(name, text);
    EXPECT_FALSE(OnDisk().ok()) << name;
    Restart();
    Pass(seconds(10));
    EXPECT_TRUE(OnDisk().ok()) << name << ": " << OnDisk().status();
    EXPECT_EQ(Problem(), "");
  }
}

TEST_F(GatewayCertificateTest, ANewAddressIsSignedSoonAndOneThatComesAndGoesNotEachTime) {
  BeKeeper();
  certificate_->Tick();
  MoveTo("10.0.0.77");
  Pass(kHttpsRenewedAtMost + seconds(10));
  EXPECT_THAT(OnDisk()->names, Contains("10.0.0.77"));
  EXPECT_THAT(OnDisk()->names, Not(Contains("10.0.0.9")));
  std::set<std::string> signed_ones;
  for (int change = 0; change < 120; ++change) {
    MoveTo(change % 2 == 0 ? "10.0.0.78" : "10.0.0.79");
    Pass(seconds(10));
    signed_ones.insert(Text("https.crt"));
  }
  EXPECT_LE(signed_ones.size(), 6u);
  EXPECT_GE(signed_ones.size(), 3u);
}

// What people write of a name need not be how a certificate has it.
TEST_F(GatewayCertificateTest, NamesThatPeopleSpellInTheirWayAreSignedOnce) {
  BeKeeper();
  struct Spelled {
    std::string name;
    std::string expected;  // empty: it is signed under no circumstances
  };
  const std::vector<Spelled> cases = {{"Models.LAN", "models.lan"},
                                      {"FD00:0:0::1", "fd00::1"},
                                      {"fd00::0001", "fd00::1"},
                                      {"192.168.1.1", "192.168.1.1"},
                                      {"Printer", "printer"},
                                      {"printer.local", "printer.local"},
                                      {"models.lan.", ""},
                                      {"a_b.local", ""},
                                      {"example.com", ""},
                                      {"8.8.8.8", ""},
                                      {"", ""}};
  for (const Spelled& one : cases) {
    Restart(folder_, {one.name});
    Pass(kHttpsRenewedAtMost + seconds(20));
    const std::string first = Text("https.crt");
    EXPECT_EQ(Problem(), "") << one.name;
    if (one.expected.empty()) {
      EXPECT_THAT(OnDisk()->names, Not(Contains(one.name)));
    } else {
      EXPECT_THAT(OnDisk()->names, Contains(one.expected));
    }
    Pass(2 * kHttpsRenewedAtMost + seconds(20));
    EXPECT_EQ(Text("https.crt"), first) << "made anew again and again with '" << one.name << "'";
  }
}

TEST_F(GatewayCertificateTest, ItIsMadeAnewBeforeItEnds) {
  BeKeeper();
  certificate_->Tick();
  for (int day = 0; day < 30; ++day) {
    clock_.unix_s += kSecondsPerDay;
    Pass(kHttpsRenewedAtMost + seconds(10));
    EXPECT_EQ(Problem(), "") << "day " << day;
    EXPECT_GT(OnDisk()->dates.not_after_s, clock_.unix_s + kSecondsPerDay) << "day " << day;
  }
}

TEST_F(GatewayCertificateTest, InAnotherClusterItIsMadeAnewAtOnce) {
  BeKeeper();
  certificate_->Tick();
  std::filesystem::remove(secret_path_);
  secret_ = *transport::CreateClusterSecret("other", kNow - kSecondsPerDay);
  ASSERT_TRUE(transport::WriteClusterSecret(secret_, secret_path_).ok());
  ASSERT_TRUE(trust_->Load().ok());
  EXPECT_FALSE(OnDisk().ok()) << "the other authority's";
  Pass(seconds(10));
  EXPECT_TRUE(OnDisk().ok()) << OnDisk().status();
}

TEST_F(GatewayCertificateTest, AMemberHasItSignedByAKeeper) {
  BeMember();
  members_.HeardMember(IdentityOf(IdOf('b')), "", false);
  certificate_->Tick();
  ASSERT_THAT(peers_.Open(), SizeIs(1));
  Sign(peers_.last(), kNow, secret_);
  EXPECT_TRUE(OnDisk().ok()) << OnDisk().status();
  EXPECT_EQ(Problem(), "");
  Pass(seconds(60));
  EXPECT_THAT(peers_.calls(), SizeIs(1));
}

TEST_F(GatewayCertificateTest, WhyNobodySignsIsToldAndItIsTriedAgain) {
  BeMember();
  members_.HeardMember(IdentityOf(IdOf('b')), "", false);
  certificate_->Tick();
  peers_.last().End(absl::PermissionDeniedError("10.0.0.9 is another member's"));
  EXPECT_THAT(Problem(), HasSubstr("10.0.0.9 is another member's"));
  Pass(kHttpsPause - seconds(6));
  EXPECT_THAT(peers_.calls(), SizeIs(1)) << "not at once";
  Pass(seconds(15));
  ASSERT_THAT(peers_.calls(), SizeIs(2));
  Sign(peers_.last(), kNow, secret_);
  EXPECT_EQ(Problem(), "");
}

TEST_F(GatewayCertificateTest, WhatAnotherAuthoritySignedIsNotTaken) {
  BeMember();
  members_.HeardMember(IdentityOf(IdOf('b')), "", false);
  certificate_->Tick();
  Sign(peers_.last(), kNow, *transport::CreateClusterSecret("thieves", kNow - kSecondsPerDay));
  EXPECT_EQ(Text("https.crt"), "");
  EXPECT_NE(Problem(), "");
  Pass(kHttpsPause + seconds(10));
  v1::RenewCertificateResponse garbage;
  garbage.set_certificate("-----BEGIN CERTIFICATE-----\n\n");
  peers_.last().Answer(garbage);
  EXPECT_EQ(Text("https.crt"), "");
}

// Keepers sign by their own clocks. What has ended already, or has not begun, must not take the
// place of what still serves.
TEST_F(GatewayCertificateTest, AKeeperWhoseClockIsWrongDoesNoHarm) {
  BeMember();
  members_.HeardMember(IdentityOf(IdOf('b')), "", false);
  certificate_->Tick();
  Sign(peers_.last(), kNow, secret_);
  const std::string good = Text("https.crt");
  for (const int64_t off : {-20 * kSecondsPerDay, 20 * kSecondsPerDay}) {
    MoveTo(off < 0 ? "10.0.0.50" : "10.0.0.51");
    ASSERT_TRUE(PassUntilAsked());
    Sign(peers_.last(), kNow + off, secret_);
    EXPECT_EQ(Text("https.crt"), good) << off;
    EXPECT_EQ(Problem(), "") << "the old one serves on";
  }
  // Another try soon has it.
  ASSERT_TRUE(PassUntilAsked());
  Sign(peers_.last(), kNow, secret_);
  EXPECT_THAT(OnDisk()->names, Contains("10.0.0.51"));
}

TEST_F(GatewayCertificateTest, WhereItCantBeWrittenTheFileIsNamed) {
  BeKeeper();
  Write("blocked", "a file, and no folder");
  Restart(folder_ + "/blocked");
  Pass(seconds(10));
  EXPECT_THAT(Problem(), HasSubstr("blocked"));
  std::filesystem::remove(folder_ + "/blocked");
  std::filesystem::create_directories(folder_ + "/blocked");
  Pass(kHttpsPause + seconds(10));
  EXPECT_EQ(Problem(), "");
}

TEST_F(GatewayCertificateTest, OneThatHasEndedIsAProblemAgain) {
  BeMember();
  members_.HeardMember(IdentityOf(IdOf('b')), "", false);
  certificate_->Tick();
  Sign(peers_.last(), kNow, secret_);
  EXPECT_EQ(Problem(), "");
  clock_.unix_s += 8 * kSecondsPerDay;
  EXPECT_THAT(Problem(), HasSubstr("no certificate"));
}

}  // namespace
}  // namespace macrame::agentd
