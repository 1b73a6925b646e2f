#include "runtime/serving/serving_loop.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/reasons.h"
#include "runtime/serving/device_choice.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::steady_clock;

MonotonicTime Now() { return std::chrono::time_point_cast<Duration>(steady_clock::now()); }

Duration Elapsed(steady_clock::time_point since) {
  return std::chrono::duration_cast<Duration>(steady_clock::now() - since);
}

// What requests under way hold, rounded up: nothing is 0 alone. Blocks that are only kept for later
// ones are free to them.
uint32_t UsedPercent(const BlockPool& pool) {
  const uint64_t total = pool.blocks_total();
  return total == 0 ? 0
                    : static_cast<uint32_t>(((total - pool.available()) * 100 + total - 1) / total);
}

// Of one step's rows.
struct DraftCount {
  uint32_t all = 0;
  uint32_t of_model = 0;  // of the draft model
  void Add(bool is_of_model) {
    ++all;
    if (is_of_model) ++of_model;
  }
};

// What a step chose itself.
absl::StatusOr<SampledToken> TokenOf(int32_t chosen) {
  if (chosen == kNoToken) return absl::InternalError("the model's output is not finite");
  SampledToken token;
  token.token = chosen;
  return token;
}

}  // namespace

ServingLoop::ServingLoop(ForwardEngine& engine, const BatchTraits& traits, Hooks hooks)
    : engine_(engine),
      hooks_(std::move(hooks)),
      steps_in_flight_max_(traits.steps_in_flight_max),
      runs_ahead_(traits.chooses_tokens && traits.steps_in_flight_max > 1),
      scheduler_(traits) {
  MACRAME_CHECK(traits.steps_in_flight_max <= engine.steps_in_flight_max())
      << "this gang takes no " << traits.steps_in_flight_max << " steps at once";
  MACRAME_CHECK(!traits.chooses_tokens || engine.chooses_tokens())
      << "this engine's steps choose no tokens";
}

ServingLoop::~ServingLoop() = default;

void ServingLoop::Add(GenerationJob job, std::shared_ptr<RequestListener> listener) {
  RequestSpec spec;
  spec.id = next_id_++;
  spec.prompt = job.prompt;
  spec.max_new_tokens = job.limits.max_tokens;
  spec.key = job.fairness_key;
  spec.priority = job.priority;
  spec.salt = job.cache_salt;
  spec.memory_only = job.memory_only;
  if (job.embedding.has_value()) spec.rows = job.embedding->rows();
  spec.choice = DeviceChoiceOf(job);
  const RequestId id = spec.id;
  Request& request = requests_[id];
  request.listener = std::move(listener);
  request.since = steady_clock::now();
  request.wants_progress = job.wants_progress;
  if (job.queue_limit.has_value()) spec.start_by = Now() + *job.queue_limit;
  if (job.wants_timings) request.clock = std::make_shared<RequestClock>(job.received, job.prepared);
  const auto on_chunk = ChunksTo(request);
  if (job.embedding.has_value()) {
    request.embedding = std::make_unique<PromptEmbedding>(
        *job.embedding, static_cast<uint32_t>(job.prompt.size()), on_chunk, steady_clock::now());
  } else {
    request.answer =
        std::make_unique<Answer>(std::move(job), hooks_.new_text(), on_chunk, steady_clock::now());
  }
  if (request.answer != nullptr && request.answer->has_structure()) {
    spec.admitted = [answer = request.answer.get()](std::span<const int32_t> tokens) {
      return answer->Admitted(tokens);
    };
  }
  Tell(id, RequestMoment::kArrived);
  const auto effects = scheduler_.Add(std::move(spec), Now());
  if (!effects.ok()) return End(id, effects.status());
  Take(*effects);
  TellCounts();
}

std::function<void(const v1::GenerateChunk&)> ServingLoop::ChunksTo(const Request& request) const {
  if (request.clock == nullptr) {
    return [heard = request.listener](const v1::GenerateChunk& chunk) { heard->OnChunk(chunk); };
  }
  return [heard = request.listener, clock = request.clock,
          world_size = hooks_.world_size](const v1::GenerateChunk& chunk) {
    if (chunk.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) return heard->OnChunk(chunk);
    v1::GenerateChunk timed = chunk;
    *timed.mutable_timings() = clock->Timings(Now());
    timed.mutable_timings()->set_world_size(world_size);
    heard->OnChunk(timed);
  };
}

void ServingLoop::DropCancelled() {
  std::vector<RequestId> cancelled;
  for (const auto& [id, request] : requests_) {
    if (request.listener->IsCancelled()) cancelled.push_back(id);
  }
  for (const RequestId id : cancelled) Take(scheduler_.Cancel(id, Now()));
}

