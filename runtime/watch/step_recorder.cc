#include "runtime/watch/step_recorder.h"

#include <utility>

namespace macrame::runtime::engine {
namespace {

TraceRing::Time Now() { return std::chrono::steady_clock::now(); }

double Us(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

v1::TracePart TracePartOf(StepPart part) {
  switch (part) {
    case StepPart::kEmbed:
      return v1::TRACE_PART_EMBED;
    case StepPart::kLayer:
      return v1::TRACE_PART_LAYER;
    case StepPart::kLogits:
      return v1::TRACE_PART_LOGITS;
    case StepPart::kEvaluate:
      return v1::TRACE_PART_EVALUATE;
    case StepPart::kSampling:
      return v1::TRACE_PART_SAMPLING;
    case StepPart::kCollective:
      return v1::TRACE_PART_COLLECTIVE;
  }
  return v1::TRACE_PART_UNSPECIFIED;
}

}  // namespace

void StepRecorder::BeginStep(const ForwardStep& step) {
  prefill_tokens_ = 0;
  decode_tokens_ = 0;
  for (const Segment& segment : step.segments) {
    // An answer's next token, perhaps with drafts behind it.
    const bool is_decode = segment.logit_rows == LogitRows::kAll ||
                           (segment.tokens.size() == 1 && segment.logit_rows != LogitRows::kNone);
    if (is_decode) {
      ++decode_tokens_;
    } else {
      prefill_tokens_ += static_cast<uint32_t>(segment.tokens.size());
    }
  }
  board_.BeginStep();
  is_sampled_ = trace_.is_on() && board_.steps() % kTracedStepsApart == 0;
  waited_ns_ = 0;
  step_begun_ = Now();
}

void StepRecorder::EndStep() {
  board_.EndStep();
  last_wait_ = Duration(0);
  if (prefill_tokens_ == 0 && decode_tokens_ == 0) return;  // it closed slots
  const Time now = Now();
  const int64_t waited = waited_ns_.exchange(0);
  last_wait_ = std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(waited));
  if (trace_.is_on()) {
    trace_.Add(
        {v1::TRACE_PART_STEP, step_begun_, now, board_.steps(), prefill_tokens_, decode_tokens_});
  }
  is_sampled_ = false;
  const absl::MutexLock lock(&mutex_);
  if (prefill_tokens_ > 0) {
    kept_.prefill_step.Add(Us(now - step_begun_));
    kept_.prefill_tokens.Add(prefill_tokens_);
  } else {
    kept_.decode_step.Add(Us(now - step_begun_));
  }
  if (decode_tokens_ > 0) kept_.decode_tokens.Add(decode_tokens_);
  if (waited > 0) kept_.collective.Add(static_cast<double>(waited) / 1000);
}

void StepRecorder::BeginPart(StepPart part, uint32_t number) {
  board_.Mark();
  const bool is_timed = part == StepPart::kSampling || trace_.is_on();
  part_begun_[static_cast<size_t>(part)] = is_timed ? Now() : Time();
  part_number_[static_cast<size_t>(part)] = number;
}

void StepRecorder::EndPart(StepPart part) {
  board_.Mark();
  const bool is_traced = trace_.is_on();
  if (part != StepPart::kSampling && !is_traced) return;
  const Time begun = part_begun_[static_cast<size_t>(part)];
  const Time now = Now();
  if (part == StepPart::kSampling) {
    const absl::MutexLock lock(&mutex_);
    kept_.sampling.Add(Us(now - begun));
  }
  const bool is_wanted = part != StepPart::kLayer || is_sampled_;
  // A part that began before the trace did has no beginning.
  if (!is_traced || !is_wanted || begun == Time()) return;
  trace_.Add({TracePartOf(part), begun, now, part_number_[static_cast<size_t>(part)]});
}

void StepRecorder::BeginExchange() {
  board_.BeginWait();
  exchange_begun_ = Now();
}

void StepRecorder::EndExchange() {
  const Time now = Now();
  board_.EndWait();
  waited_ns_ += std::chrono::nanoseconds(now - exchange_begun_).count();
  if (is_sampled_) trace_.Add({v1::TRACE_PART_COLLECTIVE, exchange_begun_, now});
}

void StepRecorder::OnRequest(uint64_t id, RequestMoment moment) {
  const Time now = Now();
  if (moment == RequestMoment::kArrived) {
    requests_[id].arrived = now;
    return;
  }
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  RequestTimes& times = found->second;
  if (moment == RequestMoment::kStarted && !std::exchange(times.has_started, true)) {
    times.started = now;
    const absl::MutexLock lock(&mutex_);
    kept_.queue.Add(Us(now - times.arrived));
  } else if (moment == RequestMoment::kFirstToken && !std::exchange(times.has_answered, true)) {
    times.answered = now;
    const absl::MutexLock lock(&mutex_);
    kept_.first_token.Add(Us(now - times.arrived));
  } else if (moment == RequestMoment::kEnded) {
    EndRequest(id, times);
    requests_.erase(found);
  }
}

// A span that is not over when the trace ends is not in it.
void StepRecorder::EndRequest(uint64_t id, const RequestTimes& times) {
  if (!trace_.is_on()) return;
  const Time now = Now();
  const Time started = times.has_started ? times.started : now;
  const Time answered = times.has_answered ? times.answered : now;
  trace_.Add({v1::TRACE_PART_REQUEST_QUEUED, times.arrived, started, id});
  if (!times.has_started) return;
  trace_.Add({v1::TRACE_PART_REQUEST_PREFILL, started, answered, id});
  if (times.has_answered) trace_.Add({v1::TRACE_PART_REQUEST_DECODE, answered, now, id});
}

void StepRecorder::ForgetTimings() {
  const absl::MutexLock lock(&mutex_);
  kept_ = Histograms();
}

void StepRecorder::FillTimings(v1::RankStatus& status) const {
  Histograms kept;
  {
    const absl::MutexLock lock(&mutex_);
    kept = kept_;
  }
  if (!kept.any()) return;
  v1::RankTimings& timings = *status.mutable_timings();
  *timings.mutable_queue_us() = kept.queue.ToMessage();
  *timings.mutable_first_token_us() = kept.first_token.ToMessage();
  *timings.mutable_prefill_step_us() = kept.prefill_step.ToMessage();
  *timings.mutable_decode_step_us() = kept.decode_step.ToMessage();
  *timings.mutable_prefill_tokens() = kept.prefill_tokens.ToMessage();
  *timings.mutable_decode_tokens() = kept.decode_tokens.ToMessage();
  *timings.mutable_collective_us() = kept.collective.ToMessage();
  *timings.mutable_sampling_us() = kept.sampling.ToMessage();
}

}  // namespace macrame::runtime::engine
