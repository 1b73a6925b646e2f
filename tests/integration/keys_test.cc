// Keys, tenants and the audit log of real agents: made over the socket, asked for over HTTP.

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/integration/cluster_test_base.h"
#include "tests/integration/tool_run.h"
#include "tests/unit/agentd/gateway/raw_http_client.h"

namespace macrame::tests {
namespace {

using agentd::RawHttpClient;
using agentd::RawResponse;
using nlohmann::json;

constexpr char kModel[] = "knot-5m-4bit";

class KeysTest : public ClusterTest {
 protected:
  AgentProcess& StartOne(std::vector<std::string> more = {}) {
    AgentProcess& agent = AddAgent("ada", "", std::move(more));
    agent.Start();
    WaitFor("a coordinator and a gateway", {&agent}, 20,
            [](const auto& status) { return HasCoordinator(status) && status.healthy(); });
    return agent;
  }
  v1::CreateKeyResponse Create(AgentProcess& agent, const v1::ApiKey& wanted) {
    v1::CreateKeyRequest request;
    *request.mutable_key() = wanted;
    if (request.key().scopes().empty()) request.mutable_key()->add_scopes("infer");
    const auto response = Call(agent, agentd::kCreateKey, request);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.value_or(v1::CreateKeyResponse());
  }
  RawResponse Ask(uint16_t port, const std::string& request_line, const std::string& key,
                  const std::string& body = "") {
    RawHttpClient client(port);
    const std::string authorization =
        key.empty() ? "" : absl::StrCat("Authorization: Bearer ", key, "\r\n");
    client.Send(absl::StrCat(request_line, " HTTP/1.1\r\nHost: localhost\r\n", authorization,
                             "Content-Type: application/json\r\nContent-Length: ", body.size(),
                             "\r\n\r\n", body));
    return client.ReadResponse();
  }
  RawResponse Chat(uint16_t port, const std::string& key) {
    return Ask(port, "POST /v1/chat/completions", key,
               absl::StrCat(R"({"model":")", kModel,
                            R"(","max_tokens":2,"messages":[{"role":"user","content":"hi"}]})"));
  }
  // clusterctl's exit code; what it printed, in `out`.
  int Clusterctl(AgentProcess& agent, const std::string& words, std::string* out = nullptr) {
    const ToolRun run = RunTool(absl::StrCat("--socket ", agent.socket_path(), " ", words));
    if (out != nullptr) *out = run.out;
    return run.code;
  }
};

// Set at one agent, they hold at another's gateway.
TEST_F(KeysTest, ATenantsKeysShareItsLimits) {
  StartThree();
  const uint16_t port = GatewayPort(*agents_[1]);
  v1::ApiKey of_law;
  of_law.set_tenant("law");
  const std::string one = Create(*agents_[0], of_law).secret_key();
  const std::string two = Create(*agents_[0], of_law).secret_key();
  const std::string other = Create(*agents_[0], {}).secret_key();
  std::string out;
  ASSERT_EQ(Clusterctl(*agents_[0], "tenant set law --limit 2", &out), 0) << out;
  EXPECT_EQ(out, "tenant law: 2 requests/min\n");
  // Until the gateway has heard of it: nothing is loaded, so that each is a 404.
  for (int i = 0; i < 200 && !Chat(port, one).headers.contains("x-ratelimit-limit-requests"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(Chat(port, two).status, 404);
  const RawResponse refused = Chat(port, one);
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_NE(refused.body.find("law"), std::string::npos) << refused.body;
  EXPECT_EQ(Chat(port, other).status, 404) << "of no tenant";
  ASSERT_EQ(Clusterctl(*agents_[2], "tenant clear law", &out), 0) << out;
  int status = 0;
  for (int i = 0; i < 200 && (status = Chat(port, one).status) != 404; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(status, 404) << "its limits are gone";
  EXPECT_EQ(Clusterctl(*agents_[2], "tenant list", &out), 0);
  EXPECT_NE(out.find("No tenant has limits"), std::string::npos) << out;
}

TEST_F(KeysTest, AKeyIsMadeUsedRotatedAndRevoked) {
  AgentProcess& agent = StartOne();
  const uint16_t port = GatewayPort(agent);
  ASSERT_NE(port, 0);
  EXPECT_EQ(Ask(port, "GET /v1/models", "").status, 200) << "before any key";
  const v1::CreateKeyResponse made = Create(agent, {});
  EXPECT_EQ(made.key().secret_digest(), "");
  EXPECT_EQ(Ask(port, "GET /v1/models", "").status, 401);
  EXPECT_EQ(Ask(port, "GET /v1/models", made.secret_key()).status, 200);
  EXPECT_EQ(Ask(port, "GET /health", "").status, 200);
  v1::RotateKeyRequest rotate;
  rotate.set_key(made.key().id());
  const auto rotated = Call(agent, agentd::kRotateKey, rotate);
  ASSERT_TRUE(rotated.ok()) << rotated.status();
  EXPECT_EQ(Ask(port, "GET /v1/models", made.secret_key()).status, 401);
  EXPECT_EQ(Ask(port, "GET /v1/models", rotated->secret_key()).status, 200);
  v1::RevokeKeyRequest revoke;
  revoke.set_key(made.key().id());
  ASSERT_TRUE(Call(agent, agentd::kRevokeKey, revoke).ok());
  const RawResponse refused = Ask(port, "GET /v1/models", rotated->secret_key());
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(json::parse(refused.body)["error"]["code"], "invalid_api_key");
  EXPECT_EQ(Ask(port, "GET /v1/models", "").status, 401) << "the last key's end opens nothing";
  revoke.set_key("nobody's");
  EXPECT_TRUE(absl::IsNotFound(Call(agent, agentd::kRevokeKey, revoke).status()));
  // After a restart it is as it was: from the disk.
  agent.Kill(SIGKILL);
  agent.Start();
  WaitFor("it is back", {&agent}, 20, [](const auto& status) { return HasCoordinator(status); });
  EXPECT_EQ(Ask(GatewayPort(agent), "GET /v1/models", "").status, 401);
  for (const char* file : {"/ada/agentd.log", "/ada/s/audit.log", "/ada/s/state.db"}) {
    const std::string text = ReadWholeFile(folder_ + file);
    EXPECT_EQ(text.find(made.secret_key().substr(16)), std::string::npos) << file;
  }
}

TEST_F(KeysTest, AKeyHoldsAtEveryGateway) {
  StartThree();
  const v1::CreateKeyResponse made = Create(*agents_[0], {});
  for (const auto& agent : agents_) {
    const uint16_t port = GatewayPort(*agent);
    RawResponse without;
    // Replicated to a majority when it was made, to the last one a moment later.
    for (int i = 0; i < 100 && without.status != 401; ++i) {
      without = Ask(port, "GET /v1/models", "");
    }
    EXPECT_EQ(without.status, 401);
    EXPECT_EQ(Ask(port, "GET /v1/models", made.secret_key()).status, 200);
  }
}

TEST_F(KeysTest, AModelLoadedForATenantIsServedToItsKeysAlone) {
  AgentProcess& agent = StartOne();
  const uint16_t port = GatewayPort(agent);
  v1::ApiKey law;
  law.set_tenant("law");
  const std::string own = Create(agent, law).secret_key();
  const std::string other = Create(agent, {}).secret_key();
  v1::LoadModelRequest load;
  load.set_name_or_path(kModel);
  load.mutable_placement()->set_tenant("law");
  load.set_timeout_ms(60'000);
  std::vector<v1::LoadModelProgress> progress;
  const absl::Status loaded =
      Stream(agent, agentd::kLoadModel, load, std::chrono::seconds(90), &progress);
  ASSERT_TRUE(loaded.ok()) << loaded;
  const RawResponse served = Chat(port, own);
  EXPECT_EQ(served.status, 200) << served.body;
  const RawResponse refused = Chat(port, other);
  EXPECT_EQ(refused.status, 404) << refused.body;
  EXPECT_EQ(json::parse(refused.body)["error"]["code"], "model_not_found");
  EXPECT_EQ(json::parse(Ask(port, "GET /v1/models", other).body)["data"].size(), 0u);
  EXPECT_EQ(json::parse(Ask(port, "GET /v1/models", own).body)["data"].size(), 1u);
}

TEST_F(KeysTest, TheAuditLogTellsOfOrdersAndRefusalsAndAChangeIsFound) {
  AgentProcess& agent = StartOne();
  std::string key, shown;
  ASSERT_EQ(Clusterctl(agent, "-q key create --name laptop --scope infer,read --expires 30d", &key),
            0)
      << key;
  key.pop_back();
  EXPECT_EQ(key.substr(0, 3), "mk-");
  EXPECT_EQ(Clusterctl(agent, "key create --scope everything"), 2);
  EXPECT_EQ(Clusterctl(agent, "key create --expires soon"), 2);
  const uint16_t port = GatewayPort(agent);
  EXPECT_EQ(Ask(port, "GET /v1/models?prompt=hidden", "").status, 401);
  EXPECT_EQ(Ask(port, "GET /v1/models", key).status, 200);
  EXPECT_EQ(Clusterctl(agent, "model unload nothing"), 4);
  EXPECT_EQ(Clusterctl(agent, "key list", &shown), 0);
  EXPECT_NE(shown.find("laptop"), std::string::npos) << shown;
  EXPECT_EQ(Clusterctl(agent, "key revoke laptop"), 0);
  ASSERT_EQ(Clusterctl(agent, "audit show -o json", &shown), 0);
  std::vector<std::string> told;
  const json log = json::parse(shown);
  for (const json& entry : log["items"]) {
    told.push_back(absl::StrCat(entry["what"].get<std::string>(), " ",
                                entry["target"].get<std::string>(), " ",
                                entry["outcome"].get<std::string>()));
  }
  EXPECT_EQ(told, (std::vector<std::string>{"CreateKey laptop ok", "CreateKey  BAD_REQUEST",
                                            "GET /v1/models  401 invalid_api_key",
                                            "UnloadModel nothing MODEL_NOT_LOADED",
                                            "RevokeKey laptop ok"}));
  EXPECT_EQ(shown.find("hidden"), std::string::npos);
  EXPECT_EQ(shown.find(key.substr(16)), std::string::npos);
  EXPECT_EQ(Clusterctl(agent, "audit verify"), 0);
  ASSERT_EQ(Clusterctl(agent, "audit export", &shown), 0);
  const std::string path = agent.folder() + "/s/audit.log";
  const std::string text = ReadWholeFile(path);
  EXPECT_EQ(shown, text);
  std::string changed = text;
  changed.replace(changed.find("laptop"), 6, "tablet");
  std::ofstream(path, std::ios::trunc) << changed;
  EXPECT_EQ(Clusterctl(agent, "audit verify", &shown), 1);
  EXPECT_NE(shown.find("audit.log:1"), std::string::npos) << shown;
}

TEST_F(KeysTest, AnAdminsKeyReadsTheAuditLogAtTheGateway) {
  AgentProcess& agent = StartOne();
  v1::ApiKey wanted;
  wanted.set_name("ops");
  wanted.add_scopes("admin");
  const v1::CreateKeyResponse admin = Create(agent, wanted);
  const v1::CreateKeyResponse other = Create(agent, {});
  const uint16_t port = GatewayPort(agent);
  EXPECT_EQ(Ask(port, "GET /dashboard/api/audit", other.secret_key()).status, 403);
  const RawResponse told = Ask(port, "GET /dashboard/api/audit", admin.secret_key());
  ASSERT_EQ(told.status, 200) << told.body;
  const json log = json::parse(told.body);
  std::vector<std::string> seen;
  for (const json& line : log["lines"]) {
    const json entry = json::parse(line.get<std::string>());
    seen.push_back(absl::StrCat(entry["who"].get<std::string>(), ": ",
                                entry["what"].get<std::string>(), " ",
                                entry["outcome"].get<std::string>()));
  }
  EXPECT_EQ(seen, (std::vector<std::string>{
                      "local: CreateKey ok", "local: CreateKey ok",
                      absl::StrCat("key ", other.key().id(),
                                   ": GET /dashboard/api/audit 403 insufficient_permissions")}));
}

TEST_F(KeysTest, RequiredKeysAreAskedForFromTheStart) {
  AgentProcess& agent = AddAgent("ada", "", {"gateway_keys: required"});
  agent.Start();
  WaitFor("it says that there is no key", {&agent}, 20, [](const v1::ClusterStatus& status) {
    for (const v1::Reason& problem : status.problems()) {
      if (problem.code() == "GATEWAY_WITHOUT_KEYS") return HasCoordinator(status);
    }
    return false;
  });
  const uint16_t port = GatewayPort(agent);
  EXPECT_EQ(Ask(port, "GET /v1/models", "").status, 401);
  const v1::CreateKeyResponse made = Create(agent, {});
  EXPECT_EQ(Ask(port, "GET /v1/models", made.secret_key()).status, 200);
  const auto status = Status(agent);
  ASSERT_TRUE(status.ok());
  for (const v1::Reason& problem : status->problems()) {
    EXPECT_NE(problem.code(), "GATEWAY_WITHOUT_KEYS");
  }
}

}  // namespace
}  // namespace macrame::tests
