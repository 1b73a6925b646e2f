// Requests that share a connection: each is answered, logged and told to its model as if it were
// alone, whatever came before it.

#include "agentd/gateway/http/exchange.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <regex>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/gateway/gateway.h"
#include "tests/unit/agentd/gateway/fake_backend.h"
#include "tests/unit/agentd/gateway/raw_http_client.h"

namespace macrame::agentd {
namespace {

const std::string kSecret(64, 'c');
constexpr char kGood[] = "000000000001";
constexpr char kRevoked[] = "000000000002";
constexpr char kLimited[] = "000000000003";
constexpr char kLaw[] = "000000000004";
constexpr char kTrace[] =
    "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
constexpr char kOrigin[] = "Origin: https://chat.example\r\n";

// "mirror" answers with the request that it got.
class MirrorBackend : public FakeBackend {
 public:
  std::vector<ServedModel> ListModels() override {
    std::vector<ServedModel> models = FakeBackend::ListModels();
    models.push_back({"mirror", 1'700'000'003, 4096});
    return models;
  }
};

std::string Sent(const char* id) {
  return absl::StrCat("Authorization: Bearer ", FormatApiKey(id, kSecret), "\r\n");
}

std::string Bare(const std::string& method, const std::string& path, const std::string& headers) {
  return absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: localhost\r\n", headers, "\r\n");
}

std::string Chat(const std::string& model, const std::string& headers,
                 const std::string& more_fields = "") {
  return ChatPost(
      absl::StrCat(R"({"model":")", model, R"(","messages":[{"role":"user","content":"hi"}])",
                   more_fields, "}"),
      headers);
}

struct Case {
  const char* name;
  std::string bytes;
  int status;
};

// Each leaves something behind that the next one must not see.
std::vector<Case> Cases() {
  return {
      {"a chat of a tenant, under an alias, with an id",
       Chat("gpt-4o", Sent(kLaw) + "x-request-id: first\r\n", R"(,"user":"ann")"), 200},
      {"a chat of another key", Chat("mirror", Sent(kGood)), 200},
      {"a chat with fields that nobody knows", Chat("tiny", Sent(kGood), R"(,"nonsense":1)"), 200},
      {"a chat whose strict tools hang on the model",
       Chat("tiny", Sent(kGood),
            R"(,"tools":[{"type":"function","function":{"name":"f","strict":true,)"
            R"("parameters":{"type":"object","properties":{},"additionalProperties":false}}}])"),
       200},
      {"a stream in a trace", Chat("tiny", Sent(kGood) + kTrace, R"(,"stream":true)"), 200},
      {"a chat of a key with limits", Chat("tiny", Sent(kLimited)), 200},
      {"a model that is not there", Chat("none", Sent(kGood)), 404},
      {"a bad field", Chat("tiny", Sent(kGood), R"(,"temperature":"hot")"), 400},
      {"a message of Anthropic's that lacks max_tokens",
       Post("/v1/messages", R"({"model":"tiny","messages":[{"role":"user","content":"hi"}]})",
            Sent(kGood)),
       400},
      {"a chat of Ollama's",
       Post("/api/chat", R"({"model":"tiny","messages":[{"role":"user","content":"hi"}]})",
            Sent(kGood)),
       200},
      {"a text prompt",
       Post("/v1/completions", R"({"model":"mirror","prompt":"hi","echo":true})", Sent(kGood)),
       200},
      {"models for a page", Bare("GET", "/v1/models", Sent(kGood) + kOrigin), 200},
      {"models for Anthropic's client",
       Bare("GET", "/v1/models", Sent(kGood) + "anthropic-version: 2023-06-01\r\n"), 200},
      {"one model, escaped", Bare("GET", "/v1/models/mlx-community%2FTiny-4bit", Sent(kGood)), 200},
      {"a browser's question",
       Bare("OPTIONS", "/v1/chat/completions",
            absl::StrCat(kOrigin, "Access-Control-Request-Headers: authorization\r\n")),
       200},
      {"a head alone", Bare("HEAD", "/v1/models", Sent(kGood)), 200},
      {"a revoked key", Bare("GET", "/v1/models", Sent(kRevoked)), 401},
      {"no key", Bare("GET", "/api/tags", ""), 401},
      {"health", Bare("GET", "/health", ""), 200},
      {"an unknown path", Bare("GET", "/v1/nothing", Sent(kGood)), 404},
      {"a wrong method", Bare("GET", "/api/chat", Sent(kGood)), 405},
      {"a file of the page", Bare("GET", "/dashboard/app.css", ""), 200},
  };
}

// What is new in each answer: ids that are drawn, times, and what is left of a key's limits.
std::string Steady(const std::string& text) {
  static const std::regex drawn(R"re((req|chatcmpl|cmpl|msg|resp|ollama)[-_][0-9a-f]{32})re");
  static const std::regex clock(R"re(("created":|"created_at":")[0-9TZ:-]+)re");
  return std::regex_replace(std::regex_replace(text, drawn, "$1-ID"), clock, "$1NOW");
}

// All that a client sees.
std::string Picture(const RawResponse& response) {
  std::string picture = absl::StrCat(response.status, "\n");
  for (const auto& [name, value] : response.headers) {
    const bool is_new = name == "date" || name == "openai-processing-ms" ||
                        absl::StartsWith(name, "x-ratelimit-") || name == "content-length";
    absl::StrAppend(&picture, name, ": ",
                    is_new                    ? "new"
                    : name == "traceresponse" ? value.substr(0, 35)
                                              : Steady(value),
                    "\n");
  }
  return absl::StrCat(picture, "\n", Steady(response.body));
}

// All that the agent is told.
std::string Picture(const RequestRecord& record) {
  return absl::StrCat(record.method, " ", record.route, " ", record.status, " ",
                      record.bytes_received, " ", record.model, " ", record.trace_id, " ",
                      Steady(record.request_id), " ", record.client_gone, " ",
                      record.handed_on.has_value(), record.first_piece.has_value(),
                      record.first_byte.has_value(), record.read.has_value());
}

class ExchangeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto access = std::make_shared<GatewayAccess>();
    std::map<std::string, v1::ApiKey> keys;
    for (const char* id : {kGood, kRevoked, kLimited, kLaw}) {
      keys[id].set_id(id);
      keys[id].set_secret_digest(KeyDigest(kSecret));
      keys[id].add_scopes("infer");
    }
    keys[kRevoked].set_revoked_unix_ms(1);
    keys[kLimited].set_requests_per_minute(1'000'000);
    keys[kLaw].set_tenant("law");
    access->SetKeys(keys);
    GatewayOptions options;
    options.port = 0;
    options.aliases = ModelAliases({"gpt-4o=mirror"});
    options.cors_origins = {"https://chat.example"};
    options.traces.ratio = 0;
    options.traces.take = [this](const std::vector<Span>& spans) {
      const std::lock_guard lock(mutex_);
      spans_ += spans.size();
    };
    options.on_request = [this](const RequestRecord& record) {
      const std::lock_guard lock(mutex_);
      records_.push_back(record);
      changed_.notify_all();
    };
    auto gateway = Gateway::Start(options, &backend_, access);
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
  }
  void TearDown() override { gateway_.reset(); }

