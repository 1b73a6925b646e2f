#include "agentd/gateway/http/request_trace.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using Time = RequestRecord::Clock::time_point;

constexpr int64_t kUnixOffset = 1'700'000'000'000'000'000;

Time At(int ms) { return Time(milliseconds(ms)); }
int64_t Unix(int ms) { return kUnixOffset + int64_t{ms} * 1'000'000; }

template <typename Value>
std::optional<Value> Find(const SpanAttributes& attributes, const std::string& key) {
  for (const SpanAttribute& attribute : attributes) {
    if (attribute.key == key) return std::get<Value>(attribute.value);
  }
  return std::nullopt;
}

class RequestTraceTest : public ::testing::Test {
 protected:
  RequestTraceTest() {
    record_.method = "POST";
    record_.route = "/v1/chat/completions";
    record_.status = 200;
    record_.request_id = "req_1";
    record_.model = "m";
    record_.begun = At(1000);
    record_.read = At(1001);
    record_.handed_on = At(1002);
    record_.first_byte = At(1060);
    record_.ended = At(1200);
    traced_.context = {"4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", kTraceSampled,
                       "a=1"};
    traced_.span_id = "1111111111111111";
    traced_.operation = "chat";
    traced_.answer_id = "chatcmpl-1";
    traced_.calls.push_back(Whole());
  }

  // One that went well: 110 ms at the rank, 20 ms on the way.
  static CallFacts Whole() {
    CallFacts call;
    call.begun = At(1002);
    call.first_piece = At(1058);
    call.last_piece = At(1140);
    call.ended = At(1141);
    call.counts.prompt_tokens = 30;
    call.counts.cached_tokens = 10;
    call.counts.completion_tokens = 8;
    call.finish = v1::FINISH_REASON_STOP;
    v1::RequestTimings timings;
    timings.set_preparing_ms(2);
    timings.set_queued_ms(8);
    timings.set_prefill_ms(40);
    timings.set_decode_ms(60);
    timings.set_prefill_steps(2);
    timings.set_decode_steps(7);
    timings.set_prefill_collective_ms(12.5);
    timings.set_world_size(2);
    call.timings = timings;
    CallRoute::Step sent;
    sent.at = At(1010);
    sent.is_sent = true;
    sent.node_id = "node";
    sent.replica = "m";
    sent.epoch = 3;
    call.route.steps.push_back(sent);
    return call;
  }

  std::vector<Span> Spans() {
    int next = 0;
    return SpansOf(record_, traced_,
                   {kUnixOffset, [&] { return absl::StrFormat("%016x", ++next + 0x100); }});
  }
  static const Span& Named(const std::vector<Span>& spans, const std::string& name) {
    const auto found = std::find_if(spans.begin(), spans.end(),
                                    [&](const Span& span) { return span.name == name; });
    EXPECT_NE(found, spans.end()) << name;
    return found == spans.end() ? spans.front() : *found;
  }

  RequestRecord record_;
  TracedRequest traced_;
};

