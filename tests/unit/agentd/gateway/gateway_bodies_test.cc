// Bodies that come slowly, or many at once, over real connections: what they take is bounded, and
// others are served meanwhile.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/gateway.h"
#include "tests/unit/agentd/gateway/fake_backend.h"
#include "tests/unit/agentd/gateway/raw_http_client.h"
#include "transport/descriptor_limit.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kTiny[] = R"({"model":"tiny","messages":[{"role":"user","content":"hi"}]})";
constexpr size_t kMiB = 1024 * 1024;

// Of this process; 0: this system does not tell.
size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

std::string HeadFor(size_t bytes) {
  return absl::StrCat(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n",
      "Content-Length: ", bytes, "\r\n\r\n");
}

// A whole chat of so many bytes.
std::string ChatOf(size_t bytes, const std::string& model = "manual", int answers = 1) {
  const std::string begin = absl::StrCat(R"({"model":")", model, R"(","n":)", answers,
                                         R"(,"messages":[{"role":"user","content":")");
  const std::string end = R"("}]})";
  return begin + std::string(bytes - begin.size() - end.size(), 'x') + end;
}

class GatewayBodiesTest : public ::testing::Test {
 protected:
  void Start(GatewayOptions options = {}) {
    options.port = 0;
    auto gateway = Gateway::Start(options, &backend_);
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
  }
  RawResponse Ask(const std::string& bytes) {
    RawHttpClient client(gateway_->port());
    client.Send(bytes);
    return client.ReadResponse();
  }
  static std::string CodeOf(const RawResponse& response) {
    return nlohmann::json::parse(response.body)["error"]["code"];
  }

  void Finish(size_t call_index) {
    const auto call = backend_.WaitForCall(call_index);
    ASSERT_NE(call, nullptr);
    call->Text("ok");
    call->Finish(v1::FINISH_REASON_STOP, 1, 1);
    call->Done(absl::OkStatus());
  }

  FakeBackend backend_;
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(GatewayBodiesTest, HundredsOfSlowBodiesTakeNoMoreThanTheBudget) {
  if (transport::RaiseDescriptorLimit() < 1000) GTEST_SKIP() << "too few descriptors";
  GatewayOptions options;
  options.bodies_bytes_max = 16 * kMiB;
  Start(options);
  Ask(ChatPost(kTiny));
  const size_t before = ResidentBytes();
  // Each announces 4 MiB and sends what its socket takes of the first half.
  std::vector<std::unique_ptr<RawHttpClient>> slow;
  const std::string part(64 * 1024, 'x');
  for (int i = 0; i < 300; ++i) {
    slow.push_back(std::make_unique<RawHttpClient>(gateway_->port()));
    slow.back()->Send(HeadFor(4 * kMiB) + part);
  }
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(Ask(ChatPost(kTiny)).status, 200) << "a small one is served all the same";
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(5));
  const size_t after = ResidentBytes();
  EXPECT_LT(after, before + 40 * kMiB) << "300 bodies of 4 MiB";
}

TEST_F(GatewayBodiesTest, ABodyThatTricklesIsToldSo) {
  GatewayOptions options;
  options.body_ms = milliseconds(300);
  Start(options);
  RawHttpClient client(gateway_->port());
  client.Send(HeadFor(1000) + "{");
  const RawResponse response = client.ReadResponse();
  EXPECT_EQ(response.status, 408);
  EXPECT_EQ(CodeOf(response), "body_too_slow");
  EXPECT_TRUE(client.WaitForClose());
}

TEST_F(GatewayBodiesTest, WhoFindsNoRoomIsToldWhenToTryAgain) {
  GatewayOptions options;
  options.bodies_bytes_max = 1;  // as few as may be: four bodies
  options.body_bytes_max = 256 * 1024;
  options.body_wait_ms = milliseconds(200);
  Start(options);
  // One address may hold half, and of that three quarters by large ones: one of these, while it is
  // answered.
  RawHttpClient first(gateway_->port());
  const std::string large = ChatOf(250 * 1024);
  first.Send(HeadFor(large.size()) + large);
  ASSERT_NE(backend_.WaitForCall(0), nullptr);
  RawHttpClient second(gateway_->port());
  second.Send(HeadFor(large.size()) + large);
  const RawResponse refused = second.ReadResponse();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(CodeOf(refused), "bodies_busy");
  EXPECT_EQ(refused.headers.at("retry-after"), "2");
  EXPECT_EQ(Ask(ChatPost(kTiny)).status, 200);
  // Room comes with the end of what held it, also to who waits already.
  RawHttpClient third(gateway_->port());
  third.Send(HeadFor(large.size()) + large);
  Finish(0);
  EXPECT_EQ(first.ReadResponse().status, 200);
  Finish(2);
  EXPECT_EQ(third.ReadResponse().status, 200);
}

