// The join port and who comes to it, over the loopback interface.

#include "transport/enrolment.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "proto/reasons.h"

namespace macrame::transport {
namespace {

const NodeId kKeeper("00000000000000000000000000000001");
const NodeId kNew("00000000000000000000000000000002");

class EnrolmentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);
    secret_ = *CreateClusterSecret("home");
    token_.id = HexEncode(RandomBytes(kJoinTokenIdBytes));
    token_.secret = RandomBytes(kJoinTokenSecretBytes);
    token_.authority_digest = *CertificateDigest(secret_.authority_certificate_pem);
    token_.ips = {"127.0.0.1"};
  }

  void Start(const NodeCredentials& node) {
    auto listener = EnrolmentListener::Start(
        "127.0.0.1", 0, node,
        [this](EnrolmentListener::Question question, EnrolmentListener::Answer answer) {
          const std::lock_guard lock(mutex_);
          v1::EnrolResponse response;
          const std::string proof =
              JoinProof(token_.secret, question.exported, question.request.token_id(),
                        NodeId(question.request.node_id()), question.request.certificate_request());
          if (proof == question.request.proof()) {
            response.set_cluster_name("home");
          } else {
            *response.mutable_refusal() = MakeReason("TOKEN_REFUSED", "no");
          }
          questions_.push_back(std::move(question));
          answer(std::move(response));
        });
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = std::move(*listener);
    token_.port = listener_->port();
  }
  void Start() { Start(*MakeNodeCredentials(secret_, kKeeper)); }

  std::string Code(const JoinToken& token, int64_t unix_s = SystemUnixSeconds()) {
    const auto response = Enrol(token, kNew, "bess", "request", unix_s);
    return response.ok() ? "" : ReasonOf(response.status()).code();
  }

  ClusterSecret secret_;
  JoinToken token_;
  std::mutex mutex_;
  std::vector<EnrolmentListener::Question> questions_;
  std::unique_ptr<EnrolmentListener> listener_;
};

TEST_F(EnrolmentTest, WhoHasTheTokenProvesIt) {
  Start();
  const auto response = Enrol(token_, kNew, "bess", "request");
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->cluster_name(), "home");
  ASSERT_EQ(questions_.size(), 1u);
  EXPECT_EQ(questions_[0].address, "127.0.0.1");
  EXPECT_EQ(questions_[0].request.node_id(), kNew.value());
  EXPECT_EQ(questions_[0].request.hostname(), "bess");
  // The secret itself is not said.
  EXPECT_EQ(questions_[0].request.SerializeAsString().find(token_.secret), std::string::npos);
}

TEST_F(EnrolmentTest, AProofIsWorthNothingOnAnotherConnectionOrForAnotherNode) {
  Start();
  ASSERT_TRUE(Enrol(token_, kNew, "bess", "request").ok());
  ASSERT_TRUE(Enrol(token_, kNew, "bess", "request").ok());
  EXPECT_NE(questions_[0].request.proof(), questions_[1].request.proof());
  EXPECT_NE(JoinProof(token_.secret, questions_[0].exported, token_.id, kKeeper, "request"),
            questions_[0].request.proof());
  EXPECT_NE(JoinProof(token_.secret, questions_[0].exported, token_.id, kNew, "another"),
            questions_[0].request.proof());
}

TEST_F(EnrolmentTest, AWrongSecretIsRefused) {
  Start();
  JoinToken wrong = token_;
  wrong.secret[0] = static_cast<char>(wrong.secret[0] ^ 1);
  EXPECT_EQ(Code(wrong), "TOKEN_REFUSED");
}

TEST_F(EnrolmentTest, AnotherAuthorityIsToldNothing) {
  // It even hands out the right authority's certificate beside its own.
  NodeCredentials forged = *MakeNodeCredentials(*CreateClusterSecret("home"), kKeeper);
  forged.authority_certificate_pem = secret_.authority_certificate_pem;
  Start(forged);
  EXPECT_EQ(Code(token_), "WRONG_CLUSTER");
  EXPECT_TRUE(questions_.empty());
}

TEST_F(EnrolmentTest, AClockYearsOffIsNamed) {
  Start();
  EXPECT_EQ(Code(token_, SystemUnixSeconds() - 900 * kSecondsPerDay), "CLOCK_WRONG");
  EXPECT_EQ(Code(token_, SystemUnixSeconds() + 900 * kSecondsPerDay), "CLOCK_WRONG");
  EXPECT_TRUE(questions_.empty());
}

