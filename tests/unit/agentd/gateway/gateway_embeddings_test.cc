// Embeddings through a real port: several inputs at once, their failures, and clients that leave.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/dialects/embedding_request.h"
#include "agentd/gateway/gateway.h"
#include "proto/reasons.h"
#include "tests/unit/agentd/gateway/fake_backend.h"
#include "tests/unit/agentd/gateway/raw_http_client.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

class GatewayEmbeddingsTest : public ::testing::Test {
 protected:
  GatewayEmbeddingsTest() { Start({}); }
  void Start(GatewayOptions options) {
    gateway_.reset();
    options.port = 0;
    options.version = "1.2.3";
    auto gateway = Gateway::Start(options, &backend_);
    EXPECT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
  }
  static std::string Post(const json& more) {
    json body = {{"model", "manual"}};
    body.update(more);
    const std::string text = body.dump();
    return absl::StrCat("POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\n",
                        "content-type: application/json\r\ncontent-length: ", text.size(),
                        "\r\n\r\n", text);
  }
  // Answers with a direction that tells which input it was.
  void AnswerCall(size_t index) {
    const auto call = backend_.WaitForCall(index);
    ASSERT_NE(call, nullptr) << index;
    v1::GenerateChunk chunk;
    chunk.add_embedding(static_cast<float>(std::stoi(call->request.prompt())));
    chunk.set_prompt_tokens(2);
    chunk.set_finish_reason(v1::FINISH_REASON_STOP);
    call->Chunk(chunk);
    call->Done(absl::OkStatus());
  }

  FakeBackend backend_;
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(GatewayEmbeddingsTest, OneInput) {
  RawHttpClient client(gateway_->port());
  client.Send(Post({{"input", "7"}, {"dimensions", 1}}));
  AnswerCall(0);
  const RawResponse response = client.ReadResponse();
  ASSERT_EQ(response.status, 200) << response.body;
  const json body = json::parse(response.body);
  EXPECT_EQ(body["data"][0]["embedding"], json({7.0}));
  EXPECT_EQ(body["model"], "manual");
  EXPECT_EQ(body["usage"]["total_tokens"], 2);
  EXPECT_EQ(backend_.WaitForCall(0)->request.embedding().dimensions(), 1u);
}

// As many as may be under way, the next as one is done, and all in the order of the inputs.
TEST_F(GatewayEmbeddingsTest, ManyInputsComeABoundedNumberAtOnce) {
  constexpr size_t kInputs = 3 * kInputsAtOnceMax + 1;
  json inputs = json::array();
  for (size_t i = 0; i < kInputs; ++i) inputs.push_back(std::to_string(i));
  RawHttpClient client(gateway_->port());
  client.Send(Post({{"input", inputs}}));
  ASSERT_NE(backend_.WaitForCall(kInputsAtOnceMax - 1), nullptr);
  EXPECT_EQ(backend_.calls(), kInputsAtOnceMax);
  AnswerCall(3);  // not the first
  ASSERT_NE(backend_.WaitForCall(kInputsAtOnceMax), nullptr);
  EXPECT_EQ(backend_.calls(), kInputsAtOnceMax + 1);
  for (size_t i = 0; i < kInputs; ++i) {
    if (i != 3) AnswerCall(i);
  }
  const RawResponse response = client.ReadResponse();
  ASSERT_EQ(response.status, 200) << response.body;
  const json body = json::parse(response.body);
  ASSERT_EQ(body["data"].size(), kInputs);
  for (size_t i = 0; i < kInputs; ++i) {
    EXPECT_EQ(body["data"][i]["index"], i);
    EXPECT_EQ(body["data"][i]["embedding"], json({static_cast<double>(i)}));
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 2 * kInputs);
}

TEST_F(GatewayEmbeddingsTest, AnInputThatIsTooLongIsNamedAndEndsTheOthers) {
  RawHttpClient client(gateway_->port());
  client.Send(Post({{"input", {"0", "1", "2"}}}));
  const auto last = backend_.WaitForCall(2);
  ASSERT_NE(last, nullptr);
  last->Done(ReasonStatus(absl::StatusCode::kInvalidArgument, "PROMPT_TOO_LONG",
                          "the prompt has 900 tokens"));
  const RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 400);
  const json error = json::parse(response.body)["error"];
  EXPECT_EQ(error["param"], "input");
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["message"].get<std::string>().rfind("input[2]: the prompt has 900 tokens", 0),
            0u);
  EXPECT_TRUE(backend_.WaitForCall(0)->WaitForCancel(milliseconds(5000)));
  EXPECT_TRUE(backend_.WaitForCall(1)->WaitForCancel(milliseconds(5000)));
}

