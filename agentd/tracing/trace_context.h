#pragma once

// Which trace a request belongs to: the headers traceparent and tracestate (W3C Trace Context,
// https://www.w3.org/TR/trace-context/), and whether it is sampled. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace macrame::agentd {

inline constexpr size_t kTraceIdDigits = 32;
inline constexpr size_t kSpanIdDigits = 16;
// Bits of a traceparent's flags.
inline constexpr uint32_t kTraceSampled = 0x01;
inline constexpr uint32_t kTraceRandom = 0x02;  // the trace id's last seven bytes are random

struct TraceContext {
  std::string trace_id;   // 32 hex digits, lower case
  std::string parent_id;  // 16: the caller's span; empty: the trace begins here
  uint32_t flags = 0;     // kTraceSampled, kTraceRandom
  std::string state;      // tracestate as the caller sent it; mostly empty

  bool is_sampled() const { return (flags & kTraceSampled) != 0; }
};

// All headers of the name traceparent that a request has. Nullopt, and whatever else was sent is
// ignored, unless there is just one and it is well-formed: two lower-case hex digits of a version
// that is not ff, 32 of an id and 16 of a span that are not all zero, two of flags, nothing behind
// them in version 00 and nothing or "-…" in later ones (section 3.2).
std::optional<TraceContext> ParseTraceparent(const std::vector<absl::string_view>& headers);

// All headers of the name tracestate, in their order, as one. Empty, and the trace goes on without,
// when a member is malformed or named twice, there are more than 32, or it is longer than
// kTracestateBytesMax (section 3.3; 512 is what everybody has to pass on).
std::string ParseTracestate(const std::vector<absl::string_view>& headers);
inline constexpr size_t kTracestateBytesMax = 512;
inline constexpr size_t kTracestateMembersMax = 32;

// "00-<trace>-<span>-<flags>".
std::string TraceparentOf(absl::string_view trace_id, absl::string_view span_id, uint32_t flags);

// Whether a trace that begins here is sampled, by its id, as OpenTelemetry's TraceIdRatioBased
// samplers decide it: all programs with one ratio agree.
bool IsInRatio(absl::string_view trace_id, double ratio);

}  // namespace macrame::agentd
