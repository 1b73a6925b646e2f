#include "runtime/serving/request_clock.h"

#include <algorithm>
#include <chrono>

namespace macrame::runtime::engine {
namespace {

double Millis(Duration span) {
  return std::max(0.0, std::chrono::duration<double, std::milli>(span).count());
}

}  // namespace

void RequestClock::Start(MonotonicTime now) {
  if (!started_.has_value()) started_ = now;
}

void RequestClock::FirstToken(MonotonicTime now) {
  if (!answered_.has_value()) answered_ = now;
}

void RequestClock::AddStep(std::optional<Duration> waited) {
  Steps& steps = has_answered() ? decode_ : prefill_;
  ++steps.count;
  if (waited.has_value()) steps.waited = steps.waited.value_or(Duration(0)) + *waited;
}

v1::RequestTimings RequestClock::Timings(MonotonicTime now) const {
  const MonotonicTime started = started_.value_or(now);
  const MonotonicTime answered = answered_.value_or(now);
  v1::RequestTimings timings;
  timings.set_preparing_ms(Millis(prepared_ - received_));
  timings.set_queued_ms(Millis(started - prepared_));
  timings.set_prefill_ms(Millis(answered - started));
  timings.set_decode_ms(Millis(now - answered));
  timings.set_prefill_steps(prefill_.count);
  timings.set_decode_steps(decode_.count);
  if (prefill_.waited.has_value()) timings.set_prefill_collective_ms(Millis(*prefill_.waited));
  if (decode_.waited.has_value()) timings.set_decode_collective_ms(Millis(*decode_.waited));
  timings.set_interruptions(interruptions_);
  return timings;
}

}  // namespace macrame::runtime::engine