TEST_F(RequestTraceTest, TheServersSpanIsTheCallersChild) {
  const Span server = Spans().front();
  EXPECT_EQ(server.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(server.span_id, "1111111111111111");
  EXPECT_EQ(server.parent_id, "00f067aa0ba902b7");
  EXPECT_TRUE(server.parent_is_remote);
  EXPECT_EQ(server.trace_state, "a=1");
  EXPECT_EQ(server.kind, SpanKind::kServer);
  EXPECT_EQ(server.name, "POST /v1/chat/completions");
  EXPECT_EQ(server.begin_unix_ns, Unix(1000));
  EXPECT_EQ(server.end_unix_ns, Unix(1200));
  EXPECT_EQ(Find<std::string>(server.attributes, "http.request.method"), "POST");
  EXPECT_EQ(Find<int64_t>(server.attributes, "http.response.status_code"), 200);
  EXPECT_EQ(Find<std::string>(server.attributes, "gen_ai.operation.name"), "chat");
  EXPECT_EQ(Find<std::string>(server.attributes, "gen_ai.request.model"), "m");
  EXPECT_EQ(Find<std::string>(server.attributes, "gen_ai.response.id"), "chatcmpl-1");
  EXPECT_EQ(Find<int64_t>(server.attributes, "gen_ai.usage.input_tokens"), 30);
  EXPECT_EQ(Find<int64_t>(server.attributes, "gen_ai.usage.output_tokens"), 8);
  EXPECT_EQ(Find<int64_t>(server.attributes, "gen_ai.usage.cache_read.input_tokens"), 10);
  EXPECT_EQ(Find<std::string>(server.attributes, "macrame.request.id"), "req_1");
  EXPECT_EQ(server.status, SpanStatus::kUnset);
}

TEST_F(RequestTraceTest, WhatTheRankDidStandsOnTheGatewaysClock) {
  const std::vector<Span> spans = Spans();
  ASSERT_EQ(spans.size(), 7u);
  const Span& call = Named(spans, "chat m");
  EXPECT_EQ(call.parent_id, "1111111111111111");
  EXPECT_EQ(call.kind, SpanKind::kClient);
  EXPECT_EQ(Find<int64_t>(call.attributes, "macrame.gang.epoch"), 3);
  EXPECT_EQ(Find<int64_t>(call.attributes, "macrame.gang.world_size"), 2);
  for (const char* name : {"route", "prepare", "queue", "prefill", "decode"}) {
    EXPECT_EQ(Named(spans, name).parent_id, call.span_id) << name;
    EXPECT_EQ(Named(spans, name).kind, SpanKind::kInternal) << name;
  }
  EXPECT_EQ(Named(spans, "route").end_unix_ns, Unix(1010));
  // 130 ms between sent and heard, 110 of them at the rank.
  EXPECT_EQ(Named(spans, "prepare").begin_unix_ns, Unix(1020));
  EXPECT_EQ(Named(spans, "queue").begin_unix_ns, Unix(1022));
  EXPECT_EQ(Named(spans, "prefill").begin_unix_ns, Unix(1030));
  EXPECT_EQ(Named(spans, "decode").begin_unix_ns, Unix(1070));
  EXPECT_EQ(Named(spans, "decode").end_unix_ns, Unix(1130));
  const Span& prefill = Named(spans, "prefill");
  EXPECT_EQ(Find<int64_t>(prefill.attributes, "macrame.tokens"), 30);
  EXPECT_EQ(Find<int64_t>(prefill.attributes, "macrame.cached_tokens"), 10);
  EXPECT_EQ(Find<double>(prefill.attributes, "macrame.collective.wait_ms"), 12.5);
  EXPECT_EQ(Find<double>(Named(spans, "decode").attributes, "macrame.collective.wait_ms"),
            std::nullopt);
}

TEST_F(RequestTraceTest, NothingLiesOutsideOfWhatHoldsIt) {
  // The rank's clock runs ahead, or its figures are made up.
  traced_.calls[0].timings->set_prefill_ms(500);
  traced_.calls[0].timings->set_queued_ms(-5);
  traced_.calls[0].timings->set_decode_ms(1e15);
  traced_.calls[0].begun = At(900);
  traced_.calls[0].ended = At(5000);
  const std::vector<Span> spans = Spans();
  for (const Span& span : spans) {
    EXPECT_GE(span.begin_unix_ns, Unix(1000)) << span.name;
    EXPECT_LE(span.end_unix_ns, Unix(1200)) << span.name;
    EXPECT_LE(span.begin_unix_ns, span.end_unix_ns) << span.name;
  }
  EXPECT_EQ(Named(spans, "decode").end_unix_ns, Unix(1140));
}

TEST_F(RequestTraceTest, ALostGangIsAnEventOfTheRoute) {
  CallRoute::Step lost;
  lost.at = At(1005);
  lost.node_id = "dead";
  lost.code = "GANG_LOST_NODE";
  lost.repetitions = 2;
  CallRoute::Step first = traced_.calls[0].route.steps[0];
  first.at = At(1003);
  first.epoch = 2;
  auto& steps = traced_.calls[0].route.steps;
  steps.insert(steps.begin(), {first, lost});
  const std::vector<Span> spans = Spans();
  const Span& route = Named(spans, "route");
  ASSERT_EQ(route.events.size(), 3u);
  EXPECT_EQ(route.events[0].name, "sent");
  EXPECT_EQ(route.events[1].name, "retry");
  EXPECT_EQ(route.events[1].unix_ns, Unix(1005));
  EXPECT_EQ(Find<std::string>(route.events[1].attributes, "error.type"), "GANG_LOST_NODE");
  EXPECT_EQ(Find<int64_t>(route.events[1].attributes, "macrame.repetitions"), 2);
  EXPECT_EQ(Find<int64_t>(route.events[2].attributes, "macrame.gang.epoch"), 3);
  EXPECT_EQ(Find<int64_t>(route.attributes, "macrame.route.attempts"), 2);
  EXPECT_EQ(Named(spans, "prepare").begin_unix_ns, Unix(1020)) << "counted from the last try";
}

TEST_F(RequestTraceTest, FailuresAreErrorsOfTheServersSpanWhenTheyAreOurs) {
  traced_.calls[0] = CallFacts();
  traced_.calls[0].begun = At(1002);
  traced_.calls[0].ended = At(1100);
  traced_.calls[0].failure_code = "QUEUE_FULL";
  record_.status = 503;
  std::vector<Span> spans = Spans();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].status, SpanStatus::kError);
  EXPECT_EQ(Find<std::string>(spans[0].attributes, "error.type"), "QUEUE_FULL");
  EXPECT_EQ(spans[1].status, SpanStatus::kError);
  record_.status = 400;
  spans = Spans();
  EXPECT_EQ(spans[0].status, SpanStatus::kUnset) << "the client's";
  record_.status = 200;  // a stream that broke off
  EXPECT_EQ(Spans()[0].status, SpanStatus::kError);
  record_.status = 500;
  traced_.calls.clear();
  EXPECT_EQ(Find<std::string>(Spans()[0].attributes, "error.type"), "500");
}

