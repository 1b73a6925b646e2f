// Retention of tenants over real agents: what one gateway stores is gone after an order at another.

#include <filesystem>
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

class RetentionTest : public ClusterTest {
 protected:
  // Of each agent, by its place.
  void StartAndLoad() {
    StartThree();
    for (const auto& agent : agents_) {
      ports_.push_back(GatewayPort(*agent));
      ASSERT_NE(ports_.back(), 0u);
    }
    v1::LoadModelRequest load;
    load.set_name_or_path(kModel);
    load.set_timeout_ms(60'000);
    std::vector<v1::LoadModelProgress> progress;
    const absl::Status loaded =
        Stream(*agents_[0], agentd::kLoadModel, load, std::chrono::seconds(90), &progress);
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  std::string KeyOf(const std::string& tenant) {
    v1::CreateKeyRequest request;
    request.mutable_key()->add_scopes("infer");
    request.mutable_key()->set_tenant(tenant);
    const auto response = Call(*agents_[0], agentd::kCreateKey, request);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? response->secret_key() : "";
  }
  RawResponse Ask(size_t agent, const std::string& request_line, const std::string& key,
                  const std::string& body = "") {
    RawHttpClient client(static_cast<uint16_t>(ports_.at(agent)));
    client.Send(absl::StrCat(
        request_line, " HTTP/1.1\r\nHost: localhost\r\n", "Authorization: Bearer ", key, "\r\n",
        "Content-Type: application/json\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
    return client.ReadResponse();
  }
  RawResponse Respond(size_t agent, const std::string& key, const json& more = json::object()) {
    json body = {{"model", kModel}, {"input", "hi"}, {"max_output_tokens", 2}};
    body.update(more);
    return Ask(agent, "POST /v1/responses", key, body.dump());
  }
  std::string Store(size_t agent, const std::string& key, const json& more = json::object()) {
    // Until the gateway knows the key and the model.
    RawResponse answered = Respond(agent, key, more);
    for (int i = 0; i < 100 && answered.status != 200; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      answered = Respond(agent, key, more);
    }
    EXPECT_EQ(answered.status, 200) << answered.body;
    return answered.status == 200 ? json::parse(answered.body)["id"].get<std::string>() : "";
  }
  int StatusOf(size_t agent, const std::string& id, const std::string& key) {
    return Ask(agent, "GET /v1/responses/" + id, key).status;
  }
  bool GoesWithin(double limit_s, size_t agent, const std::string& id, const std::string& key) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
    while (StatusOf(agent, id, key) != 404) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return true;
  }
  int Clusterctl(size_t agent, const std::string& words, std::string* out) {
    const ToolRun run =
        RunTool(absl::StrCat("--socket ", agents_.at(agent)->socket_path(), " ", words));
    *out = run.out;
    return run.code;
  }

  std::vector<uint32_t> ports_;
};

TEST_F(RetentionTest, WhatOneGatewayStoresIsGoneAfterAnOrderAtAnother) {
  StartAndLoad();
  const std::string law = KeyOf("law");
  const std::string art = KeyOf("art");
  const std::string kept = Store(1, art);
  const std::string first = Store(1, law);
  const std::string second = Store(1, law, {{"previous_response_id", first}});
  EXPECT_EQ(StatusOf(1, first, law), 200);
  EXPECT_EQ(StatusOf(1, second, law), 200);
  std::string out;
  ASSERT_EQ(Clusterctl(2, "tenant erase law", &out), 0) << out;
  EXPECT_NE(out.find("tenant law: 2 stored answers dropped at 3 nodes"), std::string::npos) << out;
  EXPECT_EQ(StatusOf(1, first, law), 404);
  EXPECT_EQ(StatusOf(1, second, law), 404);
  const auto gone = Respond(1, law, {{"previous_response_id", second}});
  EXPECT_EQ(gone.status, 400) << gone.body;
  EXPECT_NE(gone.body.find("previous_response_not_found"), std::string::npos) << gone.body;
  EXPECT_EQ(StatusOf(1, kept, art), 200);
  // By an order about those that are stored already, and by their age.
  const std::string third = Store(1, law);
  EXPECT_EQ(StatusOf(1, third, law), 200);
  ASSERT_EQ(Clusterctl(2, "tenant set law --retention 1s", &out), 0) << out;
  EXPECT_EQ(out, "tenant law: answers kept 1s\n");
  EXPECT_TRUE(GoesWithin(10, 1, third, law));
  const std::string log = agents_[1]->log_path();
  const auto purged = [&] {
    const std::string text = ReadWholeFile(log);
    return text.find("stored answers dropped", text.find("their tenant's were erased")) !=
           std::string::npos;
  };
  for (int i = 0; i < 200 && !purged(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(purged()) << "out of memory, though nobody asked for it";
  EXPECT_EQ(StatusOf(1, kept, art), 200);
  // Nothing at all.
  ASSERT_EQ(Clusterctl(0, "tenant set law --retention 0", &out), 0) << out;
  RawResponse refused = Respond(1, law, {{"store", true}});
  for (int i = 0; i < 100 && refused.status == 200; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    refused = Respond(1, law, {{"store", true}});
  }
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_NE(refused.body.find("store"), std::string::npos) << refused.body;
  const RawResponse unstored = Respond(1, law);
  ASSERT_EQ(unstored.status, 200) << unstored.body;
  EXPECT_EQ(json::parse(unstored.body)["store"], false);
  EXPECT_EQ(StatusOf(1, json::parse(unstored.body)["id"], law), 404);
  EXPECT_EQ(Clusterctl(1, "tenant list", &out), 0);
  EXPECT_NE(out.find("no answers stored"), std::string::npos) << out;
}

TEST_F(RetentionTest, ANodeThatCouldNotBeAskedIsNamedAndTheLogTells) {
  StartAndLoad();
  const std::string law = KeyOf("law");
  Store(1, law);
  std::string out;
  ASSERT_EQ(Clusterctl(0, "tenant erase law -o json", &out), 0) << out;
  json told = json::parse(out);
  uint32_t dropped = 0;
  for (const json& node : told["nodes"]) dropped += node.value("answers", 0u);
  EXPECT_EQ(dropped, 1u) << out;
  ASSERT_EQ(Clusterctl(0, "audit show", &out), 0);
  EXPECT_NE(out.find("EraseTenant"), std::string::npos) << out;
  ASSERT_EQ(Clusterctl(1, "audit show", &out), 0);
  EXPECT_NE(out.find("DropAnswers"), std::string::npos) << out;
  agents_[2]->Kill(SIGKILL);
  EXPECT_EQ(Clusterctl(0, "tenant erase law", &out), 3) << out;
  EXPECT_NE(out.find("dropped at 2 nodes; 1 node was not asked"), std::string::npos) << out;
  EXPECT_NE(out.find("cleo"), std::string::npos) << out;
}

}  // namespace
}  // namespace macrame::tests