TEST_F(GatewayEmbeddingsTest, AClientThatLeavesCancelsAllAndNoMoreAreBegun) {
  RawHttpClient client(gateway_->port());
  client.Send(Post({{"input", std::vector<std::string>(kInputsAtOnceMax + 4, "1")}}));
  ASSERT_NE(backend_.WaitForCall(kInputsAtOnceMax - 1), nullptr);
  client.Close();
  for (size_t i = 0; i < kInputsAtOnceMax; ++i) {
    const auto call = backend_.WaitForCall(i);
    EXPECT_TRUE(call->WaitForCancel(milliseconds(5000))) << i;
    call->Done(absl::CancelledError("cancelled"));
  }
  // What the gateway does next on its thread comes behind what it might have begun.
  RawHttpClient other(gateway_->port());
  other.Send(Get("/health"));
  EXPECT_EQ(other.ReadResponse().status, 200);
  EXPECT_EQ(backend_.calls(), kInputsAtOnceMax);
}

TEST_F(GatewayEmbeddingsTest, FailuresOfTheModelAreThisRequests) {
  const std::vector<std::tuple<const char*, const char*, const char*>> cases = {
      {"MODEL_HAS_NO_EMBEDDINGS", "model_has_no_embeddings", "model"},
      {"DIMENSIONS_TOO_MANY", "invalid_value", "dimensions"},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [reason, code, param] = cases[i];
    RawHttpClient client(gateway_->port());
    client.Send(Post({{"input", "1"}}));
    const auto call = backend_.WaitForCall(i);
    ASSERT_NE(call, nullptr);
    call->Done(ReasonStatus(absl::StatusCode::kInvalidArgument, reason, "no"));
    const RawResponse response = client.ReadResponse();
    EXPECT_EQ(response.status, 400) << reason;
    EXPECT_EQ(json::parse(response.body)["error"]["code"], code);
    EXPECT_EQ(json::parse(response.body)["error"]["param"], param);
  }
}

absl::Status QueueFull() {
  return ReasonStatus(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "as many wait as may");
}

// Those for which there is no place wait for the others of their body, and come in their order.
TEST_F(GatewayEmbeddingsTest, InputsWaitForAPlaceInTheQueue) {
  RawHttpClient client(gateway_->port());
  client.Send(Post({{"input", {"0", "1", "2"}}}));
  ASSERT_NE(backend_.WaitForCall(2), nullptr);
  for (const size_t refused : {2, 1}) backend_.WaitForCall(refused)->Done(QueueFull());
  AnswerCall(0);
  for (const size_t refused : {3, 4}) {
    const auto waiting = backend_.WaitForCall(refused);
    ASSERT_NE(waiting, nullptr);
    EXPECT_EQ(waiting->request.prompt(), std::to_string(refused - 2));
  }
  for (const size_t refused : {4, 3}) backend_.WaitForCall(refused)->Done(QueueFull());
  // Nothing of the body is under way: it is tried again in a moment.
  const auto again = backend_.WaitForCall(5);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->request.prompt(), "1");
  AnswerCall(5);
  AnswerCall(6);
  const RawResponse response = client.ReadResponse();
  ASSERT_EQ(response.status, 200) << response.body;
  const json body = json::parse(response.body);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(body["data"][i]["embedding"], json({static_cast<double>(i)}));
  }
}