TEST_F(RequestTraceTest, SeveralAnswersCountTheirPromptOnce) {
  traced_.calls.push_back(Whole());
  traced_.choices_per_prompt = 2;
  const std::vector<Span> spans = Spans();
  EXPECT_EQ(Find<int64_t>(spans[0].attributes, "gen_ai.usage.input_tokens"), 30);
  EXPECT_EQ(Find<int64_t>(spans[0].attributes, "gen_ai.usage.output_tokens"), 16);
  EXPECT_EQ(std::count_if(spans.begin(), spans.end(),
                          [](const Span& span) { return span.name == "decode"; }),
            2);
}

TEST_F(RequestTraceTest, NamesOfModelsAreCut) {
  record_.model = std::string(5000, 'x');
  for (const Span& span : Spans()) EXPECT_LT(span.name.size(), 200u);
}

TEST(RequestTrace, HalfOfWhatIsLeftIsTheWayThere) {
  EXPECT_EQ(AlignedBegin(At(0), At(100), milliseconds(60)), At(20));
  EXPECT_EQ(AlignedBegin(At(0), At(100), milliseconds(100)), At(0));
  EXPECT_EQ(AlignedBegin(At(0), At(100), milliseconds(900)), At(0));
}

TEST(RequestTrace, OperationsAreThoseOfTheConventions) {
  EXPECT_EQ(OperationOf(AnswerForm::kChat), "chat");
  EXPECT_EQ(OperationOf(AnswerForm::kMessage), "chat");
  EXPECT_EQ(OperationOf(AnswerForm::kOllamaText), "text_completion");
  EXPECT_EQ(OperationOf(AnswerForm::kOllamaEmbed), "embeddings");
  EXPECT_EQ(OperationOf(AnswerForm::kTokens), "");
}

TEST(RequestTrace, ACallersWordComesBeforeTheRatio) {
  constexpr absl::string_view kParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0";
  const std::string on = absl::StrCat(kParent, "1"), off = absl::StrCat(kParent, "0");
  const auto never = []() -> std::string {
    ADD_FAILURE() << "no id is drawn";
    return "";
  };
  EXPECT_TRUE(ContextOf({on}, {"a=1"}, 0, never)->is_sampled());
  EXPECT_EQ(ContextOf({on}, {"a=1"}, 0, never)->state, "a=1");
  EXPECT_FALSE(ContextOf({off}, {}, 1, never)->is_sampled());
  EXPECT_FALSE(ContextOf({}, {}, 0, never).has_value());
  EXPECT_FALSE(ContextOf({}, {}, 0.5, [] { return std::string(32, 'f'); }).has_value());
  const auto begun = ContextOf({"bad"}, {"a=1"}, 0.5, [] { return std::string(32, '1'); });
  ASSERT_TRUE(begun.has_value());
  EXPECT_EQ(begun->trace_id, std::string(32, '1'));
  EXPECT_TRUE(begun->parent_id.empty());
  EXPECT_TRUE(begun->state.empty()) << "it belongs to a trace that was not understood";
  EXPECT_TRUE(begun->is_sampled());
}

}  // namespace
}  // namespace macrame::agentd
