#pragma once

// Rank 0's engine thread while it serves: takes requests, asks the scheduler for steps, runs them
// on all ranks, samples, and sends what came about. The scheduler decides; this carries it out.
//
// With two steps in flight, the next step is submitted before the oldest one's results are read:
// the device goes on while tokens become text here. Tokens that a step chose itself are taken as
// they are (device_choice.h says for whom); the others are sampled here from their rows of logits.

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/serving/answer.h"
#include "runtime/serving/batch_scheduler.h"
#include "runtime/serving/drafter.h"
#include "runtime/serving/forward_engine.h"
#include "runtime/serving/prompt_embedding.h"
#include "runtime/serving/request_clock.h"
#include "runtime/watch/serving_observer.h"

namespace macrame::runtime::engine {

// What whoever sent a request gets to hear, on the engine thread.
class RequestListener {
 public:
  virtual ~RequestListener() = default;
  // Its first step is ordered: what of its prompt was cached, and why no more.
  virtual void OnStarted(const Effects::Started&) {}
  virtual void OnChunk(const v1::GenerateChunk& chunk) = 0;
  // The end, once: OK after the last chunk, or what ended it.
  virtual void OnDone(const absl::Status& status) = 0;
  // Asked between steps; true ends it.
  virtual bool IsCancelled() const = 0;
};

// Between two chunks that tell how far a prompt is.
inline constexpr std::chrono::milliseconds kProgressInterval{500};

struct ServingCounts {
  uint32_t running = 0;
  uint32_t waiting = 0;
  PreemptionCounts preempted{};
  uint32_t kv_cache_used_percent = 0;  // of its blocks, held by requests that run

  bool operator==(const ServingCounts&) const = default;
};

class ServingLoop {
 public:
  struct Hooks {
    // A fresh decoder of tokens to text.
    std::function<TextStream()> new_text;
    // After each change.
    std::function<void(ServingCounts)> on_counts;
    // The answer that just finished had the engine for itself: microseconds of a decode step.
    std::function<void(double)> on_decode_step_us;
    // After each step that had drafts: how many, and how many were right.
    std::function<void(uint32_t, uint32_t)> on_drafted;
    // Of these, the draft model's.
    std::function<void(uint32_t, uint32_t)> on_model_drafted;
    // The draft model failed and is not asked again; requests go on without.
    std::function<void(const absl::Status&)> on_drafter_failed;
    // What the ranks' cold workers told since the last call; unset without a cold tier.
    std::function<std::vector<ColdEvent>()> take_cold_events;
    // The cold tier is off from here on.
    std::function<void(const std::string&)> on_cold_off;
    ServingObserver* observer = nullptr;  // may be null
    // How long this rank waited in collectives in the step that was submitted last; unset: it has
    // none, or nobody knows.
    std::function<Duration()> waited_in_step;
    uint32_t world_size = 1;
    // Carries out what traits.draft_model lets the scheduler order; outlives the loop. May be null.
    Drafter* drafter = nullptr;
  };

  ServingLoop(ForwardEngine& engine, const BatchTraits& traits, Hooks hooks);
  ~ServingLoop();

  // Takes a request over; `listener` lives until OnDone.
  void Add(GenerationJob job, std::shared_ptr<RequestListener> listener);
  // Whether there is anything to do.
  bool idle() const {
    return requests_.empty() && in_flight_.empty() && !scheduler_.has_cold_orders();
  }
  // Looks after cancelled requests and submits a step or, when enough are in flight, awaits the
  // oldest; false when there was neither. An error is the engine's or the gang's: all requests have
  // heard it, and nothing can be run any more.
  absl::StatusOr<bool> RunStep();
  // Awaits all steps in flight: the gang is free for something else.
  absl::Status FinishSteps();

 private:
  struct Request {
    std::shared_ptr<RequestListener> listener;
    std::unique_ptr<Answer> answer;              // or
    std::unique_ptr<PromptEmbedding> embedding;  // what was asked for
    bool was_alone = true;                       // in every decode step so far, and none had drafts
    bool wants_progress = false;
    std::chrono::steady_clock::time_point since;  // it came or, later, its first step
    std::shared_ptr<RequestClock> clock;          // null: nobody asked
  };

  struct InFlight {
    OrderedStep ordered;
    std::chrono::steady_clock::time_point begun;
    Duration own{};           // what this rank computed
    bool met_a_pass = false;  // of the draft model, while it was under way
  };

  void DropCancelled();
  // To those who want it, at most every kProgressInterval.
  void TellProgress();
  // Lets the draft model do what pays before the next step.
  void MakeModelDrafts();
  absl::Status Submit(OrderedStep ordered);
  // For the clocks of those whose step was run.
  void CountStep(const OrderedStep& ordered);
  // A request's chunks, the last one with its timings.
  std::function<void(const v1::GenerateChunk&)> ChunksTo(const Request& request) const;
  absl::Status FinishOldest();
  Duration InSlowestStage(const InFlight& step,
                          std::chrono::steady_clock::time_point arrived) const;
  void TakeColdEvents();
  void Take(const Effects& effects);
  // The tokens of a step's rows: `chosen` by the step itself, the others by its logits. Ends
  // answers that are over.
  std::vector<RowResult> Sample(const OrderedStep& ordered, std::span<const float> logits,
                                std::span<const int32_t> chosen);
  // A row of the request was computed, in a step that held no other when `is_alone`.
  void NoteRow(RequestId id, bool is_alone, Request& request);
  // The hidden states behind them; ends embeddings that are whole.
  void Pool(const OrderedStep& ordered, std::span<const float> hidden);
  // What is chosen from each row, on the engine's threads where the step did not choose.
  std::vector<absl::StatusOr<SampledToken>> Choose(const OrderedStep& ordered,
                                                   std::span<const float> logits,
                                                   std::span<const int32_t> chosen);
  // That of a row that rests on drafts, when what they made of the answer was not seen by them.
  static absl::StatusOr<SampledToken> ChooseAnew(const Request& request,
                                                 std::span<const float> logits, size_t row,
                                                 size_t width);
  // One row's token; sets the result.
  void TakeToken(Request& request, RequestId id, const absl::StatusOr<SampledToken>& chosen,
                 RowResult& result);
  void End(RequestId id, const absl::Status& status);
  void EndAll(const absl::Status& status);
  void TellCounts();
  void Tell(RequestId id, RequestMoment moment) {
    if (hooks_.observer != nullptr) hooks_.observer->OnRequest(id, moment);
  }

  ForwardEngine& engine_;
  const Hooks hooks_;
  const size_t steps_in_flight_max_;
  // The step behind an answer's first token is submitted before that is heard, and the one behind
  // its last token too: steps are counted for the clocks when their results come.
  const bool runs_ahead_;
  BatchScheduler scheduler_;
  std::map<RequestId, Request> requests_;
  std::deque<InFlight> in_flight_;                        // oldest first
  std::chrono::steady_clock::time_point last_arrived_{};  // of the last result
  std::chrono::steady_clock::time_point progress_told_{};
  RequestId next_id_ = 1;
  ServingCounts told_;
};

}  // namespace macrame::runtime::engine
