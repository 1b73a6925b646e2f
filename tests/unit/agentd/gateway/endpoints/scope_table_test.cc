// SECURITY.md says for each request who may send it: a real gateway is asked each, as everybody.

#include "tests/unit/agentd/scope_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "agentd/gateway/endpoints/endpoints.h"
#include "agentd/gateway/gateway.h"
#include "tests/unit/agentd/gateway/fake_backend.h"
#include "tests/unit/agentd/gateway/raw_http_client.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

const std::string kSecret(64, 'c');
const std::map<std::string, std::string> kKeyIds = {{"infer", "0000000000a1"},
                                                    {"read", "0000000000a2"},
                                                    {"operate", "0000000000a3"},
                                                    {"admin", "0000000000a4"}};
constexpr char kOwnPage[] = "Origin: http://127.0.0.1:8000\r\n";

class ScopeTableTest : public ::testing::Test {
 protected:
  void Start(bool with_keys) {
    auto access = std::make_shared<GatewayAccess>();
    std::map<std::string, v1::ApiKey> keys;
    for (const auto& [scope, id] : kKeyIds) {
      keys[id].set_id(id);
      keys[id].set_secret_digest(KeyDigest(kSecret));
      keys[id].add_scopes(scope);
    }
    if (with_keys) access->SetKeys(keys);
    GatewayOptions options;
    options.port = 0;
    options.ask_status = [](const auto& told) { told(v1::ClusterStatus()); };
    options.latencies = [] { return std::make_shared<const std::string>(R"({"models":[]})"); };
    options.metrics = [](const std::string&, const auto& reply) {
      reply({"text/plain", std::make_shared<const std::string>("a 1\n")});
    };
    options.give_order = [](const Orderer&, const ClusterOrder&, const auto& done) {
      done(std::make_shared<const v1::UnloadModelResponse>());
    };
    auto gateway = Gateway::Start(options, &backend_, access);
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
  }
  // Whether whoever sends these headers is let in, whatever becomes of the request.
  bool IsLetIn(const std::string& request, const std::string& headers) {
    RawHttpClient client(gateway_->port());
    client.Send(
        absl::StrCat(request, " HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Type: ",
                     "application/json\r\nConnection: close\r\n", headers,
                     absl::StartsWith(request, "POST") ? "Content-Length: 2\r\n\r\n{}" : "\r\n"));
    const RawResponse response = client.ReadHead();
    if (response.status == 401) return false;
    EXPECT_NE(response.status, 0) << request;
    EXPECT_NE(response.status, 405) << request;
    EXPECT_NE(response.status, 500) << request;
    return response.status != 403;
  }
  static std::string Sent(const std::string& scope) {
    return absl::StrCat("Authorization: Bearer ", FormatApiKey(kKeyIds.at(scope), kSecret), "\r\n");
  }

  FakeBackend backend_;
  std::unique_ptr<Gateway> gateway_;
};

// What the table has to have, as it writes it.
std::set<std::string> AllRequests() {
  std::set<std::string> all;
  for (const Endpoint& endpoint : Endpoints().rows()) {
    for (const absl::string_view method : absl::StrSplit(endpoint.methods, ", ")) {
      // Who may GET may ask for the head alone.
      if (method == "HEAD" && absl::StrContains(endpoint.methods, "GET")) continue;
      all.insert(absl::StrCat(method, " ", endpoint.path, endpoint.has_name() ? "NAME" : ""));
    }
  }
  return all;
}

TEST_F(ScopeTableTest, EveryRequestHasARowAndNoOther) {
  std::set<std::string> told;
  for (const auto& [request, row] : tests::ReadScopeTable("request")) told.insert(request);
  EXPECT_EQ(told, AllRequests());
}

TEST_F(ScopeTableTest, WithKeysEachIsLetInAsTheTableSays) {
  Start(/*with_keys=*/true);
  for (const auto& [request, row] : tests::ReadScopeTable("request")) {
    EXPECT_EQ(IsLetIn(request, ""), row.at("no key") == "yes") << request;
    EXPECT_EQ(IsLetIn(request, kOwnPage), row.at("no key") == "yes") << request;
    for (const auto& [scope, id] : kKeyIds) {
      EXPECT_EQ(IsLetIn(request, Sent(scope)), row.at(scope) == "yes") << request << " " << scope;
    }
  }
}

TEST_F(ScopeTableTest, WithoutKeysThisMachineIsLetInAsTheTableSays) {
  Start(/*with_keys=*/false);
  for (const auto& [request, row] : tests::ReadScopeTable("request")) {
    const std::string& word = row.at("no key yet");
    EXPECT_EQ(IsLetIn(request, ""), word == "yes") << request;
    EXPECT_EQ(IsLetIn(request, kOwnPage), word == "yes" || word == "own page") << request;
  }
}

}  // namespace
}  // namespace macrame::agentd
