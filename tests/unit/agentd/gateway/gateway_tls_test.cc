// The gateway with a certificate: requests and streams in TLS, and who may still go without.

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "agentd/gateway/gateway.h"
#include "proto/reasons.h"
#include "tests/unit/agentd/gateway/fake_backend.h"
#include "tests/unit/agentd/gateway/raw_http_client.h"
#include "tests/unit/agentd/gateway/tls_client.h"
#include "tests/unit/fresh_folder.h"
#include "transport/trust.h"

namespace macrame::agentd {
namespace {

constexpr char kStreamed[] =
    R"({"model":"tiny","messages":[{"role":"user","content":"hi"}],"stream":true})";

class GatewayTlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = FreshFolder();
    options_.port = 0;
    options_.tls_certificate = folder_ + "/certificate.pem";
    options_.tls_key = folder_ + "/key.pem";
    const transport::NodeCredentials made = MakeCertificate();
    Write("certificate.pem", made.certificate_pem);
    Write("key.pem", made.key_pem);
  }
  // Of a new authority, which clients know from now on.
  transport::NodeCredentials MakeCertificate() {
    const auto secret = transport::CreateClusterSecret("tls-test");
    EXPECT_TRUE(secret.ok()) << secret.status();
    const auto node = transport::MakeNodeCredentials(*secret, NodeId(std::string(32, 'a')));
    EXPECT_TRUE(node.ok()) << node.status();
    authority_ = secret->authority_certificate_pem;
    return *node;
  }
  bool IsTrustedWithin(std::chrono::seconds limit) const {
    const auto end = std::chrono::steady_clock::now() + limit;
    do {
      if (!TlsClient(gateway_->port(), authority_).error()) return true;
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }
  void TearDown() override {
    gateway_.reset();
    std::filesystem::remove_all(folder_);
  }
  std::string Write(const std::string& name, const std::string& text) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  void Start() {
    auto gateway = Gateway::Start(options_, &backend_);
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
  }
  std::string WhyNot() {
    const auto gateway = Gateway::Start(options_, &backend_);
    if (gateway.ok()) return "it started";
    EXPECT_EQ(ReasonOf(gateway.status()).code(), reasons::kConfigInvalid);
    return std::string(gateway.status().message());
  }

  FakeBackend backend_;
  GatewayOptions options_;
  std::string folder_, authority_;
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(GatewayTlsTest, AConnectionCarriesRequestsAndStreamsInTurn) {
  Start();
  TlsClient client(gateway_->port(), authority_);
  ASSERT_FALSE(client.error()) << client.error().message();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(client.Ask(Get("/health")).result_int(), 200u) << i;
    const auto streamed = client.Ask(ChatPost(kStreamed));
    ASSERT_FALSE(client.error()) << client.error().message();
    EXPECT_EQ(EventData(streamed.body()).back(), "[DONE]") << i;
  }
}

TEST_F(GatewayTlsTest, ABodyOfMegabytesComesThrough) {
  Start();
  TlsClient client(gateway_->port(), authority_, TLS1_2_VERSION);
  ASSERT_FALSE(client.error()) << client.error().message();
  const std::string body = R"({"model":"tiny","messages":[{"role":"user","content":")" +
                           std::string(3'000'000, 'x') + R"("}]})";
  EXPECT_EQ(client.Ask(ChatPost(body)).result_int(), 200u);
  ASSERT_NE(backend_.WaitForCall(0), nullptr);
  EXPECT_EQ(backend_.WaitForCall(0)->request.messages(0).content().size(), 3'000'000u);
}

TEST_F(GatewayTlsTest, TheEndIsToldAndALeaverFreesItsPlace) {
  Start();
  TlsClient last(gateway_->port(), authority_);
  EXPECT_EQ(
      last.Ask("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").result_int(),
      200u);
  EXPECT_TRUE(last.EndsInOrder()) << last.error().message();
  TlsClient leaver(gateway_->port(), authority_);
  leaver.Send(ChatPost(R"({"model":"manual","messages":[{"role":"user","content":"hi"}]})"));
  const auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  leaver.Leave();
  EXPECT_TRUE(call->WaitForCancel(std::chrono::seconds(5)));
}

TEST_F(GatewayTlsTest, ThisMachineMayGoWithoutAndNonsenseHarmsNobody) {
  Start();
  RawHttpClient plain(gateway_->port());
  plain.Send(Get("/health"));
  EXPECT_EQ(plain.ReadResponse().status, 200);
  RawHttpClient nonsense(gateway_->port());
  nonsense.Send(std::string("\x16\x03\x01\x00\x05hello", 10));
  EXPECT_TRUE(nonsense.WaitForClose());
  TlsClient old(gateway_->port(), authority_, TLS1_1_VERSION);
  EXPECT_TRUE(old.error()) << "TLS 1.1 is no more";
  TlsClient other(gateway_->port(), transport::CreateClusterSecret("x")->authority_certificate_pem);
  EXPECT_TRUE(other.error()) << "the client knows another authority";
  TlsClient good(gateway_->port(), authority_);
  EXPECT_EQ(good.Ask(Get("/health")).result_int(), 200u);
}

TEST_F(GatewayTlsTest, FilesThatAreRenewedAreTakenWhenBothAreThere) {
  Start();
  const std::string before = authority_;
  TlsClient open(gateway_->port(), before);
  const transport::NodeCredentials renewed = MakeCertificate();
  Write("certificate.pem", renewed.certificate_pem);
  EXPECT_FALSE(IsTrustedWithin(std::chrono::seconds(2))) << "its key is not there yet";
  EXPECT_FALSE(TlsClient(gateway_->port(), before).error()) << "the one from before is shown";
  Write("key.pem", renewed.key_pem);
  EXPECT_TRUE(IsTrustedWithin(std::chrono::seconds(10)));
  EXPECT_TRUE(TlsClient(gateway_->port(), before).error());
  EXPECT_EQ(open.Ask(Get("/health")).result_int(), 200u) << "an open connection goes on";
}

TEST_F(GatewayTlsTest, FilesThatDoNotFitAreNamed) {
  const std::string certificate = options_.tls_certificate;
  options_.tls_certificate = folder_ + "/none.pem";
  EXPECT_NE(WhyNot().find("gateway_tls_certificate (" + options_.tls_certificate),
            std::string::npos)
      << WhyNot();
  options_.tls_certificate = Write("text.pem", "no certificate");
  EXPECT_NE(WhyNot().find("gateway_tls_certificate"), std::string::npos);
  options_.tls_certificate = certificate;
  const auto other = transport::CreateClusterSecret("other");
  options_.tls_key = Write("other.pem", other->authority_key_pem);
  EXPECT_NE(WhyNot().find("gateway_tls_key"), std::string::npos) << "another certificate's";
}

}  // namespace
}  // namespace macrame::agentd