TEST_F(EnrolmentTest, TheNextAddressIsTriedAndNobodyThereIsSaid) {
  Start();
  JoinToken two = token_;
  two.ips = {"127.0.0.2", "127.0.0.1"};
  EXPECT_EQ(Code(two), "");
  listener_.reset();
  EXPECT_EQ(Code(token_), "JOIN_UNREACHABLE");
}

// Sockets that say nothing, from addresses of this machine.
class SilentCallers {
 public:
  explicit SilentCallers(int port) : port_(port) {}
  ~SilentCallers() {
    for (const int fd : fds_) ::close(fd);
  }
  void Call(uint32_t from, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      const sockaddr_in own = Address(INADDR_LOOPBACK + from, 0);
      ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
      const sockaddr_in to = Address(INADDR_LOOPBACK, port_);
      ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
      fds_.push_back(fd);
    }
  }

 private:
  static sockaddr_in Address(uint32_t ip, int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(ip);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }
  const int port_;
  std::vector<int> fds_;
};

TEST_F(EnrolmentTest, SilentCallersFromAFewAddressesKeepNobodyOut) {
  Start();
  SilentCallers silent(token_.port);
  for (uint32_t from = 1; from <= 4; ++from) silent.Call(from, 15);
  EXPECT_EQ(Code(token_), "");
}

TEST_F(EnrolmentTest, SilentCallersFromManyAddressesKeepNobodyOut) {
  Start();
  SilentCallers silent(token_.port);
  for (uint32_t from = 1; from <= 60; ++from) silent.Call(from, 1);
  EXPECT_EQ(Code(token_), "");
}

TEST_F(EnrolmentTest, SilentCallersFromTheSameAddressMakeRoomOldestFirst) {
  Start();
  SilentCallers silent(token_.port);
  silent.Call(0, kEnrolmentsPerAddressMax + 4);
  EXPECT_EQ(Code(token_), "");
}

// Its answer takes a while: the flood that comes meanwhile does not cost it its place.
TEST_F(EnrolmentTest, WhoHasAskedMakesRoomForNobody) {
  std::optional<EnrolmentListener::Answer> held;
  std::condition_variable asked;
  auto listener =
      EnrolmentListener::Start("127.0.0.1", 0, *MakeNodeCredentials(secret_, kKeeper),
                               [&](EnrolmentListener::Question, EnrolmentListener::Answer answer) {
                                 const std::lock_guard lock(mutex_);
                                 held = std::move(answer);
                                 asked.notify_all();
                               });
  ASSERT_TRUE(listener.ok());
  token_.port = (*listener)->port();
  std::string code = "none";
  std::thread joins([&] { code = Code(token_); });
  {
    std::unique_lock lock(mutex_);
    asked.wait_for(lock, std::chrono::seconds(10), [&] { return held.has_value(); });
  }
  SilentCallers silent(token_.port);
  silent.Call(0, 8);
  for (uint32_t from = 1; from <= 20; ++from) silent.Call(from, 2);
  {
    const std::lock_guard lock(mutex_);
    if (held.has_value()) (*held)(v1::EnrolResponse());
  }
  joins.join();
  EXPECT_EQ(code, "");
}

TEST(JoinTokenTest, ALineIsReadBackAndACutOneIsRefused) {
  JoinToken token;
  token.id = "0011223344556677";
  token.secret = std::string(kJoinTokenSecretBytes, '\x5a');
  token.authority_digest = std::string(32, '\x11');
  token.port = 4711;
  token.ips = {"10.0.0.7", "fd00::7"};
  const std::string line = FormatJoinToken(token);
  EXPECT_EQ(line.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.,:@"), std::string::npos);
  const auto read = ParseJoinToken(line);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->id, token.id);
  EXPECT_EQ(read->secret, token.secret);
  EXPECT_EQ(read->authority_digest, token.authority_digest);
  EXPECT_EQ(read->port, 4711);
  EXPECT_EQ(read->ips, token.ips);
  for (size_t size = 0; size < line.find('@') + 7; ++size) {
    EXPECT_FALSE(ParseJoinToken(line.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(ParseJoinToken(line + ",not-an-address").ok());
  EXPECT_FALSE(ParseJoinToken(std::string(5000, 'm')).ok());
}

}  // namespace
}  // namespace macrame::transport
