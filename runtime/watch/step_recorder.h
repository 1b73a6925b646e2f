#pragma once

// Listens to a rank's work and keeps what is asked for later: how far it is (for the other ranks),
// how long things take (RankTimings), and, while somebody traces, what it did when.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "macrame/v1/rank.pb.h"
#include "proto/log_histogram.h"
#include "runtime/gang/progress_board.h"
#include "runtime/watch/serving_observer.h"
#include "runtime/watch/trace_ring.h"
#include "transport/collectives/observed_wire.h"

namespace macrame::runtime::engine {

class StepRecorder : public ServingObserver, public transport::WireObserver {
 public:
  // Engine thread.
  void BeginStep(const ForwardStep& step) override;
  void EndStep() override;
  void BeginPart(StepPart part, uint32_t number) override;
  void EndPart(StepPart part) override;
  void OnRequest(uint64_t id, RequestMoment moment) override;
  void ExpectStep(Duration expected) override { board_.SetExpected(expected); }
  // The wire's thread.
  void BeginExchange() override;
  void EndExchange() override;

  // In collectives, of the step that ended last. Engine thread.
  Duration last_wait() const { return last_wait_; }

  // Any thread.
  const ProgressBoard& board() const { return board_; }
  TraceRing& trace() { return trace_; }
  // Of all since the rank was ready: what warming up took says nothing.
  void ForgetTimings();
  // Left unset while there are none.
  void FillTimings(v1::RankStatus& status) const;

 private:
  using Time = TraceRing::Time;
  struct RequestTimes {
    Time arrived, started, answered;
    bool has_started = false, has_answered = false;
  };
  struct Histograms {
    LogHistogram queue, first_token, prefill_step, decode_step;
    LogHistogram prefill_tokens, decode_tokens, collective, sampling;
    bool any() const { return prefill_step.count() + decode_step.count() + queue.count() > 0; }
  };
  static constexpr size_t kParts = 7;

  void EndRequest(uint64_t id, const RequestTimes& times);

  ProgressBoard board_;
  TraceRing trace_;
  // Engine thread.
  Time step_begun_;
  std::array<Time, kParts> part_begun_{};
  std::array<uint32_t, kParts> part_number_{};
  uint32_t prefill_tokens_ = 0, decode_tokens_ = 0;
  Duration last_wait_{};
  std::map<uint64_t, RequestTimes> requests_;  // as many as the serving loop has
  // The wire's thread, but for what the engine thread takes at a step's end.
  Time exchange_begun_;
  std::atomic<int64_t> waited_ns_ = 0;
  std::atomic<bool> is_sampled_ = false;

  mutable absl::Mutex mutex_;
  Histograms kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace macrame::runtime::engine
