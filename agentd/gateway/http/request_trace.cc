#include "agentd/gateway/http/request_trace.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

using Time = RequestRecord::Clock::time_point;
using std::chrono::nanoseconds;

constexpr size_t kModelBytesMax = 128;  // clients may name models of any length
constexpr int kServerErrorFirst = 500;

void Put(SpanAttributes& attributes, std::string key, std::string value) {
  if (!value.empty()) attributes.push_back({std::move(key), std::move(value)});
}

void Put(SpanAttributes& attributes, std::string key, uint64_t value) {
  attributes.push_back({std::move(key), static_cast<int64_t>(value)});
}

std::string ShortModel(const std::string& model) { return model.substr(0, kModelBytesMax); }

nanoseconds FromMs(double ms) { return nanoseconds(static_cast<int64_t>(std::max(ms, 0.0) * 1e6)); }

// Makes the spans of one request.
class SpanMaker {
 public:
  SpanMaker(const RequestRecord& record, const TracedRequest& traced, const TraceTools& tools)
      : record_(record), traced_(traced), tools_(tools) {}

  std::vector<Span> Make() {
    spans_.push_back(ServerSpan());
    for (size_t i = 0; i < traced_.calls.size(); ++i) AddCall(traced_.calls[i], i);
    return std::move(spans_);
  }

 private:
  int64_t Unix(Time time) const {
    return std::chrono::duration_cast<nanoseconds>(time.time_since_epoch()).count() +
           tools_.unix_offset_ns;
  }

  // Nothing of a request lies outside of its server's span, whatever clocks say.
  Time Within(Time time) const { return std::clamp(time, record_.begun, record_.ended); }

  Span NewSpan(std::string name, SpanKind kind, const std::string& parent, Time begin,
               Time end) const {
    Span span;
    span.trace_id = traced_.context.trace_id;
    span.span_id = tools_.new_span_id();
    span.parent_id = parent;
    span.flags = traced_.context.flags;
    span.trace_state = traced_.context.state;
    span.name = std::move(name);
    span.kind = kind;
    span.begin_unix_ns = Unix(Within(begin));
    span.end_unix_ns = std::max(span.begin_unix_ns, Unix(Within(end)));
    return span;
  }

  Span ServerSpan() const {
    Span span = NewSpan(absl::StrCat(record_.method, " ", record_.route), SpanKind::kServer,
                        traced_.context.parent_id, record_.begun, record_.ended);
    span.span_id = traced_.span_id;
    span.parent_is_remote = !traced_.context.parent_id.empty();
    Put(span.attributes, "http.request.method",
        record_.method == "other" ? "_OTHER" : record_.method);
    Put(span.attributes, "http.route", record_.route);
    if (record_.status != 0) {
      Put(span.attributes, "http.response.status_code", static_cast<uint64_t>(record_.status));
    }
    Put(span.attributes, "http.request.body.size", record_.bytes_received);
    Put(span.attributes, "macrame.response.bytes", record_.bytes_sent);
    Put(span.attributes, "macrame.request.id", record_.request_id);
    if (record_.client_gone) span.attributes.push_back({"macrame.client_gone", true});
    AddModel(span);
    AddServerEvents(span);
    SetServerStatus(span);
    return span;
  }

  void AddModel(Span& span) const {
    if (traced_.operation.empty()) return;
    SpanAttributes& attributes = span.attributes;
    Put(attributes, "gen_ai.operation.name", traced_.operation);
    Put(attributes, "gen_ai.provider.name", "macrame");
    Put(attributes, "gen_ai.request.model", ShortModel(record_.model));
    if (traced_.calls.empty()) return;
    Put(attributes, "gen_ai.response.model", ShortModel(record_.model));
    Put(attributes, "gen_ai.response.id", traced_.answer_id);
    std::vector<TokenCounts> counts;
    std::vector<std::string> reasons;
    for (const CallFacts& call : traced_.calls) {
      counts.push_back(call.counts);
      const std::string reason = FinishOf(call);
      if (!reason.empty()) reasons.push_back(reason);
    }
    const TokenCounts total =
        TotalCounts(counts, std::max<uint32_t>(traced_.choices_per_prompt, 1));
    if (!reasons.empty()) attributes.push_back({"gen_ai.response.finish_reasons", reasons});
    AddUsage(total, attributes);
  }

  static void AddUsage(const TokenCounts& counts, SpanAttributes& attributes) {
    Put(attributes, "gen_ai.usage.input_tokens", uint64_t{counts.prompt_tokens});
    Put(attributes, "gen_ai.usage.output_tokens", uint64_t{counts.completion_tokens});
    Put(attributes, "gen_ai.usage.cache_read.input_tokens", uint64_t{counts.cached_tokens});
  }

