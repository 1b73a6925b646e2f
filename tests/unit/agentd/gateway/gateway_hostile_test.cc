// Clients that mean harm, or are broken: each gets its own answer, nobody else notices.

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "agentd/gateway/gateway.h"
#include "tests/unit/agentd/gateway/fake_backend.h"
#include "tests/unit/agentd/gateway/raw_http_client.h"
#include "transport/descriptor_limit.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;

constexpr char kTiny[] = R"({"model":"tiny","messages":[{"role":"user","content":"hi"}]})";

class HostileTest : public ::testing::Test {
 protected:
  void Start(GatewayOptions options = {}) {
    options.port = 0;
    auto gateway = Gateway::Start(options, &backend_);
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
  }
  RawResponse Ask(const std::string& bytes) {
    RawHttpClient client(gateway_->port());
    client.Send(bytes);
    return client.ReadResponse();
  }
  void TearDown() override {
    EXPECT_EQ(Ask(Get("/health")).status, 200) << "the gateway no longer serves others";
  }

  FakeBackend backend_;
  std::unique_ptr<Gateway> gateway_;
};

std::string ErrorCode(const RawResponse& response) {
  const auto body = nlohmann::json::parse(response.body, nullptr, false);
  if (body.is_discarded() || !body.contains("error")) return "no error object: " + response.body;
  return body["error"]["code"].is_string() ? body["error"]["code"] : "";
}

