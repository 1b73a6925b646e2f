// Other APIs than OpenAI's chats through a real port: errors in their shape, streams, stored
// turns, and clients that leave.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/dialects/token_request.h"
#include "agentd/gateway/gateway.h"
#include "tests/unit/agentd/gateway/fake_backend.h"
#include "tests/unit/agentd/gateway/raw_http_client.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;

class GatewayDialectsTest : public ::testing::Test {
 protected:
  GatewayDialectsTest() {
    GatewayOptions options;
    options.port = 0;
    options.version = "1.2.3";
    options.keep_alive_ms = std::chrono::milliseconds(50);
    options.first_piece_ms = std::chrono::milliseconds(50);
    options.aliases = ModelAliases({"claude-*=tiny", "gpt-4o=tiny"});
    auto gateway = Gateway::Start(options, &backend_);
    EXPECT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
  }
  static std::string Request(const std::string& method, const std::string& path,
                             const std::string& body, const std::string& more = "") {
    return absl::StrCat(method, " ", path, " HTTP/1.1\r\nhost: localhost\r\n", more,
                        "content-type: application/json\r\ncontent-length: ", body.size(),
                        "\r\n\r\n", body);
  }
  RawResponse Ask(const std::string& method, const std::string& path, const json& body,
                  const std::string& more = "") {
    RawHttpClient client(gateway_->port());
    client.Send(Request(method, path, body.is_null() ? "" : body.dump(), more));
    return client.ReadResponse(method == "HEAD");
  }
  static json Messages(const std::string& model) {
    return {{"model", model},
            {"max_tokens", 50},
            {"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  }
  json Response(const json& more, const std::string& headers = "", int status = 200) {
    json body = {{"model", "tiny"}, {"input", "Hi"}};
    body.update(more);
    const RawResponse response = Ask("POST", "/v1/responses", body, headers);
    EXPECT_EQ(response.status, status) << response.body;
    return json::parse(response.body);
  }

  FakeBackend backend_;
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(GatewayDialectsTest, MessagesAreAnswered) {
  const RawResponse response = Ask("POST", "/v1/messages?beta=true", Messages("tiny"),
                                   "x-api-key: k\r\nanthropic-version: 2023-06-01\r\n");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.headers.at("request-id"), response.headers.at("x-request-id"));
  const json body = json::parse(response.body);
  EXPECT_EQ(body["content"][0]["text"], "RDMA lets a card write.");
  EXPECT_EQ(body["stop_reason"], "end_turn");
  EXPECT_FALSE(backend_.WaitForCall(0)->request.cache_salt().empty()) << "the key is a tenant";
}

TEST_F(GatewayDialectsTest, NamesThatProgramsHaveBuiltInMeanAModelOfThisCluster) {
  const RawResponse response = Ask("POST", "/v1/messages", Messages("claude-haiku-9"));
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(json::parse(response.body)["model"], "tiny") << "the answer says who answered";
  EXPECT_EQ(backend_.WaitForCall(0)->request.deployment(), "tiny");
  const json listed = json::parse(Ask("GET", "/v1/models", nullptr).body);
  EXPECT_EQ(listed["data"].back()["id"], "gpt-4o");
  EXPECT_EQ(Ask("GET", "/v1/models/gpt-4o", nullptr).status, 200);
  EXPECT_EQ(Ask("POST", "/api/show", {{"model", "gpt-4o"}}).status, 200);
}

TEST_F(GatewayDialectsTest, FailuresHaveAnthropicsShapeAndTheirStatus) {
  const std::tuple<const char*, int, const char*> kFailures[] = {
      {"busy", 429, "rate_limit_error"},
      {"loading", 503, "overloaded_error"},
      {"broken", 500, "api_error"},
      {"narrow", 400, "invalid_request_error"},
      {"unknown", 404, "not_found_error"}};
  for (const auto& [model, status, type] : kFailures) {
    for (const bool stream : {false, true}) {
      json body = Messages(model);
      body["stream"] = stream;
      const RawResponse response = Ask("POST", "/v1/messages", body);
      EXPECT_EQ(response.status, status) << model;
      const json error = json::parse(response.body);
      EXPECT_EQ(error["type"], "error");
      EXPECT_EQ(error["error"]["type"], type) << model;
      EXPECT_EQ(error["request_id"], response.headers.at("request-id"));
      EXPECT_EQ(response.headers.contains("retry-after"), status == 429 || status == 503);
    }
  }
  const RawResponse wrong = Ask("GET", "/v1/messages", nullptr);
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(json::parse(wrong.body)["error"]["type"], "invalid_request_error");
}

TEST_F(GatewayDialectsTest, ABodyThatIsAnnouncedTooLargeIsRefusedInTheDialectOfItsPath) {
  const auto announce = [&](const char* host) {
    RawHttpClient client(gateway_->port());
    client.Send(absl::StrCat("POST /v1/messages HTTP/1.1\r\nhost: ", host,
                             "\r\nx-request-id: mine-1\r\ncontent-type: application/json\r\n"
                             "content-length: 99999999\r\n\r\n"));
    return client.ReadResponse();
  };
  const RawResponse response = announce("localhost");
  EXPECT_EQ(response.status, 413);
  EXPECT_EQ(response.headers.at("request-id"), "mine-1");
  const json error = json::parse(response.body);
  EXPECT_EQ(error["type"], "error");
  EXPECT_EQ(error["error"]["type"], "request_too_large");
  EXPECT_EQ(announce("evil.example").status, 403) << "whoever has the wrong name learns no limits";
}

TEST_F(GatewayDialectsTest, SilenceIsAPingAndAClientThatLeavesFreesItsPlace) {
  RawHttpClient client(gateway_->port());
  json body = Messages("manual");
  body["stream"] = true;
  client.Send(Request("POST", "/v1/messages", body.dump()));
  const auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(client.ReadHead().status, 200);
  std::string heard;
  while (heard.find("event: ping") == std::string::npos) {
    const std::string more = client.ReadSome();
    ASSERT_FALSE(more.empty()) << heard;
    heard += more;
  }
  EXPECT_LT(heard.find("message_start"), heard.find("event: ping"));
  client.Close();
  EXPECT_TRUE(call->WaitForCancel(std::chrono::seconds(5)));
}

TEST_F(GatewayDialectsTest, AnErrorWithinAStreamIsAnEventAndAnOrderlyEnd) {
  const std::tuple<const char*, json, const char*> kStreams[] = {
      {"/v1/messages", Messages("manual"), "event: error"},
      {"/v1/responses", {{"model", "manual"}, {"input", "Hi"}}, "event: response.failed"},
      {"/api/chat", Messages("manual"), "{\"error\":"}};
  size_t calls = 0;
  for (auto [path, body, expected] : kStreams) {
    body["stream"] = true;
    RawHttpClient client(gateway_->port());
    client.Send(Request("POST", path, body.dump()));
    const auto call = backend_.WaitForCall(calls++);
    ASSERT_NE(call, nullptr);
    call->Text("begun");
    call->Done(absl::UnavailableError("gone"));
    const RawResponse response = client.ReadResponse();
    EXPECT_EQ(response.status, 200) << path;
    EXPECT_TRUE(response.complete) << path;
    EXPECT_NE(response.body.find("begun"), std::string::npos) << response.body;
    EXPECT_NE(response.body.find(expected), std::string::npos) << response.body;
  }
}

TEST_F(GatewayDialectsTest, TokensAreCountedToldAndTakenBack) {
  json counted = Messages("tiny");
  counted.erase("max_tokens");
  EXPECT_EQ(Ask("POST", "/v1/messages/count_tokens", counted).body, R"({"input_tokens":2})");
  const RawResponse told = Ask("POST", "/tokenize", {{"model", "tiny"}, {"prompt", "Hi"}});
  EXPECT_EQ(told.body, R"({"count":2,"max_model_len":4096,"tokens":[72,105],"token_strs":null})");
  EXPECT_EQ(Ask("POST", "/detokenize", {{"model", "tiny"}, {"tokens", {72, 105}}}).body,
            R"({"prompt":"Hi"})");
}

TEST_F(GatewayDialectsTest, MoreIdsThanOneRequestMayHaveAre413) {
  const auto answer_of = [&](size_t count) {
    const std::vector<int> ids(count, 72);
    return Ask("POST", "/detokenize", {{"model", "tiny"}, {"tokens", ids}});
  };
  EXPECT_EQ(answer_of(kTokensMax).status, 200);
  const RawResponse refused = answer_of(kTokensMax + 1);
  EXPECT_EQ(refused.status, 413);
  EXPECT_NE(refused.body.find(std::to_string(kTokensMax)), std::string::npos) << refused.body;
}

TEST_F(GatewayDialectsTest, ARankThatAnswersInsteadIsNamed) {
  RawHttpClient client(gateway_->port());
  const json body = {{"model", "manual"}, {"prompt", "Hi"}};
  client.Send(Request("POST", "/tokenize", body.dump()));
  const auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  call->Finish(v1::FINISH_REASON_LENGTH, 2, 1);
  call->Done(absl::OkStatus());
  EXPECT_EQ(client.ReadResponse().status, 503);
}

TEST_F(GatewayDialectsTest, ResponsesAreKeptForTheirTenantAndTakenUp) {
  const json first = Response(json::object());
  const std::string id = first["id"];
  EXPECT_EQ(json::parse(Ask("GET", "/v1/responses/" + id, nullptr).body), first);
  const json second = Response({{"input", "More"}, {"previous_response_id", id}});
  EXPECT_EQ(second["previous_response_id"], id);
  const auto call = backend_.WaitForCall(1);
  ASSERT_EQ(call->request.messages_size(), 3);
  EXPECT_EQ(call->request.messages(1).content(), "RDMA lets a card write.");
  const std::string other = "x-api-key: other\r\n";
  EXPECT_EQ(Ask("GET", "/v1/responses/" + id, nullptr, other).status, 404);
  const json missing = Response({{"previous_response_id", id}}, other, 400);
  EXPECT_EQ(missing["error"]["param"], "previous_response_id");
  EXPECT_EQ(json::parse(Ask("DELETE", "/v1/responses/" + id, nullptr).body)["deleted"], true);
  EXPECT_EQ(Ask("GET", "/v1/responses/" + id, nullptr).status, 404);
  EXPECT_EQ(Ask("GET", "/v1/responses/" + id + "?stream=true", nullptr).status, 400);
}

TEST_F(GatewayDialectsTest, WhatIsNotToBeStoredIsNot) {
  const std::string id = Response({{"store", false}})["id"];
  EXPECT_EQ(Ask("GET", "/v1/responses/" + id, nullptr).status, 404);
}

TEST_F(GatewayDialectsTest, StreamedResponsesAreKeptToo) {
  RawHttpClient client(gateway_->port());
  const json body = {{"model", "tiny"}, {"input", "Hi"}, {"stream", true}};
  client.Send(Request("POST", "/v1/responses", body.dump()));
  const RawResponse response = client.ReadResponse();
  // Each event has a line with its name before the one with its data.
  const size_t at = response.body.rfind("data: ");
  ASSERT_NE(at, std::string::npos) << response.body;
  const json last =
      json::parse(response.body.substr(at + 6, response.body.find('\n', at) - at - 6));
  EXPECT_EQ(last["type"], "response.completed");
  const std::string id = last["response"]["id"];
  EXPECT_EQ(json::parse(Ask("GET", "/v1/responses/" + id, nullptr).body), last["response"]);
}

TEST_F(GatewayDialectsTest, OllamasPathsAndErrors) {
  const RawResponse chat = Ask("POST", "/api/chat", Messages("tiny"));
  EXPECT_EQ(chat.headers.at("content-type"), "application/x-ndjson");
  EXPECT_NE(chat.body.find("\"done\":true"), std::string::npos);
  for (const char* path : {"/api/tags", "/api/ps", "/api/version"}) {
    EXPECT_EQ(Ask("GET", path, nullptr).status, 200) << path;
  }
  EXPECT_EQ(Ask("HEAD", "/", nullptr).status, 200);
  const json load = {{"model", "tiny"}};
  EXPECT_EQ(json::parse(Ask("POST", "/api/generate", load).body)["done_reason"], "load");
  EXPECT_EQ(json::parse(Ask("POST", "/api/show", load).body)["model_info"]["general.basename"],
            "tiny");
  const RawResponse pull = Ask("POST", "/api/pull", load);
  EXPECT_EQ(pull.status, 501);
  EXPECT_NE(json::parse(pull.body)["error"].get<std::string>().find("clusterctl model load"),
            std::string::npos);
  for (const char* path : {"/api/chat", "/api/show", "/api/generate", "/api/nowhere"}) {
    const RawResponse response = Ask("POST", path, {{"model", "unknown"}});
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_TRUE(json::parse(response.body)["error"].is_string()) << path;
  }
}

TEST_F(GatewayDialectsTest, OllamasEmbeddings) {
  const json many = {{"model", "embedder"}, {"input", {"a", "b"}}};
  const json body = json::parse(Ask("POST", "/api/embed", many).body);
  ASSERT_EQ(body["embeddings"].size(), 2u);
  EXPECT_FLOAT_EQ(body["embeddings"][1][0], 0.6F);
  EXPECT_EQ(body["prompt_eval_count"], 6);
  const json one = {{"model", "embedder"}, {"prompt", "a"}};
  const json older = json::parse(Ask("POST", "/api/embeddings", one).body);
  EXPECT_EQ(older["embedding"].size(), 2u);
}

TEST_F(GatewayDialectsTest, TheDescriptionIsServed) {
  const RawResponse response = Ask("GET", "/openapi.json", nullptr);
  EXPECT_EQ(json::parse(response.body)["info"]["version"], "1.2.3");
}

}  // namespace
}  // namespace macrame::agentd
