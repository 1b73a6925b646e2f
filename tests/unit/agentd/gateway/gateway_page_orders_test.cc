// What the dashboard's page may order, over real connections: who is let in, and what goes on to
// the cluster.

#include <gtest/gtest.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/gateway.h"
#include "proto/reasons.h"
#include "tests/unit/agentd/gateway/fake_backend.h"
#include "tests/unit/agentd/gateway/raw_http_client.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

const std::string kSecret(64, 'c');
constexpr char kOperator[] = "000000000001";
constexpr char kReader[] = "000000000002";
constexpr char kAdmin[] = "000000000003";
constexpr char kLaw[] = "000000000004";
constexpr char kOneModel[] = "000000000005";
constexpr char kSlow[] = "000000000006";

constexpr char kHost[] = "Host: 127.0.0.1:8000\r\n";
constexpr char kOwnOrigin[] = "Origin: http://127.0.0.1:8000\r\n";
constexpr char kJson[] = "Content-Type: application/json\r\n";
constexpr char kLoad[] = "/dashboard/api/load";
constexpr char kTiny[] = R"({"model":"tiny"})";

v1::ApiKey Key(const std::string& id, const std::string& scope) {
  v1::ApiKey key;
  key.set_id(id);
  key.set_secret_digest(KeyDigest(kSecret));
  key.add_scopes(scope);
  return key;
}

std::string Sent(const std::string& id) {
  return absl::StrCat("Authorization: Bearer ", FormatApiKey(id, kSecret), "\r\n");
}

// With its Content-Length; `fields` are all others.
std::string Post(const std::string& path, const std::string& fields, const std::string& body) {
  return absl::StrCat("POST ", path, " HTTP/1.1\r\n", fields, "Content-Length: ", body.size(),
                      "\r\n\r\n", body);
}