TEST_F(HostileTest, HeadsThatAreTooLargeOrMalformed) {
  Start();
  EXPECT_EQ(
      Ask("GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(20'000, 'a') + "\r\n\r\n")
          .status,
      431);
  EXPECT_EQ(Ask("GET /" + std::string(20'000, 'a') + " HTTP/1.1\r\nHost: localhost\r\n\r\n").status,
            431);
  for (const char* head :
       {"\x16\x03\x01\x02hello\r\n\r\n", "GET\r\n\r\n", "GET /health HTTP/9.9\r\n\r\n",
        "GET /health HTTP/1.1\r\n\r\n", "GET /health HTTP/1.1\r\nbad header\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX : y\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}) {
    const int status = Ask(head).status;
    EXPECT_TRUE(status == 400 || status == 505) << status << " for " << head;
  }
}

TEST_F(HostileTest, HeadsOfVeryManyFields) {
  Start();
  const auto with = [](int count) {
    std::string head = "GET /health HTTP/1.1\r\nHost: localhost\r\n";
    for (int i = 0; i < count; ++i) head += "X:y\r\n";
    return head + "\r\n";
  };
  EXPECT_EQ(Ask(with(100)).status, 200) << "more than browsers and proxies send";
  const RawResponse refused = Ask(with(1000));
  EXPECT_EQ(refused.status, 431);
  EXPECT_EQ(ErrorCode(refused), "head_too_large");
}

TEST_F(HostileTest, BodiesWhoseLengthIsInDoubt) {
  Start();
  const std::string start =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Type: application/json\r\n";
  for (const std::string& fields :
       {std::string("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        std::string("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
        std::string("Content-Length: 5\r\nContent-Length: 6\r\n"),
        std::string("Content-Length: 5\r\nContent-Length: 5\r\n"),
        std::string("Content-Length: -1\r\n"), std::string("Content-Length: 0x10\r\n"),
        std::string("Content-Length: 99999999999999999999999\r\n"),
        std::string("Transfer-Encoding: gzip\r\n"),
        std::string("Transfer-Encoding: chunked, chunked\r\n"),
        std::string("Transfer-Encoding: xchunked\r\n")}) {
    const RawResponse response = Ask(start + fields + "\r\n0\r\n\r\n" + Get("/version"));
    EXPECT_EQ(response.status, 400) << fields;
    EXPECT_EQ(response.headers.at("connection"), "close") << fields;
  }
  EXPECT_EQ(backend_.calls(), 0u);
}

TEST_F(HostileTest, BodiesThatAreTooLarge) {
  GatewayOptions options;
  options.body_bytes_max = 100'000;
  Start(options);
  EXPECT_EQ(Ask(ChatPost(std::string(100'001, ' '))).status, 413);
  const std::string chunk = "8000\r\n" + std::string(0x8000, ' ') + "\r\n";
  EXPECT_EQ(Ask("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
                chunk + chunk + chunk + chunk + "0\r\n\r\n")
                .status,
            413);
  std::string fits = kTiny;
  fits.append(100'000 - fits.size(), ' ');
  EXPECT_EQ(Ask(ChatPost(fits)).status, 200);
}

TEST_F(HostileTest, ALargeBodyThatIsRefusedStillGetsItsAnswer) {
  Start();
  RawHttpClient client(gateway_->port());
  client.Send(ChatPost(std::string(6 * 1024 * 1024, ' ')));
  EXPECT_EQ(client.ReadResponse().status, 413);
}

TEST_F(HostileTest, BodiesThatAreNoJson) {
  Start();
  EXPECT_EQ(ErrorCode(Ask(ChatPost("{"))), "invalid_json");
  EXPECT_EQ(ErrorCode(Ask(ChatPost("{\"model\":\"\xC3\x28\"}"))), "invalid_json");
  EXPECT_EQ(ErrorCode(Ask(ChatPost(std::string(1'000'000, '[')))), "json_too_deep");
  EXPECT_EQ(ErrorCode(Ask(ChatPost(""))), "invalid_json");
  EXPECT_EQ(backend_.calls(), 0u);
}

TEST_F(HostileTest, ContentTypesThatAWebPageMaySendUnasked) {
  Start();
  for (const char* type :
       {"", "Content-Type: text/plain\r\n", "Content-Type: multipart/form-data\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n"}) {
    const RawResponse response =
        Ask(std::string("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n") + type +
            "Origin: https://evil.example\r\nContent-Length: " + std::to_string(strlen(kTiny)) +
            "\r\n\r\n" + kTiny);
    EXPECT_EQ(response.status, 415) << type;
  }
  const auto untyped = [this](const std::string& header) {
    return Ask("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n" + header +
               "Content-Length: " + std::to_string(strlen(kTiny)) + "\r\n\r\n" + kTiny)
        .status;
  };
  // A program: LiteLLM speaks so to Ollama's API.
  EXPECT_EQ(untyped(""), 200);
  EXPECT_EQ(untyped("Content-Type: application/octet-stream\r\n"), 200);
  // curl -d.
  EXPECT_EQ(untyped("Content-Type: application/x-www-form-urlencoded\r\n"), 200);
  EXPECT_EQ(untyped("Content-Type: application/x-www-form-urlencoded\r\nOrigin: null\r\n"), 415);
  EXPECT_EQ(untyped("Sec-Fetch-Site: cross-site\r\n"), 415);
  EXPECT_EQ(untyped("Origin: null\r\n"), 415);
  EXPECT_EQ(untyped("Content-Type: text/plain\r\n"), 415);
  const RawResponse preflight =
      Ask("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
          "Origin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n");
  EXPECT_EQ(preflight.status, 405);
  EXPECT_EQ(preflight.headers.at("allow"), "POST");
  EXPECT_EQ(Ask(ChatPost(kTiny, "Content-Encoding: gzip\r\n")).status, 415);
  const RawResponse taken = Ask(ChatPost(kTiny, "Origin: https://evil.example\r\n"));
  for (const auto& [name, value] : taken.headers) {
    EXPECT_NE(name.rfind("access-control", 0), 0u) << name;
    EXPECT_EQ(value.find("evil"), std::string::npos) << name;
  }
  EXPECT_EQ(backend_.calls(), 4u) << "three programs' and the one that was taken";
}

TEST_F(HostileTest, NamesThatWereRebound) {
  GatewayOptions options;
  options.allowed_hosts = {"mini-1.local"};
  Start(options);
  for (const char* host : {"evil.example", "evil.example:8000", "localhost.evil.example",
                           "169.254.169.254", "user@localhost", ""}) {
    EXPECT_EQ(Ask(std::string("GET /health HTTP/1.1\r\nHost: ") + host + "\r\n\r\n").status, 403)
        << host;
  }
  for (const char* host :
       {"localhost", "LOCALHOST:1", "127.0.0.1:8000", "[::1]:8000", "mini-1.local:8000"}) {
    EXPECT_EQ(Ask(std::string("GET /health HTTP/1.1\r\nHost: ") + host + "\r\n\r\n").status, 200)
        << host;
  }
  const RawResponse refused = Ask("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_NE(refused.body.find("gateway_hosts"), std::string::npos) << "the setting is named";
  // The authority of an absolute target counts, not the Host beside it.
  EXPECT_EQ(Ask("GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 403);
  EXPECT_EQ(Ask("GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 200);
}

TEST_F(HostileTest, OneByteAtATime) {
  Start();
  RawHttpClient client(gateway_->port());
  for (const char byte : ChatPost(kTiny)) ASSERT_TRUE(client.Send(std::string(1, byte)));
  EXPECT_EQ(client.ReadResponse().status, 200);
}

TEST_F(HostileTest, RequestsThatNeverEnd) {
  GatewayOptions options;
  options.header_ms = milliseconds(100);
  options.body_ms = milliseconds(100);
  options.idle_ms = milliseconds(100);
  Start(options);
  RawHttpClient silent(gateway_->port()), head(gateway_->port()), body(gateway_->port());
  head.Send("GET /health HTTP/1.1\r\nHo");
  body.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(silent.WaitForClose());
  EXPECT_TRUE(head.WaitForClose());
  EXPECT_TRUE(body.WaitForClose());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(2000));
  EXPECT_EQ(backend_.calls(), 0u);
}

TEST_F(HostileTest, RequestsThatAreCutOff) {
  Start();
  const std::string whole = ChatPost(kTiny);
  for (size_t length = 0; length < whole.size(); length += 7) {
    RawHttpClient client(gateway_->port());
    client.Send(whole.substr(0, length));
    client.Close();
  }
  EXPECT_EQ(backend_.calls(), 0u);
}

TEST_F(HostileTest, MoreConnectionsThanMayBe) {
  GatewayOptions options;
  options.connections_max = 4;
  Start(options);
  {
    // Each has an answer on its way.
    std::vector<std::unique_ptr<RawHttpClient>> held;
    for (int i = 0; i < 4; ++i) {
      held.push_back(std::make_unique<RawHttpClient>(gateway_->port()));
      held.back()->Send(
          ChatPost(R"({"model":"manual","messages":[{"role":"user","content":"hi"}]})"));
      ASSERT_NE(backend_.WaitForCall(static_cast<size_t>(i)), nullptr);
    }
    RawHttpClient one_more(gateway_->port());
    const RawResponse refused = one_more.ReadResponse();
    EXPECT_EQ(refused.status, 503);
    EXPECT_TRUE(refused.headers.contains("retry-after"));
    backend_.WaitForCall(0)->Done(absl::OkStatus());
    EXPECT_EQ(held[0]->ReadResponse().status, 200);
  }
  for (int i = 0; i < 100 && Ask(Get("/health")).status != 200; ++i) {
  }
}

// Connections that ask for nothing keep nobody out: the one that waited longest leaves.
TEST_F(HostileTest, IdleConnectionsLeaveForOthers) {
  GatewayOptions options;
  options.connections_max = 256;
  Start(options);
  RawHttpClient streaming(gateway_->port());
  streaming.Send(
      ChatPost(R"({"model":"manual","messages":[{"role":"user","content":"hi"}],"stream":true})"));
  auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  std::vector<std::unique_ptr<RawHttpClient>> idle;
  for (size_t i = 0; i < options.connections_max + 44; ++i) {
    idle.push_back(std::make_unique<RawHttpClient>(gateway_->port()));
    // Some say nothing at all, some the beginning of a head, some keep a connection that was used.
    if (i % 3 == 1) idle.back()->Send("GET /health HTTP/1.1\r\nHost: loc");
    if (i % 3 == 2) {
      idle.back()->Send(Get("/health"));
      EXPECT_EQ(idle.back()->ReadResponse().status, 200) << i;
    }
  }
  for (int i = 0; i < 20; ++i) ASSERT_EQ(Ask(Get("/health")).status, 200) << "after the crowd";
  EXPECT_TRUE(idle.front()->WaitForClose());
  call->Text("still here");
  call->Done(absl::OkStatus());
  EXPECT_EQ(EventData(streaming.ReadResponse().body).back(), "[DONE]");
}

// Anybody may ask for the page's files: a client that does not read them keeps nobody out. A
// model's answer stays.
TEST_F(HostileTest, ClientsThatDoNotReadThePageLeaveForOthers) {
  GatewayOptions options;
  options.connections_max = 4;
  Start(options);
  RawHttpClient streaming(gateway_->port());
  streaming.Send(
      ChatPost(R"({"model":"manual","messages":[{"role":"user","content":"hi"}],"stream":true})"));
  auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  // More than the system's buffers take.
  std::string requests;
  for (int i = 0; i < 200; ++i) requests += Get("/dashboard/app.js");
  std::vector<std::unique_ptr<RawHttpClient>> unread;
  for (int i = 0; i < 3; ++i) {
    unread.push_back(std::make_unique<RawHttpClient>(gateway_->port()));
    unread.back()->Send(requests);
    ASSERT_EQ(unread.back()->ReadHead().status, 200);
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Ask(Get("/health")).status, 200) << i;
  call->Text("still here");
  call->Done(absl::OkStatus());
  EXPECT_EQ(EventData(streaming.ReadResponse().body).back(), "[DONE]");
}

// None of the streams' clients takes anything before the end; a thousand others send parts of
// requests and nothing more.
TEST_F(HostileTest, FiveHundredStreamsGoOnUnderAThousandSlowClients) {
  constexpr size_t kStreams = 500, kSlow = 1000;
  if (transport::RaiseDescriptorLimit() < 2 * (kStreams + kSlow) + 200) {
    GTEST_SKIP() << "this system lets a process have too few open sockets";
  }
  Start();
  std::vector<std::unique_ptr<RawHttpClient>> streams, slow;
  std::vector<std::shared_ptr<FakeCall>> calls;
  for (size_t i = 0; i < kStreams; ++i) {
    streams.push_back(std::make_unique<RawHttpClient>(gateway_->port()));
    streams.back()->Send(ChatPost(
        R"({"model":"manual","messages":[{"role":"user","content":"hi"}],"stream":true})"));
    calls.push_back(backend_.WaitForCall(i));
    ASSERT_NE(calls.back(), nullptr) << i;
  }
  for (size_t i = 0; i < kSlow; ++i) {
    slow.push_back(std::make_unique<RawHttpClient>(gateway_->port()));
    if (i % 4 == 1) slow.back()->Send("POST /v1/chat/completions HTTP/1.1\r\nHost: loc");
    if (i % 4 == 2) slow.back()->Send(ChatPost(kTiny).substr(0, ChatPost(kTiny).size() - 3));
    if (i % 4 == 3) slow.back()->Send("\x16\x03\x01 no HTTP at all\r\n\r\n");
    if (i % 50 != 0) continue;
    for (const auto& call : calls) call->Text("word ");
    ASSERT_EQ(Ask(ChatPost(kTiny)).status, 200) << "a good client beside " << i << " slow ones";
  }
  for (const auto& call : calls) call->Done(absl::OkStatus());
  for (size_t i = 0; i < kStreams; ++i) {
    const RawResponse response = streams[i]->ReadResponse();
    EXPECT_EQ(response.status, 200) << i;
    const std::vector<std::string> events = EventData(response.body);
    EXPECT_GE(events.size(), 20u) << i;
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events.back(), "[DONE]") << i;
  }
}

TEST_F(HostileTest, ExpectationsAreMet) {
  Start();
  RawHttpClient client(gateway_->port());
  client.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
      "Content-Type: application/json\r\nContent-Length: " +
      std::to_string(strlen(kTiny)) + "\r\n\r\n");
  EXPECT_EQ(client.ReadHead().status, 100);
  client.Send(kTiny);
  EXPECT_EQ(client.ReadResponse().status, 200);
}

}  // namespace
}  // namespace macrame::agentd