  static std::string FinishOf(const CallFacts& call) {
    if (call.finish == v1::FINISH_REASON_UNSPECIFIED) return "";
    if (call.finish == v1::FINISH_REASON_CANCELLED) return "cancelled";
    return std::string(FinishReasonName(call.finish, call.has_calls));
  }

  void AddServerEvents(Span& span) const {
    if (record_.read.has_value()) {
      span.events.push_back({Unix(Within(*record_.read)), "request read", {}});
    }
    if (record_.first_byte.has_value()) {
      span.events.push_back({Unix(Within(*record_.first_byte)), "first byte written", {}});
    }
  }

  void SetServerStatus(Span& span) const {
    std::string failure;
    for (const CallFacts& call : traced_.calls) {
      if (failure.empty()) failure = call.failure_code;
    }
    // What a client did wrong is no error of a server's span.
    const bool is_ours = record_.status >= kServerErrorFirst;
    const bool broke_off = record_.status == 200 && !failure.empty();
    if (!is_ours && !broke_off) return;
    span.status = SpanStatus::kError;
    Put(span.attributes, "error.type", failure.empty() ? absl::StrCat(record_.status) : failure);
  }

  void AddCall(const CallFacts& call, size_t index) {
    const Time end = call.ended.value_or(record_.ended);
    Span span = NewSpan(traced_.operation.empty()
                            ? std::string("tokens")
                            : absl::StrCat(traced_.operation, " ", ShortModel(record_.model)),
                        SpanKind::kClient, traced_.span_id, call.begun, end);
    if (!traced_.operation.empty()) {
      Put(span.attributes, "gen_ai.operation.name", traced_.operation);
      Put(span.attributes, "gen_ai.provider.name", "macrame");
      Put(span.attributes, "gen_ai.request.model", ShortModel(record_.model));
      const std::string finish = FinishOf(call);
      if (!finish.empty()) {
        span.attributes.push_back({"gen_ai.response.finish_reasons", std::vector{finish}});
      }
      AddUsage(call.counts, span.attributes);
    }
    if (traced_.calls.size() > 1) Put(span.attributes, "macrame.choice", uint64_t{index});
    if (call.first_piece.has_value()) {
      span.events.push_back({Unix(Within(*call.first_piece)), "first piece", {}});
    }
    if (!call.failure_code.empty()) {
      span.status = SpanStatus::kError;
      Put(span.attributes, "error.type", call.failure_code);
    }
    const std::string parent = span.span_id;
    const Time sent = AddRoute(call, end, span);
    AddGang(call, span.attributes);
    spans_.push_back(std::move(span));
    if (call.timings.has_value() && call.last_piece.has_value()) {
      AddRank(call, sent, parent);
    }
  }

  static const CallRoute::Step* LastSent(const CallRoute& route) {
    const CallRoute::Step* last = nullptr;
    for (const CallRoute::Step& step : route.steps) last = step.is_sent ? &step : last;
    return last;
  }

  static void AddGang(const CallFacts& call, SpanAttributes& attributes) {
    const CallRoute::Step* last = LastSent(call.route);
    if (last != nullptr) {
      Put(attributes, "macrame.entry.node_id", last->node_id);
      Put(attributes, "macrame.gang.deployment", last->replica);
      Put(attributes, "macrame.gang.epoch", last->epoch);
    }
    if (call.timings.has_value()) {
      Put(attributes, "macrame.gang.world_size", uint64_t{call.timings->world_size()});
    }
  }

  // The way to the entry rank that had it last, and what happened on it. When it was sent there.
  Time AddRoute(const CallFacts& call, Time end, Span& parent) {
    const CallRoute::Step* last = LastSent(call.route);
    const Time sent = last == nullptr ? end : last->at;
    if (call.route.steps.empty()) return call.begun;
    Span span = NewSpan("route", SpanKind::kInternal, parent.span_id, call.begun,
                        std::max<Time>(sent, call.route.steps.back().at));
    uint64_t attempts = 0;
    for (const CallRoute::Step& step : call.route.steps) {
      attempts += step.is_sent ? 1 : 0;
      span.events.push_back(EventOf(step));
    }
    Put(span.attributes, "macrame.route.attempts", attempts);
    if (call.route.dropped > 0) {
      Put(span.attributes, "macrame.route.events_dropped", uint64_t{call.route.dropped});
    }
    if (last == nullptr) span.status = SpanStatus::kError;
    spans_.push_back(std::move(span));
    return sent;
  }