// A queue that was full once is no reason to go on one by one.
TEST_F(GatewayEmbeddingsTest, AsManyAsFindAPlaceAreUnderWayAgainAfterTheQueueWasFull) {
  RawHttpClient client(gateway_->port());
  json inputs = json::array();
  for (size_t i = 0; i < kInputsAtOnceMax; ++i) inputs.push_back(std::to_string(i));
  client.Send(Post({{"input", inputs}}));
  ASSERT_NE(backend_.WaitForCall(kInputsAtOnceMax - 1), nullptr);
  for (size_t i = 1; i < kInputsAtOnceMax; ++i) backend_.WaitForCall(i)->Done(QueueFull());
  size_t answered = 0, begun = kInputsAtOnceMax;
  AnswerCall(answered);
  // Each answer shows that there is room for one more than before.
  for (size_t more = 1; more < 4; ++more) {
    begun += 2;
    ASSERT_NE(backend_.WaitForCall(begun - 1), nullptr) << more;
    AnswerCall(kInputsAtOnceMax + more - 1);
  }
  for (size_t i = kInputsAtOnceMax + 3; i < 2 * kInputsAtOnceMax - 1; ++i) AnswerCall(i);
  EXPECT_EQ(client.ReadResponse().status, 200);
}

TEST_F(GatewayEmbeddingsTest, ABodyIsRefusedWhenNoneOfItFindsAPlace) {
  RawHttpClient client(gateway_->port());
  client.Send(Post({{"input", {"0", "1", "2"}}}));
  ASSERT_NE(backend_.WaitForCall(2), nullptr);
  for (const size_t refused : {0, 2, 1}) backend_.WaitForCall(refused)->Done(QueueFull());
  const RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(json::parse(response.body)["error"]["code"], "queue_full");
  EXPECT_EQ(backend_.calls(), 3u);
}

// Above what is built in one go it comes in chunks, to the same JSON.
TEST_F(GatewayEmbeddingsTest, LargeAnswersComeInPieces) {
  constexpr size_t kNumbers = 40'000;
  RawHttpClient client(gateway_->port());
  client.Send(Post({{"input", {"1", "2", "3"}}}));
  for (size_t i = 0; i < 3; ++i) {
    const auto call = backend_.WaitForCall(i);
    ASSERT_NE(call, nullptr);
    v1::GenerateChunk chunk;
    for (size_t n = 0; n < kNumbers; ++n) chunk.add_embedding(static_cast<float>(n + i) / 7.0F);
    chunk.set_prompt_tokens(2);
    chunk.set_finish_reason(v1::FINISH_REASON_STOP);
    call->Chunk(chunk);
    call->Done(absl::OkStatus());
  }
  const RawResponse response = client.ReadResponse();
  ASSERT_EQ(response.status, 200);
  const json body = json::parse(response.body);
  ASSERT_EQ(body["data"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(body["data"][i]["embedding"].size(), kNumbers);
    EXPECT_EQ(body["data"][i]["embedding"][kNumbers - 1].get<float>(),
              static_cast<float>(kNumbers - 1 + i) / 7.0F);
  }
  EXPECT_EQ(body["usage"]["total_tokens"], 6);
  client.Send(Get("/health"));  // the connection goes on
  EXPECT_EQ(client.ReadResponse().status, 200);
}

TEST_F(GatewayEmbeddingsTest, NumbersAreBounded) {
  GatewayOptions options;
  options.embeddings_bytes_max = 8;
  Start(options);
  RawHttpClient client(gateway_->port());
  client.Send(Post({{"input", {"1", "2", "3"}}}));
  AnswerCall(0);  // it tells how long they all would be
  const RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(json::parse(response.body)["error"]["param"], "input");
  EXPECT_NE(response.body.find("Send fewer inputs at once"), std::string::npos) << response.body;
}

TEST_F(GatewayEmbeddingsTest, OnlyPostIsTaken) {
  RawHttpClient client(gateway_->port());
  client.Send(Get("/v1/embeddings"));
  EXPECT_EQ(client.ReadResponse().status, 405);
}

}  // namespace
}  // namespace macrame::agentd
