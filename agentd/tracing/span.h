#pragma once

// One span of a trace, as OpenTelemetry has it. A value.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace macrame::agentd {

struct SpanAttribute {
  std::string key;
  std::variant<std::string, int64_t, double, bool, std::vector<std::string>> value;
};
using SpanAttributes = std::vector<SpanAttribute>;

struct SpanEvent {
  int64_t unix_ns = 0;
  std::string name;
  SpanAttributes attributes;
};

// Numbers of opentelemetry/proto/trace/v1/trace.proto.
enum class SpanKind { kInternal = 1, kServer = 2, kClient = 3 };
enum class SpanStatus { kUnset = 0, kOk = 1, kError = 2 };

struct Span {
  std::string trace_id;   // 32 hex digits
  std::string span_id;    // 16
  std::string parent_id;  // 16; empty: it has none
  bool parent_is_remote = false;
  uint32_t flags = 0;  // of the trace: trace_context.h
  std::string trace_state;
  std::string name;
  SpanKind kind = SpanKind::kInternal;
  int64_t begin_unix_ns = 0;
  int64_t end_unix_ns = 0;
  SpanAttributes attributes;
  std::vector<SpanEvent> events;
  SpanStatus status = SpanStatus::kUnset;
  std::string status_text;
};

}  // namespace macrame::agentd