// A chat that takes long to read for its size: some hundred thousand values.
std::string ChatOfManyValues() {
  std::string body = R"({"model":"tiny","messages":[{"role":"user","content":"hi"}],"metadata":[)";
  for (int i = 0; i < 300'000; ++i) body += "[7,7],";
  return ChatPost(body + "7]}");
}

TEST_F(GatewayBodiesTest, SmallRequestsDoNotWaitUntilLargeOnesAreRead) {
  Start();
  const std::string large = ChatOfManyValues();
  const auto seconds_of = [](auto&& work) {
    const auto begun = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  double least_part = 1;
  for (int i = 0; i < 5 && least_part > 0.3; ++i) {
    const double alone = seconds_of([&] { Ask(large); });
    auto answered = std::async(std::launch::async, [&] { return Ask(large); });
    std::vector<double> small;
    while (answered.wait_for(milliseconds(0)) != std::future_status::ready) {
      small.push_back(seconds_of([&] { EXPECT_EQ(Ask(ChatPost(kTiny)).status, 200); }));
    }
    if (small.empty()) continue;
    // One may be late by itself on a busy machine; those that wait for the large one are all late.
    std::sort(small.begin(), small.end());
    least_part = std::min(least_part, small.at(small.size() / 2) / alone);
  }
  EXPECT_LT(least_part, 0.3) << "of a large request's own time";
}

TEST_F(GatewayBodiesTest, WhatLargeBodiesTookIsGivenBack) {
  Start();
  if (ResidentBytes() == 0) GTEST_SKIP() << "this system does not tell";
  const std::string large = ChatOfManyValues();
  Ask(ChatPost(kTiny));
  const size_t before = ResidentBytes();
  for (int i = 0; i < 4; ++i) EXPECT_GE(Ask(large).status, 200);
  const auto end = std::chrono::steady_clock::now() + seconds(10);
  while (ResidentBytes() > before + 8 * kMiB && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_LT(ResidentBytes(), before + 8 * kMiB);
}

TEST_F(GatewayBodiesTest, AConnectionThatWaitsKeepsNothingOfItsLastRequest) {
  Start();
  if (ResidentBytes() == 0) GTEST_SKIP() << "this system does not tell";
  // Refused before the backend has it, which keeps what it is given.
  const std::string body = ChatOf(2 * kMiB, "unknown", /*answers=*/0);
  const std::string large = HeadFor(body.size()) + body;
  Ask(large);
  const size_t before = ResidentBytes();
  std::vector<std::unique_ptr<RawHttpClient>> waiting;
  for (int i = 0; i < 24; ++i) {
    waiting.push_back(std::make_unique<RawHttpClient>(gateway_->port()));
    waiting.back()->Send(large);
    EXPECT_EQ(waiting.back()->ReadResponse().status, 400);
  }
  const auto end = std::chrono::steady_clock::now() + seconds(10);
  while (ResidentBytes() > before + 8 * kMiB && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_LT(ResidentBytes(), before + 8 * kMiB) << "24 bodies of 2 MiB were answered";
  waiting.front()->Send(ChatPost(kTiny));
  EXPECT_EQ(waiting.front()->ReadResponse().status, 200) << "and it may go on";
}

// Each of several answers is asked for with the whole prompt.
TEST_F(GatewayBodiesTest, TheCopiesThatSeveralAnswersNeedCountToo) {
  Start();
  const auto post = [](size_t bytes, int answers) {
    const std::string body = ChatOf(bytes, "unknown", answers);
    return HeadFor(body.size()) + body;
  };
  const RawResponse refused = Ask(post(3 * kMiB, 8));
  EXPECT_EQ(refused.status, 413);
  EXPECT_EQ(CodeOf(refused), "body_too_large");
  EXPECT_EQ(Ask(post(7 * kMiB / 2, 5)).status, 413) << "the body itself counts too";
  EXPECT_EQ(Ask(post(3 * kMiB, 2)).status, 404) << "two fit";
  const std::string text =
      absl::StrCat(R"({"model":"unknown","n":8,"prompt":")", std::string(3 * kMiB, 'x'), R"("})");
  EXPECT_EQ(Ask(Post("/v1/completions", text)).status, 413);
}

std::string StoredId(const RawResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  return nlohmann::json::parse(response.body, nullptr, false).value("id", "");
}

std::string ResponsePost(const char* field, size_t bytes) {
  nlohmann::json body = {{"model", "tiny"}, {"input", "hi"}};
  body[field] = std::string(bytes, 'x');
  return Post("/v1/responses", body.dump());
}

TEST_F(GatewayBodiesTest, WhatAnAnswerHasOfAStoredResponseCountsToo) {
  GatewayOptions options;
  options.bodies_bytes_max = 1;  // four bodies: a client has 384 KiB of large ones
  options.body_bytes_max = 256 * 1024;
  options.body_wait_ms = milliseconds(200);
  Start(options);
  const std::string large_body = StoredId(Ask(ResponsePost("instructions", 240 * 1024)));
  const std::string large_chat = StoredId(Ask(ResponsePost("input", 240 * 1024)));
  const std::vector<std::string> requests = {
      Get("/v1/responses/" + large_body), Get("/v1/responses/" + large_chat + "/input_items"),
      Post("/v1/responses",
           R"({"model":"tiny","input":"hi","previous_response_id":")" + large_chat + R"("})")};
  for (const std::string& request : requests) EXPECT_EQ(Ask(request).status, 200) << request;
  // It holds its place until it is answered.
  const size_t calls = backend_.calls();
  RawHttpClient holder(gateway_->port());
  const std::string large = ChatOf(250 * 1024);
  holder.Send(HeadFor(large.size()) + large);
  ASSERT_NE(backend_.WaitForCall(calls), nullptr);
  for (const std::string& request : requests) {
    const RawResponse refused = Ask(request);
    EXPECT_EQ(refused.status, 503) << request;
    EXPECT_EQ(CodeOf(refused), "bodies_busy");
  }
  EXPECT_EQ(Ask(Get("/v1/responses/" + large_chat)).status, 200) << "its own text is small";
  Finish(calls);
  EXPECT_EQ(holder.ReadResponse().status, 200);
  for (const std::string& request : requests) EXPECT_EQ(Ask(request).status, 200) << request;
}

TEST_F(GatewayBodiesTest, AReplyThatIsNotReadKeepsItsPlace) {
  GatewayOptions options;
  options.bodies_bytes_max = 1;
  options.body_bytes_max = 256 * 1024;
  options.body_wait_ms = milliseconds(200);
  Start(options);
  const std::string id = StoredId(Ask(ResponsePost("instructions", 240 * 1024)));
  const std::string get = Get("/v1/responses/" + id);
  // More than the sockets between take: one of the replies waits to be read.
  std::string many;
  for (int i = 0; i < 500; ++i) many += get;
  RawHttpClient silent(gateway_->port());
  silent.Send(many);
  RawResponse other;
  const auto end = std::chrono::steady_clock::now() + seconds(10);
  do {
    other = Ask(get);
  } while (other.status == 200 && std::chrono::steady_clock::now() < end);
  ASSERT_EQ(other.status, 503);
  EXPECT_EQ(CodeOf(other), "bodies_busy");
  silent.Close();
  while (Ask(get).status != 200 && std::chrono::steady_clock::now() < end) {
  }
  EXPECT_EQ(Ask(get).status, 200);
}

TEST_F(GatewayBodiesTest, AGatewayThatStopsWaitsForWhatItReads) {
  Start();
  const std::string large = ChatOfManyValues();
  std::vector<std::unique_ptr<RawHttpClient>> clients;
  for (int k = 0; k < 4; ++k) {
    clients.push_back(std::make_unique<RawHttpClient>(gateway_->port()));
    clients.back()->Send(large);
  }
  gateway_->Stop();
  for (const auto& client : clients) EXPECT_TRUE(client->WaitForClose());
}

TEST_F(GatewayBodiesTest, AFastLargeBodyPasses) {
  Start();
  const std::string large = ChatOf(kMiB);
  RawHttpClient client(gateway_->port());
  client.Send(HeadFor(large.size()) + large);
  const auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  EXPECT_GT(call->request.messages(0).content().size(), kMiB - 200);
  Finish(0);
  EXPECT_EQ(client.ReadResponse().status, 200);
}

}  // namespace
}  // namespace macrame::agentd
