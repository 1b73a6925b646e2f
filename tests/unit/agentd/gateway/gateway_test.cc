#include "agentd/gateway/gateway.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "proto/reasons.h"
#include "tests/unit/agentd/gateway/fake_backend.h"
#include "tests/unit/agentd/gateway/raw_http_client.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

std::string Body(const std::string& model, bool stream, const std::string& more = "") {
  return R"({"model":")" + model + R"(","messages":[{"role":"user","content":"hi"}],"stream":)" +
         (stream ? "true" : "false") + more + "}";
}

class GatewayTest : public ::testing::Test {
 protected:
  void Start(GatewayOptions options = {}) {
    options.port = 0;
    options.version = "1.2.3";
    auto gateway = Gateway::Start(options, &backend_);
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
  }
  RawResponse Ask(const std::string& bytes) {
    RawHttpClient client(gateway_->port());
    client.Send(bytes);
    return client.ReadResponse();
  }

  FakeBackend backend_;
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(GatewayTest, AnswersInOnePiece) {
  Start();
  for (const char* model : {"tiny", "threaded"}) {
    const RawResponse response = Ask(ChatPost(Body(model, false)));
    ASSERT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(response.headers.at("content-type"), "application/json");
    EXPECT_EQ(response.headers.at("x-request-id").rfind("req_", 0), 0u);
    EXPECT_FALSE(response.headers.contains("access-control-allow-origin"));
    const json body = json::parse(response.body);
    EXPECT_EQ(body["choices"][0]["message"]["content"], "RDMA lets a card write.");
    EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
    EXPECT_EQ(body["usage"]["prompt_tokens"], 11);
    EXPECT_EQ(body["usage"]["completion_tokens"], 6);
    EXPECT_EQ(body["model"], model);
  }
}

TEST_F(GatewayTest, StreamsToTheLetter) {
  Start();
  const RawResponse response = Ask(ChatPost(
      Body("threaded", true, R"(,"max_tokens":2,"stream_options":{"include_usage":true})")));
  ASSERT_EQ(response.status, 200);
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream; charset=utf-8");
  const auto data = EventData(response.body);
  ASSERT_EQ(data.size(), 6u);
  EXPECT_EQ(data.back(), "[DONE]");
  EXPECT_EQ(json::parse(data[0])["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(json::parse(data[1])["choices"][0]["delta"]["content"], "RDMA");
  EXPECT_EQ(json::parse(data[3])["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json::parse(data[4])["usage"]["total_tokens"], 13);
  for (int i = 1; i < 5; ++i) {
    EXPECT_EQ(json::parse(data[i])["id"], json::parse(data[0])["id"]);
    EXPECT_EQ(json::parse(data[i])["created"], json::parse(data[0])["created"]);
  }
}

TEST_F(GatewayTest, EachPieceLeavesAtOnce) {
  Start();
  RawHttpClient client(gateway_->port());
  client.Send(ChatPost(Body("manual", true)));
  auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  call->Text("first");
  ASSERT_EQ(client.ReadHead().status, 200);
  std::string seen;
  while (seen.find("first") == std::string::npos) {
    const std::string more = client.ReadSome();
    ASSERT_FALSE(more.empty());
    seen += more;
  }
  EXPECT_EQ(seen.find("[DONE]"), std::string::npos);
  call->Finish(v1::FINISH_REASON_STOP, 1, 1);
  call->Done(absl::OkStatus());
  while (seen.find("[DONE]") == std::string::npos) {
    const std::string more = client.ReadSome();
    ASSERT_FALSE(more.empty());
    seen += more;
  }
}

TEST_F(GatewayTest, ErrorsBeforeTheFirstTokenHaveTheirStatus) {
  Start();
  for (const bool stream : {false, true}) {
    EXPECT_EQ(Ask(ChatPost(Body("nope", stream))).status, 404);
    const RawResponse busy = Ask(ChatPost(Body("busy", stream)));
    EXPECT_EQ(busy.status, 429);
    EXPECT_TRUE(busy.headers.contains("retry-after"));
    const RawResponse loading = Ask(ChatPost(Body("loading", stream)));
    EXPECT_EQ(loading.status, 503);
    EXPECT_TRUE(loading.headers.contains("retry-after"));
    const RawResponse narrow = Ask(ChatPost(Body("narrow", stream)));
    EXPECT_EQ(narrow.status, 400);
    EXPECT_EQ(json::parse(narrow.body)["error"]["code"], "context_length_exceeded");
    const RawResponse broken = Ask(ChatPost(Body("broken", stream)));
    EXPECT_EQ(broken.status, 500);
    EXPECT_EQ(broken.body.find("secret"), std::string::npos);
  }
}

TEST_F(GatewayTest, AnErrorInMidStreamIsAnErrorObject) {
  Start();
  RawHttpClient client(gateway_->port());
  client.Send(ChatPost(Body("manual", true)));
  auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  call->Text("so far");
  call->Done(ReasonStatus(absl::StatusCode::kUnavailable, "GANG_LOST_NODE", "mini-2 is gone"));
  const RawResponse response = client.ReadResponse();
  EXPECT_TRUE(response.complete);
  const auto data = EventData(response.body);
  ASSERT_EQ(data.size(), 3u);
  EXPECT_NE(json::parse(data[2])["error"]["message"].get<std::string>().find("mini-2"),
            std::string::npos);
}

TEST_F(GatewayTest, AnAnswerThatBeginsAgainIsToldOnce) {
  Start();
  RawHttpClient client(gateway_->port());
  client.Send(ChatPost(Body("manual", false)));
  auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  ASSERT_TRUE(call->CanBeginAgain());
  v1::GenerateChunk first;
  first.set_prompt_tokens(7);
  first.set_text("half of ");
  call->Chunk(first);
  call->BeginAgain();
  call->Progress(3, 7);
  first.set_text("all of ");
  call->Chunk(first);
  call->Text("it");
  call->Finish(v1::FINISH_REASON_STOP, 7, 3);
  call->Done(absl::OkStatus());
  const RawResponse response = client.ReadResponse();
  ASSERT_EQ(response.status, 200) << response.body;
  const json answer = json::parse(response.body);
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "all of it");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 7);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 3);
}

TEST_F(GatewayTest, AStreamThatWasSentTextCantBeginAgain) {
  Start();
  RawHttpClient client(gateway_->port());
  client.Send(ChatPost(Body("manual", true)));
  auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  EXPECT_FALSE(call->CanBeginAgain());
}

TEST_F(GatewayTest, AClientThatLeavesCancelsWithin250Ms) {
  Start();
  for (const bool stream : {true, false}) {
    RawHttpClient client(gateway_->port());
    const size_t index = backend_.calls();
    client.Send(ChatPost(Body("manual", stream)));
    auto call = backend_.WaitForCall(index);
    ASSERT_NE(call, nullptr);
    EXPECT_FALSE(call->cancelled());
    if (stream) {
      call->Text("x");
      ASSERT_EQ(client.ReadHead().status, 200);
    }
    client.Close();
    EXPECT_TRUE(call->WaitForCancel(milliseconds(250))) << "stream " << stream;
  }
}

TEST_F(GatewayTest, RequestsThatFollowOneAnotherAreAnsweredInOrder) {
  Start();
  RawHttpClient client(gateway_->port());
  client.Send(Get("/health") + ChatPost(Body("tiny", true)) + ChatPost(Body("tiny", false)) +
              Get("/v1/models/tiny") + ChatPost(Body("threaded", true)) + Get("/version"));
  EXPECT_EQ(json::parse(client.ReadResponse().body)["status"], "ok");
  EXPECT_EQ(EventData(client.ReadResponse().body).back(), "[DONE]");
  EXPECT_EQ(json::parse(client.ReadResponse().body)["object"], "chat.completion");
  EXPECT_EQ(json::parse(client.ReadResponse().body)["id"], "tiny");
  EXPECT_EQ(EventData(client.ReadResponse().body).back(), "[DONE]");
  EXPECT_EQ(json::parse(client.ReadResponse().body)["version"], "1.2.3");
}

TEST_F(GatewayTest, WhatIsSentAheadDuringAStreamWaitsForItsTurn) {
  Start();
  RawHttpClient client(gateway_->port());
  client.Send(ChatPost(Body("manual", true)));
  auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  client.Send(Get("/version"));
  call->Text("x");
  call->Done(absl::OkStatus());
  EXPECT_EQ(EventData(client.ReadResponse().body).back(), "[DONE]");
  EXPECT_EQ(client.ReadResponse().status, 200);
  EXPECT_FALSE(call->cancelled());
}

TEST_F(GatewayTest, SilenceIsFilledWithCommentsAndEndsInTheEnd) {
  GatewayOptions options;
  options.keep_alive_ms = milliseconds(20);
  options.silence_ms = milliseconds(150);
  options.first_piece_ms = milliseconds(20);
  Start(options);
  RawHttpClient client(gateway_->port());
  client.Send(ChatPost(Body("manual", true)));
  const RawResponse response = client.ReadResponse();
  ASSERT_EQ(response.status, 200);
  EXPECT_NE(response.body.find(": keep-alive\n\n"), std::string::npos);
  EXPECT_EQ(json::parse(EventData(response.body).back())["error"]["code"], "timed_out");
  EXPECT_TRUE(backend_.WaitForCall(0)->WaitForCancel(milliseconds(250)));
  EXPECT_EQ(Ask(ChatPost(Body("manual", false))).status, 504);
}

// A prompt of minutes, or a turn that comes late, is no silence: proxies hear comments meanwhile.
TEST_F(GatewayTest, AnEntryRankThatTellsOfThePromptIsNotSilent) {
  GatewayOptions options;
  options.keep_alive_ms = milliseconds(60);
  options.silence_ms = milliseconds(400);
  options.first_piece_ms = milliseconds(20);
  Start(options);
  for (const bool stream : {true, false}) {
    RawHttpClient client(gateway_->port());
    client.Send(ChatPost(Body("manual", stream)));
    auto call = backend_.WaitForCall(stream ? 0 : 1);
    ASSERT_NE(call, nullptr);
    EXPECT_TRUE(call->request.progress());
    for (int i = 0; i < 12; ++i) {
      call->Progress(/*computed=*/static_cast<uint32_t>(i) * 100, /*total=*/1200);
      std::this_thread::sleep_for(milliseconds(50));
    }
    call->Text("at last");
    call->Finish(v1::FINISH_REASON_STOP, 1200, 2);
    call->Done(absl::OkStatus());
    const RawResponse response = client.ReadResponse();
    EXPECT_EQ(response.status, 200);
    EXPECT_NE(response.body.find("at last"), std::string::npos);
    EXPECT_EQ(response.body.find("timed_out"), std::string::npos);
    EXPECT_EQ(response.body.find("prompt_progress"), std::string::npos) << "nobody asked";
    if (stream) {
      EXPECT_NE(response.body.find(": keep-alive\n\n"), std::string::npos);
    }
  }
}

// An answer that was interrupted, and gets no turn again, is silent all the same.
TEST_F(GatewayTest, AnAnswerThatOnlyWaitsAgainEndsInTheEnd) {
  GatewayOptions options;
  options.silence_ms = milliseconds(300);
  Start(options);
  for (const bool stream : {true, false}) {
    RawHttpClient client(gateway_->port());
    client.Send(ChatPost(Body("manual", stream)));
    auto call = backend_.WaitForCall(stream ? 0 : 1);
    ASSERT_NE(call, nullptr);
    call->Text("begun");
    for (int i = 0; i < 60 && !call->cancelled(); ++i) {
      call->Progress(0, 10, /*is_queued=*/true);
      std::this_thread::sleep_for(milliseconds(50));
    }
    EXPECT_TRUE(call->cancelled());
    EXPECT_NE(client.ReadResponse().body.find("timed_out"), std::string::npos);
  }
}

TEST_F(GatewayTest, WhoAsksIsToldHowFarThePromptIs) {
  Start();
  for (const bool is_chat : {true, false}) {
    RawHttpClient client(gateway_->port());
    client.Send(
        is_chat ? ChatPost(Body("manual", true, R"(,"return_progress":true)"))
                : Post("/v1/completions",
                       R"({"model":"manual","prompt":"x","stream":true,"return_progress":true})"));
    auto call = backend_.WaitForCall(is_chat ? 0 : 1);
    ASSERT_NE(call, nullptr);
    call->Progress(512, 1200);
    call->Text("x");
    call->Done(absl::OkStatus());
    const RawResponse response = client.ReadResponse();
    EXPECT_FALSE(response.headers.contains("x-macrame-ignored-fields"));
    std::vector<json> told;
    for (const std::string& data : EventData(response.body)) {
      if (data == "[DONE]") continue;
      const json event = json::parse(data);
      EXPECT_EQ(event["object"], is_chat ? "chat.completion.chunk" : "text_completion");
      if (event.contains("prompt_progress")) told.push_back(event);
    }
    ASSERT_EQ(told.size(), 1u) << response.body;
    EXPECT_EQ(told[0]["choices"], json::array());
    EXPECT_EQ(told[0]["prompt_progress"]["processed"], 512);
    EXPECT_EQ(told[0]["prompt_progress"]["total"], 1200);
    EXPECT_EQ(told[0]["prompt_progress"]["queued"], false);
  }
}

TEST_F(GatewayTest, ATurnThatDoesNotComeIs503AndSaysWhenToComeBack) {
  GatewayOptions options;
  options.queue_limit = std::chrono::seconds(7);
  options.first_piece_ms = milliseconds(300);
  Start(options);
  // Of a stream before its head is written, of one that waits longer, and of a whole answer.
  for (size_t i = 0; i < 3; ++i) {
    RawHttpClient client(gateway_->port());
    client.Send(ChatPost(Body("manual", i < 2)));
    auto call = backend_.WaitForCall(i);
    ASSERT_NE(call, nullptr);
    EXPECT_EQ(call->request.queue_limit_ms(), 7000u);
    call->Progress(0, 10, /*is_queued=*/true);
    // This one's head leaves before the turn is given up.
    if (i == 1) {
      EXPECT_EQ(client.ReadHead().status, 200);
    }
    call->Done(ReasonStatus(absl::StatusCode::kResourceExhausted, "QUEUE_TIMEOUT",
                            "no turn came within 7 s"));
    if (i == 1) {
      std::string body;
      while (body.find("\"queue_timeout\"") == std::string::npos) {
        const std::string more = client.ReadSome();
        ASSERT_FALSE(more.empty()) << body;
        body += more;
      }
    } else {
      const RawResponse response = client.ReadResponse();
      EXPECT_EQ(response.status, 503);
      EXPECT_TRUE(response.headers.contains("retry-after"));
      EXPECT_EQ(json::parse(response.body)["error"]["code"], "queue_timeout");
    }
  }
}

// What fails before the first piece has its own status, however long it took to fail.
TEST_F(GatewayTest, AStreamsHeadWaitsForItsFirstPiece) {
  GatewayOptions options;
  options.keep_alive_ms = milliseconds(20);
  Start(options);
  RawHttpClient client(gateway_->port());
  client.Send(ChatPost(Body("manual", true)));
  auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  std::this_thread::sleep_for(milliseconds(100));
  call->Done(ReasonStatus(absl::StatusCode::kUnavailable, "GANG_LOST_NODE", "node aa is dead"));
  const RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 503);
  EXPECT_TRUE(response.headers.contains("retry-after"));
  EXPECT_EQ(json::parse(response.body)["error"]["code"], "model_recovering");
}

TEST_F(GatewayTest, ASlowReaderIsCancelledAtTheBound) {
  GatewayOptions options;
  options.unsent_bytes_max = 256 * 1024;
  Start(options);
  RawHttpClient client(gateway_->port());
  client.Send(ChatPost(Body("manual", true)));
  auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  // Never read by the client: the sockets' buffers fill, then ours.
  const std::string block(64 * 1024, 'x');
  for (int i = 0; i < 400 && !call->cancelled(); ++i) call->Text(block);
  EXPECT_TRUE(call->WaitForCancel(milliseconds(2000)));
}

TEST_F(GatewayTest, OldClientsGetAnAnswerThatEndsWithTheConnection) {
  Start();
  RawHttpClient client(gateway_->port());
  const std::string body = Body("tiny", true);
  client.Send(
      "POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  const RawResponse response = client.ReadResponse();
  EXPECT_FALSE(response.headers.contains("transfer-encoding"));
  EXPECT_EQ(EventData(response.body).back(), "[DONE]");
}

TEST_F(GatewayTest, ServesModelsHealthAndVersion) {
  Start();
  const json list = json::parse(Ask(Get("/v1/models")).body);
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"].size(), 3u);
  EXPECT_EQ(list["data"][2]["id"], "tiny");
  EXPECT_EQ(list["data"][2]["context_length"], 4096);
  EXPECT_EQ(Ask(Get("/v1/models/nope")).status, 404);
  const auto unknown = Ask(Get("/v1/chat"));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_NE(unknown.body.find("POST /v1/chat/completions"), std::string::npos) << unknown.body;
  EXPECT_NE(unknown.body.find("GET, HEAD /v1/models/NAME"), std::string::npos) << unknown.body;
  EXPECT_EQ(Ask(Get("/health?x=1")).status, 200);
  RawHttpClient client(gateway_->port());
  client.Send("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + Get("/health"));
  EXPECT_EQ(client.ReadResponse(true).headers.at("content-length"), "15");
  EXPECT_EQ(client.ReadResponse().body, R"({"status":"ok"})");
}

TEST_F(GatewayTest, ATakenPortIsAClearError) {
  Start();
  GatewayOptions options;
  options.port = gateway_->port();
  const auto second = Gateway::Start(options, &backend_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(ReasonOf(second.status()).code(), "PORT_TAKEN");
  EXPECT_NE(second.status().message().find(std::to_string(options.port)), std::string::npos);
  options.bind_address = "192.0.2.1";
  EXPECT_EQ(ReasonOf(Gateway::Start(options, &backend_).status()).code(), "CONFIG_INVALID");
  options.bind_address = "somewhere";
  EXPECT_EQ(ReasonOf(Gateway::Start(options, &backend_).status()).code(), "CONFIG_INVALID");
}

TEST_F(GatewayTest, ANodeThatIsAboutToStopFinishesAnswersAndClosesConnections) {
  Start();
  RawHttpClient streaming(gateway_->port());
  streaming.Send(ChatPost(Body("manual", true)));
  const auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  call->Text("first");
  ASSERT_EQ(streaming.ReadHead().status, 200);
  EXPECT_EQ(gateway_->requests(), 1u);
  gateway_->Drain(/*refuse=*/false);
  const RawResponse handed_on = Ask(ChatPost(Body("tiny", false)));
  EXPECT_EQ(handed_on.status, 200) << handed_on.body;
  EXPECT_EQ(handed_on.headers.at("connection"), "close");
  EXPECT_EQ(Ask(Get("/health")).status, 503) << "who balances load is to send no more";
  gateway_->Drain(/*refuse=*/true);
  const RawResponse refused = Ask(ChatPost(Body("tiny", false)));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("connection"), "close");
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_EQ(json::parse(refused.body)["error"]["code"], "node_stopping");
  call->Finish(v1::FINISH_REASON_STOP, 1, 1);
  call->Done(absl::OkStatus());
  std::string seen;
  while (seen.find("[DONE]") == std::string::npos) {
    const std::string more = streaming.ReadSome();
    ASSERT_FALSE(more.empty()) << seen;
    seen += more;
  }
  EXPECT_NE(seen.find("first"), std::string::npos);
}

TEST_F(GatewayTest, StopEndsWhatIsUnderWay) {
  Start();
  RawHttpClient streaming(gateway_->port()), idle(gateway_->port());
  streaming.Send(ChatPost(Body("manual", true)));
  auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  const auto begin = std::chrono::steady_clock::now();
  gateway_->Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(1000));
  EXPECT_TRUE(call->cancelled());
  EXPECT_TRUE(streaming.WaitForClose());
  EXPECT_TRUE(idle.WaitForClose());
  call->Text("too late");
}

}  // namespace
}  // namespace macrame::agentd
