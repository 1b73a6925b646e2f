// Several answers of one request, and log probabilities, through a real port.

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "agentd/gateway/gateway.h"
#include "proto/reasons.h"
#include "tests/unit/agentd/gateway/fake_backend.h"
#include "tests/unit/agentd/gateway/raw_http_client.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

std::string Body(const std::string& model, const json& more) {
  json body = {{"model", model}, {"messages", {{{"role", "user"}, {"content", "hi"}}}}};
  body.update(more);
  return body.dump();
}

class GatewayChoicesTest : public ::testing::Test {
 protected:
  GatewayChoicesTest() { Start({}); }
  void Start(GatewayOptions options) {
    options.port = 0;
    options.version = "1.2.3";
    auto gateway = Gateway::Start(options, &backend_);
    EXPECT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
  }
  std::vector<std::shared_ptr<FakeCall>> Calls(size_t count) {
    std::vector<std::shared_ptr<FakeCall>> calls;
    for (size_t i = 0; i < count; ++i) calls.push_back(backend_.WaitForCall(i));
    return calls;
  }

  FakeBackend backend_;
  std::unique_ptr<Gateway> gateway_;
};

v1::GenerateChunk Token(const std::string& text) {
  v1::GenerateChunk chunk;
  chunk.set_text(text);
  v1::TokenLogprob& token = *chunk.add_logprobs();
  token.set_text(text);
  token.set_logprob(-0.5F);
  return chunk;
}

TEST_F(GatewayChoicesTest, EachIsAskedForWithASeedOfItsOwn) {
  RawHttpClient client(gateway_->port());
  client.Send(ChatPost(Body("manual", {{"n", 3}, {"seed", 9}})));
  const auto calls = Calls(3);
  ASSERT_NE(calls[2], nullptr);
  EXPECT_EQ(calls[0]->request.sampling().seed(), 9u);
  EXPECT_NE(calls[1]->request.sampling().seed(), 9u);
  EXPECT_NE(calls[1]->request.sampling().seed(), calls[2]->request.sampling().seed());
  EXPECT_EQ(calls[2]->request.messages(0).content(), "hi");
  // They end in another order than they began.
  const std::vector<std::string> texts = {"one", "two", "three"};
  for (const size_t i : {2, 0, 1}) {
    calls[i]->Text(texts[i]);
    calls[i]->Finish(i == 1 ? v1::FINISH_REASON_LENGTH : v1::FINISH_REASON_STOP, 11, 4);
    calls[i]->Done(absl::OkStatus());
  }
  const RawResponse response = client.ReadResponse();
  ASSERT_EQ(response.status, 200) << response.body;
  const json body = json::parse(response.body);
  ASSERT_EQ(body["choices"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["message"]["content"], texts[i]);
  }
  EXPECT_EQ(body["choices"][1]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 11);
  EXPECT_EQ(body["usage"]["completion_tokens"], 12);
}

TEST_F(GatewayChoicesTest, TheyShareAStream) {
  RawHttpClient client(gateway_->port());
  client.Send(ChatPost(
      Body("manual", {{"n", 2}, {"stream", true}, {"stream_options", {{"include_usage", true}}}})));
  const auto calls = Calls(2);
  ASSERT_NE(calls[1], nullptr);
  calls[1]->Text("b");
  calls[0]->Text("a");
  calls[1]->Finish(v1::FINISH_REASON_STOP, 11, 1);
  calls[1]->Done(absl::OkStatus());
  calls[0]->Text("A");
  calls[0]->Finish(v1::FINISH_REASON_LENGTH, 11, 2);
  calls[0]->Done(absl::OkStatus());
  const RawResponse response = client.ReadResponse();
  ASSERT_TRUE(response.complete);
  auto data = EventData(response.body);
  ASSERT_GE(data.size(), 2u);
  EXPECT_EQ(data.back(), "[DONE]");
  data.pop_back();
  EXPECT_EQ(json::parse(data.back())["usage"]["completion_tokens"], 3);
  EXPECT_EQ(json::parse(data.back())["usage"]["prompt_tokens"], 11);
  data.pop_back();
  std::map<int, std::string> text, finish;
  std::map<int, int> roles;
  for (const std::string& event : data) {
    const json choice = json::parse(event)["choices"][0];
    const int index = choice["index"];
    if (choice["delta"].contains("role")) ++roles[index];
    if (choice["delta"].contains("content")) {
      text[index] += choice["delta"]["content"].get<std::string>();
    }
    if (choice["finish_reason"].is_string()) finish[index] = choice["finish_reason"];
  }
  EXPECT_EQ(text, (std::map<int, std::string>{{0, "aA"}, {1, "b"}}));
  EXPECT_EQ(finish, (std::map<int, std::string>{{0, "length"}, {1, "stop"}}));
  EXPECT_EQ(roles, (std::map<int, int>{{0, 1}, {1, 1}}));
}

