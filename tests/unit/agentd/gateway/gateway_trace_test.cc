// Requests of the gateway as traces: headers in and out, and what is told at the end.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agentd/tracing/otlp_json.h"
#include "tests/unit/agentd/gateway/recorded_gateway.h"

namespace macrame::agentd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr const char* kSampled =
    "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
constexpr const char* kUnsampled =
    "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00\r\n";
constexpr const char* kWords = "the heron counts seven lanterns";

std::string Chat(const std::string& model, bool stream) {
  return R"({"model":")" + model + R"(","messages":[{"role":"user","content":")" + kWords +
         R"("}],"stream":)" + (stream ? "true}" : "false}");
}

class GatewayTraceTest : public RecordedGateway {
 protected:
  // It tells of spans to the end.
  void TearDown() override { gateway_.reset(); }
  void Start(double ratio, bool is_on = true) {
    GatewayOptions options;
    options.traces.ratio = ratio;
    if (is_on) {
      options.traces.take = [this](std::vector<Span> spans) {
        const std::lock_guard lock(mutex_);
        traces_.push_back(std::move(spans));
      };
    }
    RecordedGateway::Start(std::move(options));
  }
  std::vector<std::vector<Span>> Traces() {
    const std::lock_guard lock(mutex_);
    return traces_;
  }

  std::vector<std::vector<Span>> traces_;
};

TEST_F(GatewayTraceTest, OffLooksAtNoHeaderAndAsksRanksForNothing) {
  Start(1, /*is_on=*/false);
  RawHttpClient client(gateway_->port());
  client.Send(ChatPost(Chat("manual", false), kSampled));
  const auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  EXPECT_FALSE(call->request.timings());
  call->Finish(v1::FINISH_REASON_STOP, 1, 1);
  call->Done(absl::OkStatus());
  const RawResponse answer = client.ReadResponse();
  EXPECT_EQ(answer.headers.count("traceresponse"), 0u);
  EXPECT_EQ(Record(0).trace_id, "");
}

TEST_F(GatewayTraceTest, ACallersTraceGoesOn) {
  Start(0);
  RawHttpClient client(gateway_->port());
  client.Send(ChatPost(Chat("manual", true),
                       std::string(kSampled) + "tracestate: a=1\r\ntracestate: b=2\r\n"));
  const auto call = backend_.WaitForCall(0);
  ASSERT_NE(call, nullptr);
  EXPECT_TRUE(call->request.timings());
  call->Text("seven");
  v1::GenerateChunk last;
  last.set_finish_reason(v1::FINISH_REASON_STOP);
  last.set_prompt_tokens(12);
  last.set_completion_tokens(5);
  last.mutable_timings()->set_decode_ms(0.25);
  call->Chunk(last);
  call->Done(absl::OkStatus());
  const RawResponse answer = client.ReadResponse();
  EXPECT_EQ(Record(0).trace_id, kTrace);
  EXPECT_THAT(AccessLine(Record(0)), HasSubstr(std::string(" trace_id=") + kTrace));
  ASSERT_EQ(Traces().size(), 1u);
  const std::vector<Span> spans = Traces()[0];
  ASSERT_EQ(spans.size(), 6u) << "the server's, the call's, and what the rank did";
  EXPECT_EQ(answer.headers.at("traceresponse"),
            std::string("00-") + kTrace + "-" + spans[0].span_id + "-01");
  EXPECT_EQ(spans[0].parent_id, "00f067aa0ba902b7");
  EXPECT_EQ(spans[0].trace_state, "a=1,b=2");
  EXPECT_EQ(spans[1].parent_id, spans[0].span_id);
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  EXPECT_NEAR(static_cast<double>(spans[0].end_unix_ns), static_cast<double>(now), 10e9);
  const std::string told = OtlpJson(TraceSource(), spans);
  EXPECT_THAT(told, HasSubstr(R"({"key":"gen_ai.usage.input_tokens","value":{"intValue":"12"}})"));
  EXPECT_THAT(told, Not(HasSubstr("heron"))) << "no prompt";
  EXPECT_THAT(told, Not(HasSubstr("seven"))) << "no answer";
}

TEST_F(GatewayTraceTest, ACallerThatIsNotSampledIsNamedAndNotTold) {
  Start(1);
  const RawResponse answer = Ask(ChatPost(Chat("tiny", false), kUnsampled));
  EXPECT_THAT(answer.headers.at("traceresponse"), StartsWith(std::string("00-") + kTrace));
  EXPECT_EQ(Record(0).trace_id, kTrace);
  EXPECT_FALSE(backend_.WaitForCall(0)->request.timings());
  EXPECT_TRUE(Traces().empty());
}

TEST_F(GatewayTraceTest, OthersBeginATraceByTheRatio) {
  Start(1);
  // What is malformed or there twice begins a new one, too.
  for (const std::string& headers :
       {std::string(), std::string("traceparent: 00-x\r\n"), std::string(kSampled) + kSampled}) {
    const size_t before = Traces().size();
    const RawResponse answer = Ask(ChatPost(Chat("tiny", false), headers));
    EXPECT_EQ(answer.status, 200);
    const std::string id = Record(before).trace_id;
    EXPECT_EQ(id.size(), 32u);
    EXPECT_NE(id, kTrace);
    ASSERT_EQ(Traces().size(), before + 1);
    EXPECT_EQ(Traces().back()[0].trace_id, id);
    EXPECT_EQ(Traces().back()[0].parent_id, "");
  }
  EXPECT_NE(Traces()[0][0].trace_id, Traces()[1][0].trace_id);
}

TEST_F(GatewayTraceTest, ProbesAreNotTracedUnlessTheySaySo) {
  Start(1);
  EXPECT_EQ(Ask(Get("/health")).headers.count("traceresponse"), 0u);
  Record(0);
  EXPECT_TRUE(Traces().empty());
  Ask("GET /health HTTP/1.1\r\nhost: localhost\r\n" + std::string(kSampled) + "\r\n");
  Record(1);
  ASSERT_EQ(Traces().size(), 1u);
  EXPECT_EQ(Traces()[0].size(), 1u);
}

TEST_F(GatewayTraceTest, FailuresAndRefusalsAreTold) {
  Start(1);
  EXPECT_EQ(Ask(ChatPost(Chat("busy", false))).status, 429);
  Record(0);
  EXPECT_EQ(Ask(ChatPost("{", "")).status, 400);
  Record(1);
  ASSERT_EQ(Traces().size(), 2u);
  const std::vector<Span> busy = Traces()[0];
  ASSERT_EQ(busy.size(), 2u);
  EXPECT_EQ(busy[1].status, SpanStatus::kError);
  EXPECT_EQ(Traces()[1].size(), 1u) << "no model was asked";
}

TEST_F(GatewayTraceTest, AClientThatLeavesHasItsTrace) {
  Start(1);
  {
    RawHttpClient client(gateway_->port());
    client.Send(ChatPost(Chat("manual", true)));
    const auto call = backend_.WaitForCall(0);
    ASSERT_NE(call, nullptr);
    call->Text("one");
  }
  EXPECT_TRUE(Record(0).client_gone);
  ASSERT_EQ(Traces().size(), 1u);
  EXPECT_EQ(Traces()[0].size(), 2u) << "of the rank nothing was told";
}

}  // namespace
}  // namespace macrame::agentd
