// What the gateway tells of requests: ids, the access record, /metrics, and pages of other origins.

#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/agentd/gateway/recorded_gateway.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;

std::string Chat(const std::string& model, bool stream) {
  return R"({"model":")" + model + R"(","messages":[{"role":"user","content":"hi"}],"stream":)" +
         (stream ? "true}" : "false}");
}

class GatewayMetricsTest : public RecordedGateway {
 protected:
  void Start(GatewayOptions options = {}) {
    options.version = "1.2.3";
    RecordedGateway::Start(std::move(options));
  }
};

TEST_F(GatewayMetricsTest, AStreamLeavesARecordWithItsTimes) {
  Start();
  const RawResponse answer = Ask(ChatPost(Chat("threaded", true)));
  ASSERT_EQ(answer.status, 200);
  const RequestRecord record = Record(0);
  EXPECT_EQ(record.method, "POST");
  EXPECT_EQ(record.route, "/v1/chat/completions");
  EXPECT_EQ(record.status, 200);
  EXPECT_EQ(record.model, "threaded");
  EXPECT_EQ(record.client_address, "127.0.0.1");
  EXPECT_EQ(record.request_id, answer.headers.at("x-request-id"));
  EXPECT_EQ(record.bytes_received, Chat("threaded", true).size());
  EXPECT_GT(record.bytes_sent, answer.body.size()) << "head and all";
  EXPECT_FALSE(record.client_gone);
  ASSERT_TRUE(FirstByteOverhead(record).has_value());
  EXPECT_GE(*record.handed_on, record.begun);
  EXPECT_GE(*record.first_byte, *record.first_piece);
  EXPECT_GE(record.ended, *record.first_byte);
}

TEST_F(GatewayMetricsTest, RefusalsLeaveOneToo) {
  Start();
  EXPECT_EQ(Ask("GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n").status, 404);
  EXPECT_EQ(Record(0).route, "unknown");
  EXPECT_EQ(Record(0).status, 404);
  EXPECT_EQ(Ask("BREW /health HTTP/1.1\r\nhost: localhost\r\n\r\n").status, 405);
  EXPECT_EQ(Record(1).method, "other");
  EXPECT_EQ(Record(1).route, "/health");
  EXPECT_EQ(Ask(ChatPost(Chat("nobody", false))).status, 404);
  EXPECT_EQ(Record(2).model, "nobody");
}

TEST_F(GatewayMetricsTest, AClientThatLeavesIsInItsRecord) {
  Start();
  {
    RawHttpClient client(gateway_->port());
    client.Send(ChatPost(Chat("manual", true)));
    const auto call = backend_.WaitForCall(0);
    ASSERT_NE(call, nullptr);
    call->Text("one");
  }
  EXPECT_TRUE(Record(0).client_gone);
  for (const bool stream : {false, true}) {
    RawHttpClient client(gateway_->port());
    client.Send(ChatPost(Chat("tiny", stream), "connection: close\r\n"));
    EXPECT_EQ(client.ReadResponse().status, 200);
    client.Close();
    EXPECT_FALSE(Record(stream ? 2 : 1).client_gone) << "it had all of its answer";
  }
}

TEST_F(GatewayMetricsTest, AClientsOwnIdIsTakenReturnedAndPassedOn) {
  Start();
  const std::string post = ChatPost(Chat("tiny", false));
  const auto with = [&](const std::string& field) {
    return std::string(post).insert(post.find("\r\n") + 2, field + "\r\n");
  };
  EXPECT_EQ(Ask(with("X-Request-Id: trace-7")).headers.at("x-request-id"), "trace-7");
  EXPECT_EQ(Ask(with("x-request-id: trace-7")).headers.at("x-request-id"), "trace-7");
  const std::string first = backend_.WaitForCall(0)->request.request_id();
  const std::string second = backend_.WaitForCall(1)->request.request_id();
  EXPECT_EQ(first.rfind("trace-7/req_", 0), 0u) << first;
  EXPECT_NE(first, second) << "one id sent twice: ids of tool calls are made from it";
  for (const std::string& bad : {std::string("a b"), std::string("a\"b"), std::string(129, 'x')}) {
    EXPECT_EQ(Ask(with("x-request-id: " + bad)).headers.at("x-request-id").rfind("req_", 0), 0u)
        << bad;
  }
  EXPECT_EQ(Record(0).request_id, "trace-7");
}

TEST_F(GatewayMetricsTest, MetricsComeFromWhoeverCounts) {
  Start();
  EXPECT_EQ(Ask("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").status, 404) << "nobody counts";
  GatewayOptions options;
  std::thread counter;
  options.metrics = [&](const std::string& accept, std::function<void(MetricsPage)> reply) {
    counter = std::thread([accept, reply] {
      reply({"text/plain", std::make_shared<const std::string>("asked with " + accept)});
    });
  };
  Start(options);
  const RawResponse page =
      Ask("GET /metrics HTTP/1.1\r\nhost: localhost\r\naccept: text/plain\r\n\r\n");
  counter.join();
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/plain");
  EXPECT_EQ(page.body, "asked with text/plain");
  EXPECT_EQ(Record(1).route, "/metrics");
}

TEST_F(GatewayMetricsTest, PagesOfListedOriginsMayReadAnswersAndOthersMayNot) {
  GatewayOptions options;
  options.cors_origins = {"https://chat.example"};
  Start(options);
  const auto ask = [&](const std::string& method, const std::string& origin) {
    return Ask(method + " /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\norigin: " + origin +
               "\r\naccess-control-request-method: POST\r\n\r\n");
  };
  const RawResponse preflight = ask("OPTIONS", "https://chat.example");
  EXPECT_EQ(preflight.status, 200);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "https://chat.example");
  EXPECT_EQ(preflight.headers.at("access-control-allow-methods"), "POST");
  const RawResponse other = ask("OPTIONS", "https://evil.example");
  EXPECT_EQ(other.status, 405);
  EXPECT_FALSE(other.headers.contains("access-control-allow-origin"));
  const std::string post = ChatPost(Chat("tiny", true));
  const RawResponse answer =
      Ask(std::string(post).insert(post.find("\r\n") + 2, "origin: https://chat.example\r\n"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "https://chat.example");
  EXPECT_EQ(answer.headers.at("vary"), "Origin");
}

}  // namespace
}  // namespace macrame::agentd
