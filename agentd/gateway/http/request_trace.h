#pragma once

// One HTTP request as the spans of a trace. Pure: ids and the wall clock are handed in.
//
// The server's span holds one span a call to an entry rank, which holds the way there ("route") and
// what the rank did: "prepare", "queue", "prefill", "decode". Names of attributes are those of
// OpenTelemetry's semantic conventions for HTTP and generative AI where these have one, and begin
// with "macrame." elsewhere. No span has anything of a prompt, an answer, a key or a tenant, nor
// the path as the client wrote it.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "agentd/gateway/dialects/answer_format.h"
#include "agentd/gateway/http/call_facts.h"
#include "agentd/gateway/http/request_record.h"
#include "agentd/tracing/span.h"
#include "agentd/tracing/trace_context.h"

namespace macrame::agentd {

struct TraceOptions {
  // Takes the spans of a request whose answer is over; io thread, and it may not wait. Unset:
  // nothing is traced, and no header is looked at.
  std::function<void(std::vector<Span>)> take;
  double ratio = 1;  // of the traces that begin here; a caller's own are sampled as it says
};

// What is known of a traced request beside its record.
struct TracedRequest {
  TraceContext context;
  std::string span_id;    // of the server's span: 16 hex digits
  std::string operation;  // gen_ai.operation.name; empty: no model was asked
  std::string answer_id;
  uint32_t choices_per_prompt = 1;
  std::vector<CallFacts> calls;
};

// gen_ai.operation.name; empty for what only tells tokens.
std::string OperationOf(AnswerForm form);

// The context of a request by its headers (trace_context.h), or of a trace that begins with it.
// `new_trace_id` draws 32 random hex digits, when it is called. Nullopt: not traced.
std::optional<TraceContext> ContextOf(const std::vector<absl::string_view>& traceparents,
                                      const std::vector<absl::string_view>& tracestates,
                                      double ratio,
                                      const std::function<std::string()>& new_trace_id);

struct TraceTools {
  // Added to an instant of the steady clock it gives the wall clock's, in nanoseconds.
  int64_t unix_offset_ns = 0;
  std::function<std::string()> new_span_id;  // 16 random hex digits that are not all zero
};

// The server's span comes first.
std::vector<Span> SpansOf(const RequestRecord& record, const TracedRequest& traced,
                          const TraceTools& tools);

// When what a rank did began, on the gateway's clock: it took `took` on the rank's, and lay between
// `sent` and `heard` on the gateway's. What is left is taken to have gone by in equal parts on the
// way there and back, so the error is at most half of it.
RequestRecord::Clock::time_point AlignedBegin(RequestRecord::Clock::time_point sent,
                                              RequestRecord::Clock::time_point heard,
                                              RequestRecord::Clock::duration took);

}  // namespace macrame::agentd