  SpanEvent EventOf(const CallRoute::Step& step) const {
    SpanEvent event;
    event.unix_ns = Unix(Within(step.at));
    event.name = step.is_sent ? "sent" : "retry";
    Put(event.attributes, "macrame.entry.node_id", step.node_id);
    if (step.is_sent) {
      Put(event.attributes, "macrame.gang.deployment", step.replica);
      Put(event.attributes, "macrame.gang.epoch", step.epoch);
    } else {
      Put(event.attributes, "error.type", step.code);
      if (step.repetitions > 0) {
        Put(event.attributes, "macrame.repetitions", uint64_t{step.repetitions});
      }
    }
    return event;
  }

  void AddRank(const CallFacts& call, Time sent, const std::string& parent) {
    const v1::RequestTimings& timings = *call.timings;
    const std::pair<const char*, nanoseconds> parts[] = {
        {"prepare", FromMs(timings.preparing_ms())},
        {"queue", FromMs(timings.queued_ms())},
        {"prefill", FromMs(timings.prefill_ms())},
        {"decode", FromMs(timings.decode_ms())}};
    nanoseconds took{0};
    for (const auto& [name, span] : parts) took += span;
    Time at = AlignedBegin(sent, *call.last_piece, took);
    const Time latest = *call.last_piece;
    for (const auto& [name, length] : parts) {
      const Time begin = std::min(at, latest), end = std::min(at + length, latest);
      Span span = NewSpan(name, SpanKind::kInternal, parent, begin, end);
      AddRankFacts(call, name, span.attributes);
      spans_.push_back(std::move(span));
      at += length;
    }
  }

  static void AddRankFacts(const CallFacts& call, absl::string_view part,
                           SpanAttributes& attributes) {
    const v1::RequestTimings& timings = *call.timings;
    if (part == "prefill") {
      Put(attributes, "macrame.tokens", uint64_t{call.counts.prompt_tokens});
      Put(attributes, "macrame.cached_tokens", uint64_t{call.counts.cached_tokens});
      Put(attributes, "macrame.steps", uint64_t{timings.prefill_steps()});
      if (timings.has_prefill_collective_ms()) {
        attributes.push_back({"macrame.collective.wait_ms", timings.prefill_collective_ms()});
      }
    }
    if (part == "decode") {
      Put(attributes, "macrame.tokens", uint64_t{call.counts.completion_tokens});
      Put(attributes, "macrame.steps", uint64_t{timings.decode_steps()});
      Put(attributes, "macrame.draft_tokens", uint64_t{call.draft_tokens});
      Put(attributes, "macrame.accepted_tokens", uint64_t{call.accepted_tokens});
      Put(attributes, "macrame.interruptions", uint64_t{timings.interruptions()});
      if (timings.has_decode_collective_ms()) {
        attributes.push_back({"macrame.collective.wait_ms", timings.decode_collective_ms()});
      }
    }
  }

  const RequestRecord& record_;
  const TracedRequest& traced_;
  const TraceTools& tools_;
  std::vector<Span> spans_;
};

}  // namespace

std::string OperationOf(AnswerForm form) {
  if (IsOfTokens(form)) return "";
  if (IsEmbedding(form)) return "embeddings";
  const bool is_text = form == AnswerForm::kText || form == AnswerForm::kOllamaText;
  return is_text ? "text_completion" : "chat";
}

std::optional<TraceContext> ContextOf(const std::vector<absl::string_view>& traceparents,
                                      const std::vector<absl::string_view>& tracestates,
                                      double ratio,
                                      const std::function<std::string()>& new_trace_id) {
  if (auto context = ParseTraceparent(traceparents)) {
    context->state = ParseTracestate(tracestates);
    return context;
  }
  if (ratio <= 0) return std::nullopt;
  TraceContext context;
  context.trace_id = new_trace_id();
  if (!IsInRatio(context.trace_id, ratio)) return std::nullopt;
  context.flags = kTraceSampled | kTraceRandom;
  return context;
}

std::vector<Span> SpansOf(const RequestRecord& record, const TracedRequest& traced,
                          const TraceTools& tools) {
  return SpanMaker(record, traced, tools).Make();
}

Time AlignedBegin(Time sent, Time heard, RequestRecord::Clock::duration took) {
  const auto left = heard - sent - took;
  return left.count() > 0 ? sent + left / 2 : sent;
}

}  // namespace macrame::agentd