TEST_F(GatewayChoicesTest, WhenOneFailsAllDo) {
  for (const bool stream : {false, true}) {
    const size_t before = backend_.calls();
    RawHttpClient client(gateway_->port());
    client.Send(ChatPost(Body("manual", {{"n", 3}, {"stream", stream}})));
    auto last = backend_.WaitForCall(before + 2);
    ASSERT_NE(last, nullptr);
    last->Done(ReasonStatus(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "64 wait"));
    const RawResponse response = client.ReadResponse();
    EXPECT_EQ(response.status, 429) << stream;
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(backend_.WaitForCall(before + i)->WaitForCancel(milliseconds(1000)));
    }
  }
}

TEST_F(GatewayChoicesTest, AClientThatLeavesCancelsAll) {
  RawHttpClient client(gateway_->port());
  client.Send(ChatPost(Body("manual", {{"n", 4}, {"stream", true}})));
  const auto calls = Calls(4);
  ASSERT_NE(calls[3], nullptr);
  calls[0]->Text("x");
  ASSERT_EQ(client.ReadHead().status, 200);
  client.Close();
  for (const auto& call : calls) EXPECT_TRUE(call->WaitForCancel(milliseconds(1000)));
}

TEST_F(GatewayChoicesTest, LogprobsComeInBothForms) {
  for (const bool stream : {false, true}) {
    const size_t before = backend_.calls();
    RawHttpClient client(gateway_->port());
    client.Send(ChatPost(Body("manual", {{"logprobs", true}, {"stream", stream}})));
    auto call = backend_.WaitForCall(before);
    ASSERT_NE(call, nullptr);
    EXPECT_TRUE(call->request.has_top_logprobs());
    for (const char* text : {"Hel", "lo"}) call->Chunk(Token(text));
    call->Finish(v1::FINISH_REASON_STOP, 1, 2);
    call->Done(absl::OkStatus());
    const RawResponse response = client.ReadResponse();
    json content = json::array();
    if (stream) {
      for (const std::string& event : EventData(response.body)) {
        if (event == "[DONE]") continue;
        const json choice = json::parse(event)["choices"][0];
        if (choice["logprobs"].is_null()) continue;
        for (const json& entry : choice["logprobs"]["content"]) content.push_back(entry);
      }
    } else {
      content = json::parse(response.body)["choices"][0]["logprobs"]["content"];
    }
    ASSERT_EQ(content.size(), 2u) << stream;
    EXPECT_EQ(content[0]["token"], "Hel");
    EXPECT_EQ(content[1]["bytes"], (json{108, 111}));
    EXPECT_EQ(content[1]["logprob"], -0.5);
    EXPECT_EQ(content[1]["top_logprobs"], json::array());
  }
}

TEST_F(GatewayChoicesTest, LogprobsCountForTheBoundOfAnAnswer) {
  gateway_.reset();
  GatewayOptions options;
  options.answer_bytes_max = 4096;
  Start(options);
  RawHttpClient client(gateway_->port());
  client.Send(ChatPost(Body("manual", {{"logprobs", true}})));
  auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  for (int i = 0; i < 400; ++i) call->Chunk(Token("x"));
  const RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 500);
  EXPECT_EQ(json::parse(response.body)["error"]["code"], "answer_too_large");
  EXPECT_TRUE(call->WaitForCancel(milliseconds(1000)));
}

std::string TextPost(const json& body) { return Post("/v1/completions", body.dump()); }

TEST_F(GatewayChoicesTest, TextPromptsAreContinuedSideBySide) {
  RawHttpClient client(gateway_->port());
  client.Send(TextPost({{"model", "manual"}, {"prompt", {"one", "two"}}, {"echo", true}}));
  const auto calls = Calls(2);
  ASSERT_NE(calls[1], nullptr);
  EXPECT_EQ(calls[1]->request.prompt(), "two");
  EXPECT_EQ(calls[1]->request.messages_size(), 0);
  for (const auto& call : calls) {
    call->Text(" more");
    call->Finish(v1::FINISH_REASON_LENGTH, 11, 4);
    call->Done(absl::OkStatus());
  }
  const RawResponse response = client.ReadResponse();
  ASSERT_EQ(response.status, 200) << response.body;
  const json body = json::parse(response.body);
  EXPECT_EQ(body["choices"][0]["text"], "one more");
  EXPECT_EQ(body["choices"][1]["text"], "two more");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 22);
}

TEST_F(GatewayChoicesTest, ATextStreamEndsWithDone) {
  RawHttpClient client(gateway_->port());
  client.Send(TextPost({{"model", "manual"}, {"prompt", {5, 6}}, {"stream", true}}));
  const auto calls = Calls(1);
  ASSERT_NE(calls[0], nullptr);
  EXPECT_EQ(calls[0]->request.prompt_token_ids_size(), 2);
  calls[0]->Text("a");
  calls[0]->Finish(v1::FINISH_REASON_STOP, 2, 1);
  calls[0]->Done(absl::OkStatus());
  const RawResponse response = client.ReadResponse();
  ASSERT_TRUE(response.complete);
  const auto data = EventData(response.body);
  ASSERT_EQ(data.size(), 3u);
  EXPECT_EQ(json::parse(data[0])["choices"][0]["text"], "a");
  EXPECT_EQ(json::parse(data[1])["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(data[2], "[DONE]");
}

}  // namespace
}  // namespace macrame::agentd