  // What client and agent are told of this request.
  std::string Ask(RawHttpClient& client, const Case& asked) {
    client.Send(asked.bytes);
    const RawResponse response = client.ReadResponse(absl::StartsWith(asked.bytes, "HEAD"));
    EXPECT_EQ(response.status, asked.status) << asked.name << ": " << response.body;
    EXPECT_EQ(response.headers.count("connection"), 1u);
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(5), [&] { return !records_.empty(); });
    EXPECT_EQ(records_.size(), 1u) << asked.name;
    std::string picture = Picture(response);
    if (!records_.empty()) absl::StrAppend(&picture, "\n", Picture(records_.front()));
    absl::StrAppend(&picture, "\n", spans_, " spans");
    records_.clear();
    spans_ = 0;
    return picture;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RequestRecord> records_;
  size_t spans_ = 0;
  MirrorBackend backend_;
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(ExchangeTest, NothingOfARequestIsSeenInTheNext) {
  const std::vector<Case> cases = Cases();
  std::vector<std::string> alone;
  for (const Case& one : cases) {
    RawHttpClient client(gateway_->port());
    alone.push_back(Ask(client, one));
  }
  // Each behind each other one, on one connection.
  RawHttpClient client(gateway_->port());
  for (const Case& before : cases) {
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(absl::StrCat(cases[i].name, " behind ", before.name));
      Ask(client, before);
      EXPECT_EQ(Ask(client, cases[i]), alone[i]);
    }
  }
}

// The answer of a request that its client gave up comes while the next connection's is under way.
TEST_F(ExchangeTest, ALateAnswerReachesNoOtherRequest) {
  auto first = std::make_unique<RawHttpClient>(gateway_->port());
  first->Send(Chat("manual", Sent(kGood), R"(,"stream":true)"));
  const auto late = backend_.WaitForCall(0);
  ASSERT_NE(late, nullptr);
  first.reset();
  ASSERT_TRUE(late->WaitForCancel(std::chrono::seconds(5)));
  RawHttpClient second(gateway_->port());
  second.Send(Chat("manual", Sent(kLaw)));
  const auto call = backend_.WaitForCall(1);
  ASSERT_NE(call, nullptr);
  late->Text("another's words");
  late->Done(absl::OkStatus());
  call->Text("its own");
  call->Finish(v1::FINISH_REASON_STOP, 1, 1);
  call->Done(absl::OkStatus());
  const RawResponse response = second.ReadResponse();
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(absl::StrContains(response.body, "its own"));
  EXPECT_FALSE(absl::StrContains(response.body, "another's words"));
}

// Requests that were sent while an answer was on its way.
TEST_F(ExchangeTest, WhatWasAskedAheadIsAnsweredAsItself) {
  RawHttpClient client(gateway_->port());
  client.Send(Chat("manual", Sent(kLaw) + "x-request-id: first\r\n", R"(,"stream":true)") +
              Bare("GET", "/v1/models", Sent(kRevoked)) + Chat("mirror", Sent(kGood)));
  const auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  call->Text("words");
  call->Finish(v1::FINISH_REASON_STOP, 1, 1);
  call->Done(absl::OkStatus());
  EXPECT_EQ(client.ReadResponse().headers.at("x-request-id"), "first");
  const RawResponse refused = client.ReadResponse();
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.count("www-authenticate"), 1u);
  const RawResponse good = client.ReadResponse();
  EXPECT_EQ(good.status, 200);
  EXPECT_EQ(good.headers.count("www-authenticate"), 0u);
  EXPECT_NE(good.headers.at("x-request-id"), "first");
  EXPECT_FALSE(absl::StrContains(good.body, "first"));
}

}  // namespace
}  // namespace macrame::agentd
