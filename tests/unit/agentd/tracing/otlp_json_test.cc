// The JSON that collectors read, held against the mapping of the OTLP specification.

#include "agentd/tracing/otlp_json.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace macrame::agentd {
namespace {

using Read = nlohmann::json;

Span Sample() {
  Span span;
  span.trace_id = "5b8efff798038103d269b633813fc60c";
  span.span_id = "eee19b7ec3c1b174";
  span.parent_id = "eee19b7ec3c1b173";
  span.parent_is_remote = true;
  span.flags = 1;
  span.trace_state = "a=1";
  span.name = "POST /v1/chat/completions";
  span.kind = SpanKind::kServer;
  span.begin_unix_ns = 1544712660000000000;
  span.end_unix_ns = 1544712661000000000;
  span.attributes = {{"text", std::string("some")},
                     {"count", int64_t{9007199254740993}},
                     {"part", 0.5},
                     {"truth", true},
                     {"list", std::vector<std::string>{"stop", "length"}}};
  span.events = {{1544712660500000000, "retry", {{"error.type", std::string("NOT_READY")}}}};
  span.status = SpanStatus::kError;
  span.status_text = "why";
  return span;
}

TEST(OtlpJson, IsTheMappingOfTheSpecification) {
  const Read request =
      Read::parse(OtlpJson(TraceSourceOf("node-1", "studio", "1.2.3"), {Sample()}));
  const Read expected = Read::parse(R"({"resourceSpans": [{
    "resource": {"attributes": [
      {"key": "service.name", "value": {"stringValue": "macrame-agentd"}},
      {"key": "service.version", "value": {"stringValue": "1.2.3"}},
      {"key": "service.instance.id", "value": {"stringValue": "node-1"}},
      {"key": "host.name", "value": {"stringValue": "studio"}}]},
    "scopeSpans": [{
      "scope": {"name": "macrame", "version": "1.2.3"},
      "spans": [{
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
        "traceState": "a=1",
        "parentSpanId": "eee19b7ec3c1b173",
        "flags": 769,
        "name": "POST /v1/chat/completions",
        "kind": 2,
        "startTimeUnixNano": "1544712660000000000",
        "endTimeUnixNano": "1544712661000000000",
        "attributes": [
          {"key": "text", "value": {"stringValue": "some"}},
          {"key": "count", "value": {"intValue": "9007199254740993"}},
          {"key": "part", "value": {"doubleValue": 0.5}},
          {"key": "truth", "value": {"boolValue": true}},
          {"key": "list", "value": {"arrayValue": {"values": [
            {"stringValue": "stop"}, {"stringValue": "length"}]}}}],
        "events": [{
          "timeUnixNano": "1544712660500000000",
          "name": "retry",
          "attributes": [{"key": "error.type", "value": {"stringValue": "NOT_READY"}}]}],
        "status": {"code": 2, "message": "why"}}]}]}]})");
  EXPECT_EQ(request, expected) << request.dump(1);
}

TEST(OtlpJson, WhatIsNotThereIsLeftOut) {
  Span bare;
  bare.trace_id = std::string(32, 'a');
  bare.span_id = std::string(16, 'b');
  const Read request = Read::parse(OtlpJson(TraceSource(), {bare, bare}));
  const Read spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"];
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_FALSE(spans[0].contains("parentSpanId"));
  EXPECT_FALSE(spans[0].contains("traceState"));
  EXPECT_FALSE(spans[0].contains("events"));
  EXPECT_EQ(spans[0]["status"], Read::object());
  EXPECT_EQ(spans[0]["flags"], 0x100) << "it is known that its parent is no other program's";
}

TEST(OtlpJson, StaysJsonWhateverStandsInTexts) {
  Span span = Sample();
  span.name = "a\"b\n\xff\x00z";
  EXPECT_TRUE(Read::accept(OtlpJson(TraceSource(), {span})));
}

TEST(OtlpJson, ReadsWhatACollectorDidNotTake) {
  EXPECT_EQ(ReadPartialSuccess("{}").rejected, 0u);
  const PartialSuccess some =
      ReadPartialSuccess(R"({"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}})");
  EXPECT_EQ(some.rejected, 3u);
  EXPECT_EQ(some.why, "too old");
  EXPECT_EQ(ReadPartialSuccess(R"({"partialSuccess":{"rejectedSpans":4}})").rejected, 4u);
  for (const absl::string_view odd :
       {"", "no JSON", "[]", "7", R"({"partialSuccess":1})", R"({"partialSuccess":null})",
        R"({"partialSuccess":{"rejectedSpans":-1,"errorMessage":5}})",
        R"({"partialSuccess":{"rejectedSpans":"many"}})"}) {
    EXPECT_EQ(ReadPartialSuccess(odd).rejected, 0u) << odd;
  }
}

}  // namespace
}  // namespace macrame::agentd