void ServingLoop::TellProgress() {
  const auto now = steady_clock::now();
  if (now - progress_told_ < kProgressInterval) return;
  progress_told_ = now;
  for (const auto& [id, request] : requests_) {
    if (!request.wants_progress) continue;
    const std::optional<PromptStanding> standing = scheduler_.StandingOf(id);
    if (!standing.has_value()) continue;
    v1::GenerateChunk chunk;
    v1::PromptProgress& progress = *chunk.mutable_progress();
    progress.set_is_queued(standing->is_queued);
    progress.set_prompt_tokens(standing->prompt_tokens);
    progress.set_cached_tokens(standing->cached_tokens);
    progress.set_computed_tokens(standing->computed_tokens);
    progress.set_elapsed_ms(std::chrono::duration<double, std::milli>(now - request.since).count());
    request.listener->OnChunk(chunk);
  }
}

void ServingLoop::TakeColdEvents() {
  if (!hooks_.take_cold_events) return;
  const bool was_on = scheduler_.cold().on();
  for (const ColdEvent& event : hooks_.take_cold_events()) scheduler_.OnCold(event, Now());
  if (was_on && !scheduler_.cold().on() && hooks_.on_cold_off) {
    hooks_.on_cold_off(scheduler_.cold().off_reason());
  }
}

// What finished was told so when its last token was sampled.
void ServingLoop::Take(const Effects& effects) {
  for (const Effects::Started& started : effects.started) {
    Tell(started.id, RequestMoment::kStarted);
    const auto found = requests_.find(started.id);
    if (found == requests_.end()) continue;
    Request& request = found->second;
    request.since = steady_clock::now();
    if (request.clock != nullptr) request.clock->Start(Now());
    if (request.answer != nullptr) {
      request.answer->SetCachedTokens(started.cached_tokens, started.cold_tokens);
    } else {
      request.embedding->SetCachedTokens(started.cached_tokens);
    }
    request.listener->OnStarted(started);
  }
  for (const RequestId id : effects.preempted) {
    const auto found = requests_.find(id);
    if (found != requests_.end() && found->second.clock != nullptr) {
      found->second.clock->Interrupt();
    }
  }
  for (const Effects::Ended& ended : effects.ended) {
    const auto found = requests_.find(ended.id);
    if (found == requests_.end()) continue;
    if (ended.reason == EndReason::kDisplaced) {
      End(ended.id, ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kQueueFull,
                                 "other clients' requests wait for this model too"));
      continue;
    }
    if (ended.reason == EndReason::kExpired) {
      const auto waited = std::chrono::duration_cast<std::chrono::seconds>(ended.usage.queued);
      End(ended.id, ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kQueueTimeout,
                                 absl::StrCat("no turn came within ", waited.count(), " s")));
      continue;
    }
    if (found->second.answer != nullptr) {
      found->second.answer->Cancel();
    } else {
      found->second.embedding->Cancel();
    }
    End(ended.id, absl::OkStatus());
  }
}

std::vector<RowResult> ServingLoop::Sample(const OrderedStep& ordered,
                                           std::span<const float> logits,
                                           std::span<const int32_t> tokens) {
  const auto width = static_cast<size_t>(engine_.vocab_size());
  const PartScope part(hooks_.observer, StepPart::kSampling);
  const std::vector<absl::StatusOr<SampledToken>> chosen = Choose(ordered, logits, tokens);
  const bool is_alone =
      ordered.step.segments.size() == 1 && ordered.step.segments[0].logit_rows != LogitRows::kAll;
  std::vector<RowResult> results;
  RowCheck check(ordered.rows);
  DraftCount drafted, accepted;
  size_t next_logits = 0;
  for (size_t row = 0; row < ordered.rows.size(); ++row) {
    const RowOwner& owner = ordered.rows[row];
    const size_t logits_row = owner.is_chosen ? 0 : next_logits++;
    const bool counts = check.Counts(row, results);
    RowResult& result = results.emplace_back();
    const auto found = requests_.find(owner.id);
    if (found == requests_.end()) continue;
    Request& request = found->second;
    NoteRow(found->first, is_alone, request);
    if (owner.draft.has_value()) {
      drafted.Add(owner.is_of_model);
      request.answer->CountDrafted(owner.is_of_model);
    }
    if (!counts) continue;
    if (check.rests_on_draft()) {
      const bool is_of_model = ordered.rows[row - 1].is_of_model;
      accepted.Add(is_of_model);
      request.answer->CountAccepted(is_of_model);
    }
    // Behind a token that was not the draft nothing was chosen; but what was taken instead may be.
    // Nor does a row count that could not be chosen while its draft was not taken yet.
    const bool is_missing = check.rests_on_draft() && !chosen[row].ok();
    const bool is_stale =
        !owner.is_chosen && (is_missing || request.answer->MustChooseAnew(chosen[row]));
    TakeToken(request, owner.id,
              is_stale ? ChooseAnew(request, logits, logits_row, width) : chosen[row], result);
  }
  if (drafted.all > 0 && hooks_.on_drafted) hooks_.on_drafted(drafted.all, accepted.all);
  if (drafted.of_model > 0 && hooks_.on_model_drafted) {
    hooks_.on_model_drafted(drafted.of_model, accepted.of_model);
  }
  return results;
}

