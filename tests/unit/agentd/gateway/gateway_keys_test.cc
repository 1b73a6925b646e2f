// What a client without a right is told, to the letter: a real gateway, over a socket.

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/gateway.h"
#include "tests/unit/agentd/gateway/fake_backend.h"
#include "tests/unit/agentd/gateway/raw_http_client.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

const std::string kSecret(64, 'c');

// The models of FakeBackend, and "threaded" for the tenant "law" alone.
class TenantBackend : public FakeBackend {
 public:
  std::vector<ServedModel> ListModels() override {
    std::vector<ServedModel> models = FakeBackend::ListModels();
    models.push_back({"threaded", 1'700'000'003, 4096, "law"});
    return models;
  }
  std::map<std::string, std::string> Aliases() override {
    return {{"gpt-4o", "threaded"}, {"all", "tiny"}};
  }
};

v1::ApiKey Key(const std::string& id) {
  v1::ApiKey key;
  key.set_id(id);
  key.set_secret_digest(KeyDigest(kSecret));
  key.add_scopes("infer");
  return key;
}

std::string Sent(const std::string& id) {
  return absl::StrCat("Authorization: Bearer ", FormatApiKey(id, kSecret), "\r\n");
}

std::string Chat(const std::string& model, const std::string& headers) {
  return ChatPost(
      absl::StrCat(R"({"model":")", model, R"(","messages":[{"role":"user","content":"hi"}]})"),
      headers);
}

std::string GetWith(const std::string& path, const std::string& headers = "") {
  return absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n", headers, "\r\n");
}

constexpr char kGood[] = "000000000001";
constexpr char kRevoked[] = "000000000002";
constexpr char kExpired[] = "000000000003";
constexpr char kReader[] = "000000000004";
constexpr char kOneModel[] = "000000000005";
constexpr char kTwoAMinute[] = "000000000006";
constexpr char kOneAtOnce[] = "000000000007";
constexpr char kLaw[] = "000000000008";
constexpr char kFewTokens[] = "000000000009";

class GatewayKeysTest : public ::testing::Test {
 protected:
  void Start(bool with_keys = true, GatewayOptions options = {}) {
    access_ = std::make_shared<GatewayAccess>([this](const RefusedRequest& refused) {
      const std::lock_guard lock(mutex_);
      refused_.push_back(refused);
    });
    if (with_keys) access_->SetKeys(Keys());
    options.port = 0;
    auto gateway = Gateway::Start(options, &backend_, access_);
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
  }

  static std::map<std::string, v1::ApiKey> Keys() {
    std::map<std::string, v1::ApiKey> keys;
    for (const char* id : {kGood, kRevoked, kExpired, kReader, kOneModel, kTwoAMinute, kOneAtOnce,
                           kLaw, kFewTokens}) {
      keys[id] = Key(id);
    }
    keys[kRevoked].set_revoked_unix_ms(1);
    keys[kExpired].set_expires_unix_ms(1);
    keys[kReader].set_scopes(0, "read");
    keys[kOneModel].add_models("other");
    keys[kTwoAMinute].set_requests_per_minute(2);
    keys[kOneAtOnce].set_concurrent_requests(1);
    keys[kLaw].set_tenant("law");
    keys[kFewTokens].set_tokens_per_minute(10);
    return keys;
  }

  RawResponse Ask(const std::string& bytes) {
    RawHttpClient client(gateway_->port());
    client.Send(bytes);
    return client.ReadResponse();
  }

  std::mutex mutex_;
  std::vector<RefusedRequest> refused_;
  TenantBackend backend_;
  std::shared_ptr<GatewayAccess> access_;
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(GatewayKeysTest, EachRefusalIsExact) {
  Start();
  constexpr char kNoToken[] = R"(Bearer realm="macrame")";
  constexpr char kBadToken[] = R"(Bearer realm="macrame", error="invalid_token")";
  constexpr char kLesserToken[] = R"(Bearer realm="macrame", error="insufficient_scope")";
  const std::string large(16 * 1024, 'h');
  struct Case {
    std::string name, bytes;
    int status;
    std::string type, code, challenge;
  };
  for (const Case& one : std::vector<Case>{
           {"no key", Chat("tiny", ""), 401, "invalid_request_error", "invalid_api_key", kNoToken},
           {"another's key", Chat("tiny", "Authorization: Bearer sk-1\r\n"), 401,
            "invalid_request_error", "invalid_api_key", kBadToken},
           {"another's key in the other header", Chat("tiny", "x-api-key: sk-1\r\n"), 401,
            "invalid_request_error", "invalid_api_key", kBadToken},
           {"revoked", Chat("tiny", Sent(kRevoked)), 401, "invalid_request_error",
            "invalid_api_key", kBadToken},
           {"expired", Chat("tiny", Sent(kExpired)), 401, "invalid_request_error",
            "invalid_api_key", kBadToken},
           {"beyond scope", Chat("tiny", Sent(kReader)), 403, "permission_error",
            "insufficient_permissions", kLesserToken},
           {"beyond model", Chat("tiny", Sent(kOneModel)), 403, "permission_error",
            "model_not_allowed", ""},
           {"another tenant's model", Chat("threaded", Sent(kGood)), 404, "invalid_request_error",
            "model_not_found", ""},
           {"a replica of it", Chat("threaded#2", Sent(kGood)), 404, "invalid_request_error",
            "model_not_found", ""},
           {"two keys", Chat("tiny", Sent(kGood) + Sent(kRevoked)), 400, "invalid_request_error",
            "malformed_http", ""},
           {"unknown path without a key", GetWith("/admin"), 401, "invalid_request_error",
            "invalid_api_key", kNoToken},
           {"unknown path", GetWith("/admin", Sent(kGood)), 404, "invalid_request_error",
            "unknown_path", ""},
           {"path with an encoded slash", GetWith("/health%2f..%2fv1%2fmodels"), 401,
            "invalid_request_error", "invalid_api_key", kNoToken},
           {"path with dots", GetWith("/health/../v1/models"), 401, "invalid_request_error",
            "invalid_api_key", kNoToken},
           {"path with two slashes", GetWith("//v1/models"), 401, "invalid_request_error",
            "invalid_api_key", kNoToken},
           {"path in upper case", GetWith("/HEALTH"), 401, "invalid_request_error",
            "invalid_api_key", kNoToken},
           {"path as an address", GetWith("http://localhost/v1/models"), 401,
            "invalid_request_error", "invalid_api_key", kNoToken},
           {"key in the query", GetWith("/v1/models?api_key=" + FormatApiKey(kGood, kSecret)), 401,
            "invalid_request_error", "invalid_api_key", kNoToken},
           {"another method of an open path", "DELETE /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
            401, "invalid_request_error", "invalid_api_key", kNoToken},
           {"large head", GetWith("/v1/models", "x: " + large + "\r\n"), 431,
            "invalid_request_error", "head_too_large", ""},
           {"large body without a key",
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
            "application/json\r\nContent-Length: 99999999\r\n\r\n",
            401, "invalid_request_error", "invalid_api_key", kNoToken},
           {"large body",
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
            "application/json\r\n" +
                Sent(kGood) + "Content-Length: 99999999\r\n\r\n",
            413, "invalid_request_error", "body_too_large", ""},
           {"another content type",
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
            "text/plain\r\n" +
                Sent(kGood) + "Content-Length: 2\r\n\r\n{}",
            415, "invalid_request_error", "unsupported_media_type", ""},
       }) {
    const RawResponse response = Ask(one.bytes);
    EXPECT_EQ(response.status, one.status) << one.name << ": " << response.body;
    const json body = json::parse(response.body, nullptr, false);
    ASSERT_TRUE(body.is_object() && body.contains("error")) << one.name << ": " << response.body;
    EXPECT_EQ(body["error"]["type"], one.type) << one.name;
    EXPECT_EQ(body["error"]["code"], one.code) << one.name;
    EXPECT_EQ(body["error"].size(), 4u) << one.name;
    const auto challenge = response.headers.find("www-authenticate");
    EXPECT_EQ(challenge == response.headers.end() ? "" : challenge->second, one.challenge)
        << one.name;
    EXPECT_EQ(response.body.find(kSecret), std::string::npos) << one.name;
  }
}

TEST_F(GatewayKeysTest, AKeyIsServedInBothHeadersAndOpenPathsNeedNone) {
  Start();
  EXPECT_EQ(Ask(Chat("tiny", Sent(kGood))).status, 200);
  EXPECT_EQ(Ask(Chat("tiny", "x-api-key: " + FormatApiKey(kGood, kSecret) + "\r\n")).status, 200);
  EXPECT_EQ(Ask(Get("/health")).status, 200);
  EXPECT_EQ(Ask(Get("/version")).status, 200);
  EXPECT_EQ(Ask(GetWith("/v1/models", Sent(kReader))).status, 200);
}

TEST_F(GatewayKeysTest, WithoutKeysThisMachineIsServedUnlessTheyAreRequired) {
  Start(/*with_keys=*/false);
  EXPECT_EQ(Ask(Chat("tiny", "")).status, 200);
  EXPECT_EQ(Ask(Chat("tiny", "Authorization: Bearer ollama\r\n")).status, 200);
  access_->SetKeys(Keys());
  EXPECT_EQ(Ask(Chat("tiny", "")).status, 401) << "from the moment that there is one";
  GatewayOptions required;
  required.keys_required = true;
  Start(/*with_keys=*/false, required);
  EXPECT_EQ(Ask(Chat("tiny", "")).status, 401);
  EXPECT_EQ(Ask(Get("/health")).status, 200);
}

TEST_F(GatewayKeysTest, ATenantsModelIsThereForItsKeysAlone) {
  Start();
  EXPECT_EQ(Ask(Chat("threaded", Sent(kLaw))).status, 200);
  EXPECT_EQ(Ask(GetWith("/v1/models/threaded", Sent(kLaw))).status, 200);
  EXPECT_EQ(Ask(GetWith("/v1/models/threaded", Sent(kGood))).status, 404);
  EXPECT_EQ(Ask(GetWith("/v1/models", Sent(kGood))).body.find("threaded"), std::string::npos);
  EXPECT_EQ(Ask(Chat("nothing", Sent(kGood))).body.find("threaded"), std::string::npos)
      << "nor is it named among those that are loaded";
}

// Who may not see a model does not learn its name from its aliases, nor loses its own by them.
TEST_F(GatewayKeysTest, ATenantsAliasesAreThereForItsKeysAlone) {
  GatewayOptions options;
  options.aliases = ModelAliases({"gpt-*=tiny"});
  Start(true, options);
  const auto models = [&](const char* key) { return Ask(GetWith("/v1/models", Sent(key))).body; };
  EXPECT_NE(models(kLaw).find("gpt-4o"), std::string::npos);
  EXPECT_EQ(models(kGood).find("gpt-4o"), std::string::npos);
  EXPECT_NE(models(kGood).find("\"all\""), std::string::npos);
  const RawResponse own = Ask(Chat("gpt-4o", Sent(kLaw)));
  EXPECT_NE(own.body.find("\"model\":\"threaded\""), std::string::npos) << own.body;
  const RawResponse other = Ask(Chat("gpt-4o", Sent(kGood)));
  EXPECT_NE(other.body.find("\"model\":\"tiny\""), std::string::npos) << other.body;
  EXPECT_EQ(models(kOneModel).find("\"all\""), std::string::npos) << "its key is for another";
}

TEST_F(GatewayKeysTest, BeyondTheRateItIs429WithWhenAndHowMuch) {
  Start();
  const RawResponse first = Ask(Chat("tiny", Sent(kTwoAMinute)));
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.headers.at("x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(first.headers.at("x-ratelimit-remaining-requests"), "1");
  EXPECT_EQ(Ask(Chat("tiny", Sent(kTwoAMinute))).status, 200);
  const RawResponse third = Ask(Chat("tiny", Sent(kTwoAMinute)));
  EXPECT_EQ(third.status, 429);
  EXPECT_EQ(json::parse(third.body)["error"]["code"], "rate_limit_exceeded");
  EXPECT_GE(std::stoi(third.headers.at("retry-after")), 25);
  EXPECT_EQ(third.headers.at("x-ratelimit-remaining-requests"), "0");
  EXPECT_EQ(Ask(GetWith("/v1/models", Sent(kTwoAMinute))).status, 200) << "looking is not counted";
  EXPECT_EQ(Ask(Chat("tiny", Sent(kGood))).status, 200) << "another key has its own";
}

TEST_F(GatewayKeysTest, TokensOfAnAnswerCount) {
  Start();
  EXPECT_EQ(Ask(Chat("tiny", Sent(kFewTokens))).status, 200);  // 17 of 10
  const RawResponse second = Ask(Chat("tiny", Sent(kFewTokens)));
  EXPECT_EQ(second.status, 429);
  EXPECT_EQ(second.headers.at("x-ratelimit-remaining-tokens"), "0");
}

TEST_F(GatewayKeysTest, BeyondConcurrencyItIs429UntilTheOtherIsOver) {
  Start();
  RawHttpClient first(gateway_->port());
  first.Send(Chat("manual", Sent(kOneAtOnce)));
  const auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  const RawResponse second = Ask(Chat("tiny", Sent(kOneAtOnce)));
  EXPECT_EQ(second.status, 429);
  EXPECT_EQ(second.headers.at("retry-after"), "1");
  call->Finish(v1::FINISH_REASON_STOP, 1, 1);
  call->Done(absl::OkStatus());
  EXPECT_EQ(first.ReadResponse().status, 200);
  // The first connection stays open and asks for nothing: it holds no place.
  RawResponse third;
  for (int i = 0; i < 50 && third.status != 200; ++i) third = Ask(Chat("tiny", Sent(kOneAtOnce)));
  EXPECT_EQ(third.status, 200);
}

class GatewayKeysEnd : public GatewayKeysTest {
 protected:
  // A stream of "manual" whose first words have come.
  std::shared_ptr<FakeCall> Begin(RawHttpClient& client, const char* key, size_t index) {
    return BeginWith(client, Sent(key), index);
  }
  std::shared_ptr<FakeCall> BeginWith(RawHttpClient& client, const std::string& headers,
                                      size_t index) {
    client.Send(
        ChatPost(R"({"model":"manual","stream":true,"messages":[{"role":"user","content":"hi"}]})",
                 headers));
    auto call = backend_.WaitForCall(index);
    if (call == nullptr) return nullptr;
    call->Text("first");
    EXPECT_EQ(client.ReadHead().status, 200);
    return call;
  }
  // Lets its call end, and reads to the end.
  static std::string Rest(RawHttpClient& client, FakeCall& call) {
    call.Text("second");
    call.Finish(v1::FINISH_REASON_STOP, 1, 2);
    call.Done(absl::OkStatus());
    std::string rest;
    for (std::string more = "-"; !more.empty() && rest.find("[DONE]") == std::string::npos;) {
      rest += more = client.ReadSome();
    }
    return rest;
  }
  static constexpr std::chrono::seconds kLimit{2};
};

TEST_F(GatewayKeysEnd, StreamsUnderWayWhenItIsRevokedAndNoOthers) {
  Start();
  RawHttpClient revoked(gateway_->port()), other(gateway_->port());
  const auto ended = Begin(revoked, kGood, 0);
  const auto goes_on = Begin(other, kLaw, 1);
  ASSERT_TRUE(ended != nullptr && goes_on != nullptr);
  auto keys = Keys();
  access_->SetKeys(keys);  // nothing changed
  keys[kGood].set_revoked_unix_ms(1);
  access_->SetKeys(keys);
  EXPECT_TRUE(ended->WaitForCancel(kLimit));
  EXPECT_TRUE(revoked.WaitForClose());
  EXPECT_NE(Rest(other, *goes_on).find("second"), std::string::npos);
  EXPECT_FALSE(goes_on->cancelled());
}

using KeyChange = std::pair<std::string, std::function<void(v1::ApiKey*)>>;

TEST_F(GatewayKeysEnd, AStreamThatItsKeyWouldNotOpenAnyMore) {
  Start();
  size_t calls = 0;
  for (const auto& [name, change] : std::vector<KeyChange>{
           {"rotated", [](auto* k) { k->set_secret_digest(KeyDigest(std::string(64, 'd'))); }},
           {"without a secret", [](auto* k) { k->clear_secret_digest(); }},
           {"another scope", [](auto* k) { k->set_scopes(0, "read"); }},
           {"a tenant", [](auto* k) { k->set_tenant("law"); }},
           {"other models", [](auto* k) { k->add_models("tiny"); }},
           {"an access file's", [](auto* k) { k->set_has_access_file(true); }}}) {
    access_->SetKeys(Keys());
    RawHttpClient client(gateway_->port());
    const auto call = Begin(client, kGood, calls++);
    ASSERT_NE(call, nullptr) << name;
    auto keys = Keys();
    change(&keys[kGood]);
    access_->SetKeys(keys);
    EXPECT_TRUE(call->WaitForCancel(kLimit)) << name;
    EXPECT_TRUE(client.WaitForClose()) << name;
  }
}

TEST_F(GatewayKeysEnd, ButNoneThatItsKeyStillOpens) {
  Start();
  size_t calls = 0;
  for (const auto& [name, change] : std::vector<KeyChange>{
           {"one scope more", [](auto* k) { k->add_scopes("read"); }},
           {"all scopes", [](auto* k) { k->set_scopes(0, "admin"); }},
           {"its model", [](auto* k) { k->add_models("manual"); }},
           {"a limit", [](auto* k) { k->set_requests_per_minute(1); }},
           {"an end to come", [](auto* k) { k->set_expires_unix_ms(GatewayUnixMs() + 60'000); }},
           {"a name", [](auto* k) { k->set_name("mine"); }}}) {
    access_->SetKeys(Keys());
    RawHttpClient client(gateway_->port());
    const auto call = Begin(client, kGood, calls++);
    ASSERT_NE(call, nullptr) << name;
    auto keys = Keys();
    change(&keys[kGood]);
    access_->SetKeys(keys);
    access_->CheckKeys();
    EXPECT_NE(Rest(client, *call).find("second"), std::string::npos) << name;
    EXPECT_FALSE(call->cancelled()) << name;
  }
}

TEST_F(GatewayKeysEnd, AStreamWithoutAKeyWhenThereIsOne) {
  Start(/*with_keys=*/false);
  RawHttpClient client(gateway_->port());
  const auto call = BeginWith(client, "", 0);
  ASSERT_NE(call, nullptr);
  access_->CheckKeys();
  access_->SetKeys(Keys());
  EXPECT_TRUE(call->WaitForCancel(kLimit));
  EXPECT_TRUE(client.WaitForClose());
}

TEST_F(GatewayKeysEnd, AStreamOfTheLastKeyThatWasThere) {
  Start();
  RawHttpClient client(gateway_->port());
  const auto call = Begin(client, kGood, 0);
  ASSERT_NE(call, nullptr);
  access_->SetKeys({});
  EXPECT_TRUE(call->WaitForCancel(kLimit));
  EXPECT_TRUE(client.WaitForClose());
}

// What a client sends where no keys are asked for is its own word.
TEST_F(GatewayKeysTest, ThisMachinesClientsWithoutAKeyShareTheirTurns) {
  Start(/*with_keys=*/false);
  for (const char* sent : {"", "Authorization: Bearer sk-1\r\n", "x-api-key: sk-2\r\n"}) {
    EXPECT_EQ(Ask(Chat("tiny", sent)).status, 200);
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(backend_.WaitForCall(i)->request.fairness_key(), "/") << i;
  }
}

TEST_F(GatewayKeysEnd, AWholeAnswerThatIsWaitedForToo) {
  Start();
  RawHttpClient client(gateway_->port());
  client.Send(Chat("manual", Sent(kGood)));
  const auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  auto keys = Keys();
  keys.erase(kGood);  // an ended key gave way to others
  access_->SetKeys(keys);
  EXPECT_TRUE(call->WaitForCancel(kLimit));
  EXPECT_TRUE(client.WaitForClose());
}

TEST_F(GatewayKeysEnd, AStreamWhenTheKeyExpires) {
  Start();
  auto keys = Keys();
  const uint64_t end = GatewayUnixMs() + 300;
  keys[kGood].set_expires_unix_ms(end);
  access_->SetKeys(keys);
  RawHttpClient client(gateway_->port());
  const auto call = Begin(client, kGood, 0);
  ASSERT_NE(call, nullptr);
  access_->CheckKeys();
  while (GatewayUnixMs() < end) std::this_thread::yield();
  access_->CheckKeys();
  EXPECT_TRUE(call->WaitForCancel(kLimit));
  EXPECT_TRUE(client.WaitForClose());
}

TEST_F(GatewayKeysTest, RefusalsAreToldWithoutQueryAndBody) {
  Start();
  Ask(GetWith("/v1/models?prompt=secret"));
  Ask(Chat("tiny", Sent(kOneModel)));
  const std::lock_guard lock(mutex_);
  ASSERT_EQ(refused_.size(), 2u);
  EXPECT_EQ(refused_[0].path, "/v1/models");
  EXPECT_EQ(refused_[0].key_id, "");
  EXPECT_EQ(refused_[0].address, "127.0.0.1");
  EXPECT_EQ(refused_[0].status, 401);
  EXPECT_EQ(refused_[1].key_id, kOneModel);
  EXPECT_EQ(refused_[1].code, "model_not_allowed");
}

class GatewayRetentionTest : public GatewayKeysTest {
 protected:
  GatewayRetentionTest() { Start(); }
  void SetLaw(std::optional<uint32_t> retention_s, bool memory_only = false) {
    v1::TenantLimits law;
    law.set_name("law");
    if (retention_s.has_value()) law.set_retention_s(*retention_s);
    law.set_memory_only(memory_only);
    access_->SetKeys(Keys(), {{"law", law}});
  }
  RawResponse Respond(const std::string& key, const json& more = json::object()) {
    json body = {{"model", "tiny"}, {"input", "Hi"}};
    body.update(more);
    const std::string text = body.dump();
    return Ask(absl::StrCat("POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n", Sent(key),
                            "content-type: application/json\r\ncontent-length: ", text.size(),
                            "\r\n\r\n", text));
  }
  int StatusOf(const std::string& id, const std::string& key) {
    return Ask(GetWith("/v1/responses/" + id, Sent(key))).status;
  }
};

TEST_F(GatewayRetentionTest, NothingIsStoredOfATenantThatSaysSo) {
  const std::string before = json::parse(Respond(kLaw).body)["id"];
  const std::string others = json::parse(Respond(kGood).body)["id"];
  EXPECT_EQ(StatusOf(before, kLaw), 200);
  SetLaw(0);
  EXPECT_EQ(StatusOf(before, kLaw), 404);
  EXPECT_EQ(StatusOf(others, kGood), 200);
  EXPECT_EQ(access_->answers().turns(), 1u) << "gone, and not just hidden";
  const RawResponse refused = Respond(kLaw, {{"store", true}});
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_EQ(json::parse(refused.body)["error"]["param"], "store");
  const RawResponse answered = Respond(kLaw);
  ASSERT_EQ(answered.status, 200) << answered.body;
  const json answer = json::parse(answered.body);
  EXPECT_EQ(answer["store"], false);
  EXPECT_EQ(StatusOf(answer["id"], kLaw), 404);
  EXPECT_NE(Respond(kLaw, {{"previous_response_id", answer["id"]}}).body.find("retention is 0"),
            std::string::npos);
  EXPECT_EQ(Respond(kGood, {{"store", true}}).status, 200);
}

TEST_F(GatewayRetentionTest, AnErasedTenantsAnswersAreGoneAndCounted) {
  const json first = json::parse(Respond(kLaw).body);
  Respond(kLaw, {{"previous_response_id", first["id"]}});
  Respond(kGood);
  const StoredAnswers::Dropped dropped = access_->EraseAnswers("law");
  EXPECT_EQ(dropped.turns, 2u);
  EXPECT_GT(dropped.bytes, first.dump().size());
  EXPECT_EQ(StatusOf(first["id"], kLaw), 404);
  EXPECT_EQ(Respond(kLaw, {{"previous_response_id", first["id"]}}).status, 400);
  EXPECT_EQ(access_->EraseAnswers("law").turns, 0u);
  EXPECT_EQ(access_->answers().turns(), 1u);
}

TEST_F(GatewayRetentionTest, AnAnswerUnderWayIsNotStoredAfterTheErasure) {
  const std::string text = json({{"model", "manual"}, {"input", "Hi"}}).dump();
  RawHttpClient client(gateway_->port());
  client.Send(absl::StrCat("POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n", Sent(kLaw),
                           "content-type: application/json\r\ncontent-length: ", text.size(),
                           "\r\n\r\n", text));
  const auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  access_->EraseAnswers("law");
  call->Text("late");
  call->Finish(v1::FINISH_REASON_STOP, 2, 1);
  call->Done(absl::OkStatus());
  const RawResponse answered = client.ReadResponse();
  ASSERT_EQ(answered.status, 200) << answered.body;
  EXPECT_EQ(StatusOf(json::parse(answered.body)["id"], kLaw), 404);
}

TEST_F(GatewayRetentionTest, AMemoryOnlyTenantsPromptsAreMarked) {
  SetLaw(std::nullopt, true);
  EXPECT_EQ(Ask(Chat("tiny", Sent(kLaw))).status, 200);
  EXPECT_TRUE(backend_.WaitForCall(0)->request.memory_only());
  EXPECT_EQ(Ask(Chat("tiny", Sent(kGood))).status, 200);
  EXPECT_FALSE(backend_.WaitForCall(1)->request.memory_only());
  SetLaw(std::nullopt, false);
  EXPECT_EQ(Ask(Chat("tiny", Sent(kLaw))).status, 200);
  EXPECT_FALSE(backend_.WaitForCall(2)->request.memory_only());
}

}  // namespace
}  // namespace macrame::agentd