// "threaded" is the tenant law's.
class TenantBackend : public FakeBackend {
 public:
  std::vector<ServedModel> ListModels() override {
    std::vector<ServedModel> models = FakeBackend::ListModels();
    models.push_back({"threaded", 1'700'000'003, 4096, "law"});
    models.push_back({"secret", 1'700'000'003, 4096, "health"});
    return models;
  }
};

class GatewayOrdersTest : public ::testing::Test {
 protected:
  void Start(bool with_keys = true, GatewayOptions options = {}) {
    access_ = std::make_shared<GatewayAccess>([this](const RefusedRequest& refused) {
      const std::lock_guard lock(mutex_);
      refused_.push_back(refused);
    });
    if (with_keys) {
      std::map<std::string, v1::ApiKey> keys;
      keys[kOperator] = Key(kOperator, "operate");
      keys[kReader] = Key(kReader, "read");
      keys[kAdmin] = Key(kAdmin, "admin");
      keys[kLaw] = Key(kLaw, "operate");
      keys[kLaw].set_tenant("law");
      keys[kOneModel] = Key(kOneModel, "operate");
      keys[kOneModel].add_models("tiny");
      keys[kSlow] = Key(kSlow, "operate");
      keys[kSlow].set_requests_per_minute(1);
      access_->SetKeys(std::move(keys));
    }
    options.port = 0;
    options.give_order = [this](Orderer who, ClusterOrder order,
                                std::function<void(OrderAnswer)> done) {
      const std::lock_guard lock(mutex_);
      who_ = std::move(who);
      order_ = std::move(order);
      if (answer_.has_value()) return done(*answer_);
      held_.push_back(std::move(done));
    };
    auto gateway = Gateway::Start(options, &backend_, access_);
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
  }

  RawResponse Ask(const std::string& bytes) {
    RawHttpClient client(gateway_->port());
    client.Send(bytes);
    return client.ReadResponse();
  }
  RawResponse Order(const std::string& path, const std::string& key, const std::string& body) {
    return Ask(Post(path, absl::StrCat(kHost, kJson, Sent(key)), body));
  }
  // The order that was given since the last call.
  template <typename Request>
  std::optional<Request> Given() {
    const std::lock_guard lock(mutex_);
    std::optional<Request> found;
    if (order_.has_value() && std::holds_alternative<Request>(*order_)) {
      found = std::get<Request>(*order_);
    }
    order_.reset();
    return found;
  }
  bool NothingGiven() {
    const std::lock_guard lock(mutex_);
    return !order_.has_value();
  }

  std::mutex mutex_;
  std::vector<RefusedRequest> refused_;
  Orderer who_;
  std::optional<ClusterOrder> order_;
  std::optional<OrderAnswer> answer_ = std::make_shared<const v1::UnloadModelResponse>();
  std::vector<std::function<void(OrderAnswer)>> held_;
  TenantBackend backend_;
  std::shared_ptr<GatewayAccess> access_;
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(GatewayOrdersTest, AKeyThatMayOperateLoads) {
  Start();
  v1::LoadModelProgress progress;
  progress.set_resolved_name("tiny");
  answer_ = std::make_shared<const v1::LoadModelProgress>(progress);
  const RawResponse done =
      Order(kLoad, kOperator,
            R"({"model":"tiny","ranks":2,"parallelism":"pipeline","context_length":99})");
  ASSERT_EQ(done.status, 200) << done.body;
  EXPECT_EQ(json::parse(done.body)["resolved_name"], "tiny");
  EXPECT_EQ(done.headers.at("cache-control"), "no-store");
  const auto load = Given<v1::LoadModelRequest>();
  ASSERT_TRUE(load.has_value());
  EXPECT_EQ(load->name_or_path(), "tiny");
  EXPECT_EQ(load->deployment_name(), "");
  EXPECT_EQ(load->placement().world_size(), 2u);
  EXPECT_EQ(load->placement().parallelism(), v1::PARALLELISM_PIPELINE);
  EXPECT_EQ(load->placement().context_length(), 99u);
  EXPECT_EQ(who_.key_id, kOperator);
  EXPECT_EQ(who_.address, "127.0.0.1");
}

TEST_F(GatewayOrdersTest, EachPathIsItsOrder) {
  Start();
  EXPECT_EQ(Order("/dashboard/api/plan", kOperator, kTiny).status, 200);
  EXPECT_TRUE(Given<v1::PlanModelRequest>().has_value());
  EXPECT_EQ(Order("/dashboard/api/unload", kOperator, kTiny).status, 200);
  EXPECT_EQ(Given<v1::UnloadModelRequest>()->name(), "tiny");
  EXPECT_EQ(Order("/dashboard/api/cordon", kOperator, R"({"node":"0a","order":"drain"})").status,
            200);
  const auto cordon = Given<v1::SetCordonRequest>();
  EXPECT_EQ(cordon->node_id(), "0a");
  EXPECT_EQ(cordon->order(), v1::CORDON_ORDER_DRAIN);
  EXPECT_EQ(Order("/dashboard/api/keys/create", kAdmin,
                  R"({"name":"laptop","scopes":["infer","read"],"expires_in_seconds":60})")
                .status,
            200);
  const auto key = Given<v1::CreateKeyRequest>();
  EXPECT_EQ(key->key().name(), "laptop");
  EXPECT_EQ(key->key().scopes_size(), 2);
  EXPECT_GT(key->key().expires_unix_ms(), 1'700'000'000'000u);
  EXPECT_EQ(Order("/dashboard/api/keys/revoke", kAdmin, R"({"key":"0a"})").status, 200);
  EXPECT_EQ(Given<v1::RevokeKeyRequest>()->key(), "0a");
  EXPECT_EQ(
      Ask(absl::StrCat("GET /dashboard/api/keys HTTP/1.1\r\n", kHost, Sent(kAdmin), "\r\n")).status,
      200);
  EXPECT_TRUE(Given<v1::ListKeysRequest>().has_value());
}

TEST_F(GatewayOrdersTest, AnAdminsPageReadsTheNewestLinesOfTheAuditLog) {
  Start();
  v1::ReadAuditResponse log;
  log.add_lines(R"({"seq":7,"who":"local","what":"LoadModel"})");
  log.add_lines("not a line of the log");
  answer_ = std::make_shared<const v1::ReadAuditResponse>(log);
  const auto ask = [&](const std::string& path, const std::string& fields) {
    return Ask(absl::StrCat("GET ", path, " HTTP/1.1\r\n", kHost, fields, "\r\n"));
  };
  const RawResponse told = ask("/dashboard/api/audit?limit=4000", Sent(kAdmin));
  ASSERT_EQ(told.status, 200) << told.body;
  EXPECT_EQ(told.headers.at("cache-control"), "no-store");
  const json lines = json::parse(told.body)["lines"];
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], log.lines(0)) << "as it stands in the file: its hash can be checked";
  EXPECT_EQ(Given<v1::ReadAuditRequest>()->limit(), 50u);
  for (const char* key : {kOperator, kReader, kLaw}) {
    EXPECT_EQ(ask("/dashboard/api/audit", Sent(key)).status, 403) << key;
  }
  EXPECT_EQ(ask("/dashboard/api/audit", "").status, 401);
  EXPECT_EQ(
      ask("/dashboard/api/audit", absl::StrCat(Sent(kAdmin), "Sec-Fetch-Site: cross-site\r\n"))
          .status,
      403);
  EXPECT_EQ(Order("/dashboard/api/audit", kAdmin, "{}").status, 405);
  EXPECT_TRUE(NothingGiven());
}

TEST_F(GatewayOrdersTest, WhoMayNotIsRefused) {
  Start();
  const std::string fields = absl::StrCat(kHost, kJson, kOwnOrigin);
  EXPECT_EQ(Ask(Post(kLoad, fields, kTiny)).status, 401) << "there are keys: one is asked for";
  EXPECT_EQ(Order(kLoad, "ffffffffffff", kTiny).status, 401);
  EXPECT_EQ(Order(kLoad, kReader, kTiny).status, 403);
  EXPECT_EQ(Order("/dashboard/api/plan", kReader, kTiny).status, 403);
  // Keys are an admin's alone.
  EXPECT_EQ(Order("/dashboard/api/keys/create", kOperator, R"({"scopes":["admin"]})").status, 403);
  EXPECT_EQ(Order("/dashboard/api/keys/revoke", kOperator, R"({"key":"0a"})").status, 403);
  EXPECT_EQ(
      Ask(absl::StrCat("GET /dashboard/api/keys HTTP/1.1\r\n", kHost, Sent(kOperator), "\r\n"))
          .status,
      403);
  EXPECT_TRUE(NothingGiven());
  EXPECT_EQ(Ask(absl::StrCat("GET ", kLoad, " HTTP/1.1\r\n", kHost, Sent(kAdmin), "\r\n")).status,
            405);
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(refused_.size(), 7u);
}

TEST_F(GatewayOrdersTest, AnotherSitesPageIsRefusedWhateverKeyItHas) {
  Start();
  for (const char* field : {"Sec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Site: same-site\r\n",
                            "Origin: http://evil.example\r\n", "Origin: null\r\n",
                            "Origin: http://127.0.0.1:3000\r\n"}) {
    const RawResponse refused =
        Ask(Post(kLoad, absl::StrCat(kHost, kJson, Sent(kAdmin), field), kTiny));
    EXPECT_EQ(refused.status, 403) << field;
    EXPECT_EQ(json::parse(refused.body)["error"]["code"], "foreign_site") << field;
  }
  // Its own name that leads to this machine.
  EXPECT_EQ(Ask(Post(kLoad,
                     absl::StrCat("Host: evil.example\r\nOrigin: http://evil.example\r\n", kJson,
                                  Sent(kAdmin)),
                     kTiny))
                .status,
            403);
  EXPECT_TRUE(NothingGiven());
}

TEST_F(GatewayOrdersTest, WithoutKeysOnlyThisMachinesOwnPageGivesOrders) {
  Start(/*with_keys=*/false);
  const auto status_of = [&](const std::string& fields) {
    return Ask(Post(kLoad, absl::StrCat(fields, kJson), kTiny)).status;
  };
  const std::string own = absl::StrCat(kHost, kOwnOrigin);
  EXPECT_EQ(status_of(absl::StrCat(own, "Sec-Fetch-Site: same-origin\r\n")), 200);
  EXPECT_EQ(status_of(own), 200) << "a browser that does not tell the site";
  EXPECT_EQ(status_of("Host: localhost:8000\r\nOrigin: http://localhost:8000\r\n"), 200);
  ASSERT_TRUE(Given<v1::LoadModelRequest>().has_value());
  EXPECT_EQ(who_.key_id, "");
  // A program without a key has clusterctl.
  EXPECT_EQ(status_of(kHost), 401);
  // Another page of this machine, and of another site.
  EXPECT_EQ(status_of(absl::StrCat(kHost, "Origin: http://127.0.0.1:3000\r\n")), 401);
  EXPECT_EQ(status_of(absl::StrCat(own, "Sec-Fetch-Site: same-site\r\n")), 401);
  EXPECT_EQ(status_of(absl::StrCat(own, kOwnOrigin)), 401);
  // Behind a proxy the client may be anywhere.
  for (const char* field : {"X-Forwarded-For: 10.0.0.9\r\n", "Forwarded: for=10.0.0.9\r\n",
                            "Via: 1.1 proxy\r\n", "X-Real-IP: 10.0.0.9\r\n"}) {
    EXPECT_EQ(status_of(absl::StrCat(own, field)), 401) << field;
  }
  EXPECT_TRUE(NothingGiven());
  // The first key is made on the command line.
  EXPECT_EQ(
      Ask(Post("/dashboard/api/keys/create", absl::StrCat(own, kJson), R"({"scopes":["admin"]})"))
          .status,
      401);
}

// Headers are anybody's to write; whose process it is the system tells.
TEST_F(GatewayOrdersTest, WithoutKeysOtherUsersOfThisMachineGiveNoOrders) {
  const std::string own = absl::StrCat(kHost, kOwnOrigin, kJson);
  for (const std::optional<uint32_t> user : {std::optional<uint32_t>(65'534), {}}) {
    GatewayOptions options;
    options.peer_user = [user] { return user; };
    Start(/*with_keys=*/false, options);
    for (const char* order : {"load", "unload", "plan", "cordon", "keys/create", "keys/revoke"}) {
      const RawResponse refused = Ask(Post(absl::StrCat("/dashboard/api/", order), own, kTiny));
      EXPECT_EQ(refused.status, 401) << order;
      EXPECT_NE(refused.body.find("clusterctl key create"), std::string::npos) << refused.body;
    }
    EXPECT_TRUE(NothingGiven());
    const RawResponse told =
        Ask(absl::StrCat("GET /dashboard/api/access HTTP/1.1\r\n", kHost, "\r\n"));
    EXPECT_EQ(json::parse(told.body)["scopes"], json({"infer", "read"}));
    // Asking models stays open to this machine.
    EXPECT_EQ(
        Ask(ChatPost(R"({"model":"tiny","messages":[{"role":"user","content":"hi"}]})")).status,
        200);
  }
  GatewayOptions of_root;
  of_root.peer_user = [] { return std::optional<uint32_t>(0); };
  Start(/*with_keys=*/false, of_root);
  EXPECT_EQ(Ask(Post(kLoad, own, kTiny)).status, 200);
}

TEST_F(GatewayOrdersTest, WhereEverybodyMayComeOrKeysAreRequiredOrdersTakeAKey) {
  for (const bool is_open : {true, false}) {
    GatewayOptions options;
    options.open = is_open;
    options.keys_required = !is_open;
    Start(/*with_keys=*/false, options);
    EXPECT_EQ(Ask(Post(kLoad, absl::StrCat(kHost, kOwnOrigin, kJson), kTiny)).status, 401);
  }
}

TEST_F(GatewayOrdersTest, ThePageIsToldWhatItMayDo) {
  Start();
  const auto scopes = [&](const std::string& fields) {
    const RawResponse told =
        Ask(absl::StrCat("GET /dashboard/api/access HTTP/1.1\r\n", fields, "\r\n"));
    return told.status == 200 ? json::parse(told.body)["scopes"] : json(told.status);
  };
  EXPECT_EQ(scopes(absl::StrCat(kHost, Sent(kReader))), json({"read"}));
  EXPECT_EQ(scopes(absl::StrCat(kHost, Sent(kOperator))), json({"read", "operate"}));
  EXPECT_EQ(scopes(kHost), json(401));
  Start(/*with_keys=*/false);
  EXPECT_EQ(scopes(kHost), json({"infer", "read", "operate"}));
  EXPECT_EQ(scopes(absl::StrCat(kHost, "X-Forwarded-For: 10.0.0.9\r\n")), json({"infer", "read"}));
}

TEST_F(GatewayOrdersTest, OnlyJsonOfALimitedSizeIsRead) {
  Start();
  const std::string key = Sent(kOperator);
  for (const char* type :
       {"", "Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: multipart/form-data\r\n"}) {
    EXPECT_EQ(Ask(Post(kLoad, absl::StrCat(kHost, key, type), kTiny)).status, 415) << type;
  }
  const std::string large = absl::StrCat(R"({"model":")", std::string(20'000, 'a'), "\"}");
  EXPECT_EQ(Order(kLoad, kOperator, large).status, 413);
  EXPECT_EQ(Ask(absl::StrCat("POST ", kLoad, " HTTP/1.1\r\n", kHost, kJson, key,
                             "Transfer-Encoding: chunked\r\n\r\n",
                             absl::StrCat(absl::Hex(large.size())), "\r\n", large, "\r\n0\r\n\r\n"))
                .status,
            413);
  EXPECT_TRUE(NothingGiven());
}

TEST_F(GatewayOrdersTest, WhatMakesNoSenseIsNotGivenOn) {
  Start();
  for (const char* body :
       {"", "[]", "{", R"({"model":""})", R"({"model":7})", R"({"model":"tiny","rank":1})",
        R"({"model":"/etc"})", R"({"model":"../tiny"})", R"({"model":"~/tiny"})",
        R"({"model":"tiny","ranks":0})", R"({"model":"tiny","ranks":"2"})",
        R"({"model":"tiny","ranks":-1})", R"({"model":"tiny","parallelism":"both"})",
        R"({"model":"a\u0000b"})"}) {
    EXPECT_EQ(Order(kLoad, kOperator, body).status, 400) << body;
  }
  EXPECT_EQ(Order("/dashboard/api/cordon", kOperator, R"({"node":"0a","order":"kill"})").status,
            400);
  EXPECT_EQ(Order("/dashboard/api/keys/create", kAdmin, R"({"scopes":"admin"})").status, 400);
  EXPECT_TRUE(NothingGiven());
}

TEST_F(GatewayOrdersTest, AKeyForSomeModelsOrATenantOrdersThoseAlone) {
  Start();
  EXPECT_EQ(Order(kLoad, kOneModel, R"({"model":"other"})").status, 403);
  EXPECT_EQ(Order("/dashboard/api/plan", kOneModel, R"({"model":"other"})").status, 403);
  EXPECT_EQ(Order("/dashboard/api/unload", kLaw, kTiny).status, 403) << "it is everybody's";
  EXPECT_EQ(Order("/dashboard/api/unload", kLaw, R"({"model":"secret"})").status, 404);
  EXPECT_EQ(Order("/dashboard/api/cordon", kLaw, R"({"node":"0a","order":"cordon"})").status, 403);
  EXPECT_TRUE(NothingGiven());
  EXPECT_EQ(Order("/dashboard/api/unload", kLaw, R"({"model":"threaded"})").status, 200);
  EXPECT_EQ(Order(kLoad, kLaw, R"({"model":"new"})").status, 200);
  const auto load = Given<v1::LoadModelRequest>();
  EXPECT_EQ(load->placement().tenant(), "law");
  EXPECT_EQ(load->deployment_name(), "new") << "an alias can't lead to what others have";
}

TEST_F(GatewayOrdersTest, ARefusalHasItsCodeAndRemedy) {
  Start();
  v1::Reason reason = MakeReason(reasons::kMemoryShort, "it needs 9 GiB and there are 4");
  reason.set_remedy("unload something");
  answer_ = ReasonStatus(absl::StatusCode::kFailedPrecondition, reason);
  const RawResponse refused = Order(kLoad, kOperator, kTiny);
  EXPECT_EQ(refused.status, 422);
  const json error = json::parse(refused.body)["error"];
  EXPECT_EQ(error["code"], "MEMORY_SHORT");
  EXPECT_EQ(error["message"], "it needs 9 GiB and there are 4");
  EXPECT_EQ(error["remedy"], "unload something");
  answer_ = ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotLoaded, "none");
  EXPECT_EQ(Order("/dashboard/api/unload", kOperator, kTiny).status, 404);
}

TEST_F(GatewayOrdersTest, NobodyWaitsForEver) {
  GatewayOptions options;
  options.order_ms = milliseconds(50);
  answer_.reset();
  Start(/*with_keys=*/true, options);
  const RawResponse late = Order(kLoad, kOperator, kTiny);
  EXPECT_EQ(late.status, 504);
  EXPECT_EQ(json::parse(late.body)["error"]["code"], "order_late");
  // An answer that comes when nobody waits any more does no harm.
  const std::lock_guard lock(mutex_);
  for (const auto& done : held_) done(std::make_shared<const v1::UnloadModelResponse>());
}

TEST_F(GatewayOrdersTest, OrdersThatWaitAreBoundedAndEndWithTheGateway) {
  GatewayOptions options;
  options.orders_max = 1;
  answer_.reset();
  Start(/*with_keys=*/true, options);
  RawHttpClient first(gateway_->port());
  first.Send(Post(kLoad, absl::StrCat(kHost, kJson, Sent(kOperator)), kTiny));
  int status = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (NothingGiven() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  status = Order(kLoad, kOperator, kTiny).status;
  EXPECT_EQ(status, 503);
  const auto begun = std::chrono::steady_clock::now();
  gateway_->Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(3));
}

TEST_F(GatewayOrdersTest, AKeysLimitsHoldForOrders) {
  Start();
  EXPECT_EQ(Order("/dashboard/api/plan", kSlow, kTiny).status, 200);
  EXPECT_EQ(Order("/dashboard/api/plan", kSlow, kTiny).status, 429);
}

TEST_F(GatewayOrdersTest, AGatewayWithoutAnAgentSaysSo) {
  GatewayOptions options;
  options.port = 0;
  auto gateway = Gateway::Start(options, &backend_);
  ASSERT_TRUE(gateway.ok());
  gateway_ = *std::move(gateway);
  EXPECT_EQ(Ask(Post(kLoad, absl::StrCat(kHost, kOwnOrigin, kJson), kTiny)).status, 503);
}

}  // namespace
}  // namespace macrame::agentd