void ServingLoop::NoteRow(RequestId id, bool is_alone, Request& request) {
  Tell(id, RequestMoment::kFirstToken);
  if (request.clock != nullptr && !request.clock->has_answered()) request.clock->FirstToken(Now());
  request.was_alone = request.was_alone && is_alone;
}

void ServingLoop::Pool(const OrderedStep& ordered, std::span<const float> hidden) {
  const auto width = static_cast<size_t>(engine_.hidden_size());
  for (const HiddenOwner& owner : ordered.hidden) {
    MACRAME_CHECK(hidden.size() >= owner.count * width)
        << hidden.size() << " numbers for " << owner.count << " hidden states";
    const std::span<const float> rows = hidden.first(owner.count * width);
    hidden = hidden.subspan(rows.size());
    const auto found = requests_.find(owner.id);
    if (found == requests_.end()) continue;
    PromptEmbedding& embedding = *found->second.embedding;
    embedding.Add(owner.begin, rows, width);
    if (!owner.is_last) continue;
    Tell(owner.id, RequestMoment::kFirstToken);
    if (found->second.clock != nullptr) found->second.clock->FirstToken(Now());
    End(owner.id, embedding.Finish());
  }
}

std::vector<absl::StatusOr<SampledToken>> ServingLoop::Choose(const OrderedStep& ordered,
                                                              std::span<const float> logits,
                                                              std::span<const int32_t> chosen) {
  std::vector<RowSampling> rows;  // of logits
  uint32_t ahead = 0;             // rows of the same request before
  for (const RowOwner& owner : ordered.rows) {
    if (owner.is_chosen) continue;
    const auto found = requests_.find(owner.id);
    RowSampling& row = rows.emplace_back();
    row.is_wanted = found != requests_.end();
    if (row.is_wanted) row = found->second.answer->SamplingOfNext(ahead);
    row.draft = owner.draft;
    ahead = owner.draft.has_value() ? ahead + 1 : 0;
  }
  MACRAME_CHECK(logits.size() == rows.size() * static_cast<size_t>(engine_.vocab_size()) &&
                chosen.size() == ordered.rows.size() - rows.size())
      << logits.size() << " logits and " << chosen.size() << " tokens for " << ordered.rows.size()
      << " rows";
  std::vector<absl::StatusOr<SampledToken>> sampled = SampleRows(logits, rows, engine_.threads());
  if (chosen.empty()) return sampled;
  std::vector<absl::StatusOr<SampledToken>> all;
  size_t next_sampled = 0, next_chosen = 0;
  for (const RowOwner& owner : ordered.rows) {
    all.push_back(owner.is_chosen ? TokenOf(chosen[next_chosen++])
                                  : std::move(sampled[next_sampled++]));
  }
  return all;
}

absl::StatusOr<SampledToken> ServingLoop::ChooseAnew(const Request& request,
                                                     std::span<const float> logits, size_t row,
                                                     size_t width) {
  return SampleRow(logits.subspan(row * width, width), request.answer->SamplingOfNext(0));
}

void ServingLoop::TakeToken(Request& request, RequestId id,
                            const absl::StatusOr<SampledToken>& chosen, RowResult& result) {
  const auto token = request.answer->Take(chosen);
  if (token.ok() && token->has_value()) {
    result.token = **token;
    return;
  }
  result.finished = true;
  const double step_us = request.was_alone ? request.answer->decode_step_us() : 0;
  End(id, token.status());
  if (step_us > 0 && hooks_.on_decode_step_us) hooks_.on_decode_step_us(step_us);
}

void ServingLoop::MakeModelDrafts() {
  if (hooks_.drafter == nullptr) return;
  const DraftOrder order = scheduler_.PlanModelDrafts();
  if (order.empty()) return;
  auto made = hooks_.drafter->Carry(order);
  // When the results of steps that are under way in a pipeline came meanwhile is not known.
  for (InFlight& step : in_flight_) step.met_a_pass = true;
  for (const DraftOrder::Part& part : order.parts) {
    const auto found = requests_.find(part.id);
    if (found != requests_.end()) found->second.was_alone = false;
  }
  if (made.ok()) return scheduler_.OnModelDrafts(order, *std::move(made));
  scheduler_.StopModelDrafts();
  if (hooks_.on_drafter_failed) hooks_.on_drafter_failed(made.status());
}

