#include "agentd/services/http_post.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/agentd/services/hook_server.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr Duration kLong = seconds(20);

// Sends each that connects the same bytes as they are, and closes; it reads a bit of what it is
// sent, or nothing.
class RawServer {
 public:
  explicit RawServer(std::string answer, bool reads = true)
      : answer_(std::move(answer)), reads_(reads) {}

  std::string url() const { return absl::StrCat("http://127.0.0.1:", server_.port(), "/"); }

 private:
  void Answer(int client) {
    char block[4096];
    if (reads_ && ::recv(client, block, sizeof block, 0) < 0) return;
    for (size_t sent = 0; sent < answer_.size();) {
      const ssize_t now =
          ::send(client, answer_.data() + sent, answer_.size() - sent, MSG_NOSIGNAL);
      if (now <= 0) break;
      sent += static_cast<size_t>(now);
    }
    ::shutdown(client, SHUT_WR);
    ::recv(client, block, sizeof block, 0);
  }

  const std::string answer_;
  const bool reads_;
  tests::LoopbackServer server_{[this](int client) { Answer(client); }};
};

absl::StatusOr<HttpPostAnswer> PostTo(const std::string& url, Duration timeout = kLong) {
  HttpPost post(*ParseWebUrl(url), {});
  return post.Try("{}", timeout);
}

TEST(HttpPostTest, SendsOneWholeRequestWithItsFieldsForEachTry) {
  tests::HookServer server;
  HttpPost post(*ParseWebUrl(server.url()), {{"Authorization", "Bearer x"}, {"X-More", "1"}});
  const std::string body = R"({"text":"ü)" + std::string(100'000, '.') + "\"}";
  ASSERT_TRUE(post.Try(body, kLong).ok());
  ASSERT_TRUE(post.Try("{}", kLong).ok());
  const auto requests = server.requests();
  ASSERT_THAT(requests, SizeIs(2));
  EXPECT_THAT(requests[0], StartsWith("POST /hook?a=b HTTP/1.1\r\n"));
  EXPECT_THAT(requests[0], HasSubstr("Authorization: Bearer x\r\n"));
  EXPECT_THAT(requests[0], HasSubstr("X-More: 1\r\n"));
  EXPECT_THAT(requests[0], HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(requests[0], HasSubstr("Host: 127.0.0.1:"));
  EXPECT_EQ(requests[0].substr(requests[0].find("\r\n\r\n") + 4), body);
}

TEST(HttpPostTest, AnyAnswerIsAnAnswerAndNoneIsFollowed) {
  tests::HookServer server;
  server.SetHeaders("location: http://127.0.0.1:1/elsewhere\r\n");
  server.SetBody("why");
  for (const int status : {200, 204, 301, 302, 307, 404, 429, 500, 503}) {
    server.SetStatus(status);
    const size_t before = server.requests().size();
    const auto answer = PostTo(server.url());
    ASSERT_TRUE(answer.ok()) << status << ": " << answer.status();
    EXPECT_EQ(answer->status, status);
    EXPECT_EQ(server.requests().size(), before + 1);
  }
}

TEST(HttpPostTest, HowLongToWaitIsReadInSecondsAndNothingElse) {
  struct Case {
    const char* field;
    std::optional<Duration> expected;
  };
  const std::vector<Case> cases = {{"0", seconds(0)},
                                   {"7", seconds(7)},
                                   {" 12 ", seconds(12)},
                                   {"4294967295", seconds(4294967295)},
                                   {"4294967296", std::nullopt},
                                   {"-1", std::nullopt},
                                   {"1.5", std::nullopt},
                                   {"", std::nullopt},
                                   {"soon", std::nullopt},
                                   {"Fri, 27 Nov 2026 10:00:00 GMT", std::nullopt}};
  tests::HookServer server;
  server.SetStatus(503);
  for (const Case& one : cases) {
    server.SetHeaders(absl::StrCat("retry-after: ", one.field, "\r\n"));
    const auto answer = PostTo(server.url());
    ASSERT_TRUE(answer.ok()) << one.field;
    EXPECT_EQ(answer->retry_after, one.expected) << one.field;
  }
  server.SetHeaders("");
  EXPECT_EQ(PostTo(server.url())->retry_after, std::nullopt);
}

// What the head says counts, whatever comes after it.
TEST(HttpPostTest, ABodyIsKeptUpToItsLimitAndLeftOutBeyondIt) {
  tests::HookServer server;
  for (const size_t size : {size_t{0}, size_t{1}, kHttpAnswerBytesMax, kHttpAnswerBytesMax + 1,
                            10 * kHttpAnswerBytesMax}) {
    server.SetBody(std::string(size, 'b'));
    const auto answer = PostTo(server.url());
    ASSERT_TRUE(answer.ok()) << size << ": " << answer.status();
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body.size(), size > kHttpAnswerBytesMax ? 0 : size);
  }
}

