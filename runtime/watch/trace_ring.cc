#include "runtime/watch/trace_ring.h"

#include <algorithm>
#include <utility>

namespace macrame::runtime::engine {

bool TraceRing::Start(Time now, uint64_t unix_us) {
  absl::MutexLock lock(&mutex_);
  if (on_.load()) return false;
  spans_.clear();
  added_ = 0;
  begun_ = now;
  begun_unix_us_ = unix_us;
  on_.store(true);
  return true;
}

void TraceRing::Add(const Span& span) {
  if (!is_on()) return;
  absl::MutexLock lock(&mutex_);
  if (!on_.load()) return;
  if (spans_.size() < kTraceSpansMax) {
    spans_.push_back(span);
  } else {
    spans_[added_ % kTraceSpansMax] = span;
  }
  ++added_;
}

v1::RankTrace TraceRing::Stop() {
  std::vector<Span> spans;
  v1::RankTrace trace;
  Time begun;
  {
    absl::MutexLock lock(&mutex_);
    on_.store(false);
    spans = std::exchange(spans_, {});
    trace.set_begun_unix_us(begun_unix_us_);
    trace.set_dropped(std::exchange(added_, 0) - spans.size());
    begun = begun_;
  }
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  const auto since = [](Time from, Time to) {
    return static_cast<uint64_t>(std::max<int64_t>(0, std::chrono::nanoseconds(to - from).count()));
  };
  for (const Span& span : spans) {
    v1::TraceSpan& out = *trace.add_spans();
    out.set_part(span.part);
    // What was under way when the trace began is cut there.
    const Time begin = std::max(span.begin, begun);
    out.set_begin_ns(since(begun, begin));
    out.set_duration_ns(since(begin, span.end));
    out.set_number(span.number);
    out.set_prefill_tokens(span.prefill_tokens);
    out.set_decode_tokens(span.decode_tokens);
  }
  return trace;
}

}  // namespace macrame::runtime::engine