absl::StatusOr<bool> ServingLoop::RunStep() {
  DropCancelled();
  Take(scheduler_.Expire(Now()));
  TakeColdEvents();
  if (in_flight_.size() < steps_in_flight_max_) {
    MakeModelDrafts();
    NextStep next = scheduler_.Next(Now());
    Take(next.effects);
    // Now who comes next has a place.
    TellProgress();
    if (!next.cold.empty()) {
      const absl::Status carried = engine_.RunCold(next.cold);
      if (!carried.ok()) {
        EndAll(carried);
        return carried;
      }
    }
    if (next.ordered.has_value()) {
      const absl::Status submitted = Submit(*std::move(next.ordered));
      if (!submitted.ok()) return submitted;
      // Requests may join before the next one.
      if (in_flight_.size() < steps_in_flight_max_) return true;
    }
  }
  if (in_flight_.empty()) {
    TellCounts();
    return false;
  }
  const absl::Status finished = FinishOldest();
  if (!finished.ok()) return finished;
  return true;
}

absl::Status ServingLoop::Submit(OrderedStep ordered) {
  const auto begun = steady_clock::now();
  if (hooks_.observer != nullptr) {
    hooks_.observer->ExpectStep(scheduler_.cost().is_trusted() ? ordered.predicted : Duration(0));
  }
  const absl::Status submitted = engine_.Submit(ordered.step);
  if (!submitted.ok()) {
    EndAll(submitted);
    return submitted;
  }
  if (!runs_ahead_) CountStep(ordered);
  in_flight_.push_back({std::move(ordered), begun, engine_.own_part()});
  return absl::OkStatus();
}

void ServingLoop::CountStep(const OrderedStep& ordered) {
  for (const RequestId id : ordered.owners) {
    const auto found = requests_.find(id);
    if (found == requests_.end() || found->second.clock == nullptr) continue;
    found->second.clock->AddStep(hooks_.waited_in_step ? std::optional(hooks_.waited_in_step())
                                                       : std::nullopt);
  }
}

absl::Status ServingLoop::FinishOldest() {
  const absl::StatusOr<StepResult> result = engine_.Await();
  const auto arrived = steady_clock::now();
  const InFlight oldest = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (!result.ok()) {
    EndAll(result.status());
    return result.status();
  }
  if (runs_ahead_) CountStep(oldest.ordered);
  const std::span<const float> all(result->numbers);
  const auto rows = std::count_if(oldest.ordered.rows.begin(), oldest.ordered.rows.end(),
                                  [](const RowOwner& row) { return !row.is_chosen; });
  const size_t logits = static_cast<size_t>(rows) * static_cast<size_t>(engine_.vocab_size());
  MACRAME_CHECK(all.size() >= logits) << all.size() << " numbers for " << logits << " logits";
  const std::vector<RowResult> results = Sample(oldest.ordered, all.first(logits), result->chosen);
  Pool(oldest.ordered, all.subspan(logits));
  std::optional<Duration> took;
  if (!oldest.met_a_pass) {
    took = steps_in_flight_max_ == 1 ? Elapsed(oldest.begun) : InSlowestStage(oldest, arrived);
  }
  last_arrived_ = arrived;
  Take(scheduler_.OnStepDone(oldest.ordered.number, results, took, Now()));
  TellCounts();
  return absl::OkStatus();
}

// How long a step kept the slowest stage. Results of steps that follow one another come apart by
// that; one that goes alone, or that stood behind none, is on its way for the sum over the stages,
// of which the planner made like parts. This rank's own part is known.
Duration ServingLoop::InSlowestStage(const InFlight& step,
                                     std::chrono::steady_clock::time_point arrived) const {
  const auto whole = std::chrono::duration_cast<Duration>(arrived - step.begun);
  const auto apart = std::chrono::duration_cast<Duration>(arrived - last_arrived_);
  return std::max(std::min(whole / engine_.stages(), apart), step.own);
}

absl::Status ServingLoop::FinishSteps() {
  while (!in_flight_.empty()) {
    const absl::Status finished = FinishOldest();
    if (!finished.ok()) return finished;
  }
  return absl::OkStatus();
}

void ServingLoop::End(RequestId id, const absl::Status& status) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  const auto listener = found->second.listener;
  requests_.erase(found);
  Tell(id, RequestMoment::kEnded);
  listener->OnDone(status);
}

void ServingLoop::EndAll(const absl::Status& status) {
  while (!requests_.empty()) End(requests_.begin()->first, status);
}

void ServingLoop::TellCounts() {
  const ServingCounts counts{static_cast<uint32_t>(scheduler_.running()),
                             static_cast<uint32_t>(scheduler_.waiting()), scheduler_.preempted(),
                             UsedPercent(scheduler_.pool())};
  if (counts == told_) return;
  told_ = counts;
  if (hooks_.on_counts) hooks_.on_counts(counts);
}

}  // namespace macrame::runtime::engine