TEST(HttpPostTest, AnAnswerWhoseBodyBreaksOffIsAnAnswerWithoutOne) {
  for (const std::string& answer :
       {std::string("HTTP/1.1 202 OK\r\ncontent-length: 100\r\n\r\nshort"),
        std::string("HTTP/1.1 202 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab"),
        std::string("HTTP/1.1 202 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n")}) {
    RawServer server(answer);
    const auto told = PostTo(server.url());
    ASSERT_TRUE(told.ok()) << answer << ": " << told.status();
    EXPECT_EQ(told->status, 202);
    EXPECT_EQ(told->body, "");
  }
}

TEST(HttpPostTest, WhatIsNoAnswerIsAFailureWithWords) {
  std::string long_head = "HTTP/1.1 200 OK\r\n";
  for (int field = 0; field < 2000; ++field) absl::StrAppend(&long_head, "x", field, ": y\r\n");
  const std::vector<std::string> answers = {"",
                                            "\r\n\r\n",
                                            "HTTP/1.1",
                                            "HTTP/1.1 2000 X\r\n\r\n",
                                            "SSH-2.0-OpenSSH_9.2\r\n",
                                            "HTTP/1.1 200 OK\r\nbad field\r\n\r\n",
                                            std::string(1 << 20, 'a'),
                                            long_head,
                                            "HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
                                            std::string("\0\1\2\xff", 4)};
  for (const std::string& answer : answers) {
    for (const bool reads : {true, false}) {
      RawServer server(answer, reads);
      const auto told = PostTo(server.url());
      ASSERT_FALSE(told.ok()) << answer.substr(0, 40);
      EXPECT_TRUE(absl::IsUnavailable(told.status())) << told.status();
      EXPECT_FALSE(told.status().message().empty());
    }
  }
}

TEST(HttpPostTest, WhoIsSilentIsLeftAtTheLimitAndSaidToBeLate) {
  tests::HookServer server;
  server.SetSilent(true);
  const auto begun = steady_clock::now();
  const auto answer = PostTo(server.url(), milliseconds(300));
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status())) << answer.status();
  EXPECT_LT(steady_clock::now() - begun, seconds(10));
  EXPECT_THAT(server.requests(), SizeIs(1));
}

TEST(HttpPostTest, WhereNobodyListensItFailsAtOnce) {
  std::string url;
  {
    const RawServer gone("");
    url = gone.url();
  }
  const auto answer = PostTo(url);
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
}

TEST(HttpPostTest, APlainServerIsNoneForHttps) {
  RawServer server("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
  std::string url = server.url();
  url.replace(0, 4, "https");
  const auto answer = PostTo(url);
  ASSERT_FALSE(answer.ok());
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
}

TEST(HttpPostTest, OnceItIsStoppedNothingIsSentAndNobodyWaits) {
  tests::HookServer server;
  HttpPost post(*ParseWebUrl(server.url()), {});
  EXPECT_TRUE(post.Pause(milliseconds(1)));
  post.Stop();
  EXPECT_FALSE(post.Pause(kLong));
  EXPECT_TRUE(absl::IsCancelled(post.Try("{}", kLong).status()));
  post.Stop();
  EXPECT_THAT(server.requests(), IsEmpty());
}

TEST(HttpPostTest, StopEndsWhatIsUnderWay) {
  tests::HookServer server;
  server.SetSilent(true);
  HttpPost post(*ParseWebUrl(server.url()), {});
  absl::Status status;
  std::thread poster([&] { status = post.Try("{}", kLong).status(); });
  const auto limit = steady_clock::now() + seconds(10);
  while (server.requests().empty() && steady_clock::now() < limit) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  ASSERT_THAT(server.requests(), SizeIs(1));
  const auto stopped = steady_clock::now();
  post.Stop();
  poster.join();
  EXPECT_LT(steady_clock::now() - stopped, seconds(10));
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

TEST(HttpPostTest, StopEndsAPause) {
  HttpPost post(*ParseWebUrl("http://127.0.0.1:1/"), {});
  std::atomic<bool> is_waited = true;
  std::thread waiter([&] { is_waited = post.Pause(seconds(60)); });
  const auto begun = steady_clock::now();
  post.Stop();
  waiter.join();
  EXPECT_FALSE(is_waited);
  EXPECT_LT(steady_clock::now() - begun, seconds(20));
}

}  // namespace
}  // namespace macrame::agentd
