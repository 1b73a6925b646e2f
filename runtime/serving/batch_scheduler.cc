#include "runtime/serving/batch_scheduler.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/reasons.h"
#include "runtime/serving/scheduled_sequence.h"

namespace macrame::runtime::engine {
namespace {

// Of the step budget: what is planned for, since measured steps scatter.
// Where a step has time for one smallest chunk only, each n-th is for the prompt that came first.
constexpr uint64_t kFirstComeTurn = 4;
constexpr uint32_t kFirstChunks = 2;  // smallest chunks, before any step was measured

// 0: none.
uint64_t SaltNumber(std::string_view salt) {
  if (salt.empty()) return 0;
  uint64_t number = 0;
  const BlockName name = DigestOf(salt);
  std::memcpy(&number, name.data(), sizeof(number));
  return number;
}

}  // namespace

BatchScheduler::BatchScheduler(const BatchTraits& traits)
    : traits_(traits),
      pool_(traits.blocks_total, {.shares = traits.shares_prefixes,
                                  .computes_again = traits.state_snapshots.has_value(),
                                  .keeps_runs = traits.keeps_runs}),
      queue_(traits.aging_interval),
      cost_(kFirstChunks * traits.chunk_tokens_min),
      cold_(traits.cold),
      drafts_(traits.draft_model, traits.draft_tokens_max),
      states_(traits.state_snapshots) {
  MACRAME_CHECK(traits.context_length > 1 &&
                CountBlocks(traits.context_length) <= traits.blocks_total)
      << traits.blocks_total << " KV blocks don't hold one context of " << traits.context_length;
  MACRAME_CHECK(traits.sequences_max > 0 && traits.steps_in_flight_max > 0) << "nothing may run";
  MACRAME_CHECK(traits.chunk_tokens_min > 0 && traits.chunk_tokens_min <= traits.chunk_tokens_max)
      << "chunks of " << traits.chunk_tokens_min << " to " << traits.chunk_tokens_max;
  MACRAME_CHECK(!traits.chooses_tokens || traits.steps_in_flight_max <= 2)
      << "a step's tokens are those of the step before, not of earlier ones";
  MACRAME_CHECK(!states_.is_on() || (traits.draft_tokens_max == 0 && traits.cold.ranks == 0 &&
                                     traits.draft_model.blocks_total == 0))
      << "drafts or blocks on disk for a model with recurrent layers";
  for (uint32_t slot = 0; slot < traits.sequences_max; ++slot) free_slots_.push_back(slot);
  std::make_heap(free_slots_.begin(), free_slots_.end(), std::greater<>());
}

BatchScheduler::~BatchScheduler() = default;

absl::Status BatchScheduler::CheckRequest(const RequestSpec& spec) const {
  MACRAME_CHECK(!sequences_.contains(spec.id)) << "request " << spec.id << " came twice";
  const auto bad = [](std::string_view code, std::string message) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, code, std::move(message));
  };
  if (spec.prompt.empty()) return bad(reasons::kBadRequest, "the prompt has no tokens");
  if (spec.context_length > traits_.context_length) {
    return bad(reasons::kBadRequest,
               absl::StrCat("a context of ", spec.context_length,
                            " tokens; this model is served with ", traits_.context_length));
  }
  const uint32_t context = spec.context_length == 0 ? traits_.context_length : spec.context_length;
  if (spec.prompt.size() + (spec.rows == LogitRows::kLast ? 1 : 0) > context) {
    return bad(reasons::kPromptTooLong, absl::StrCat("the prompt has ", spec.prompt.size(),
                                                     " tokens, the context ", context));
  }
  return absl::OkStatus();
}

absl::StatusOr<Effects> BatchScheduler::Add(RequestSpec spec, MonotonicTime now) {
  if (absl::Status status = CheckRequest(spec); !status.ok()) return status;
  spec.priority = std::clamp(spec.priority, -kPriorityMax, kPriorityMax);
  if (!traits_.chooses_tokens || spec.rows != LogitRows::kLast) spec.choice.reset();
  Effects effects;
  const size_t taken = running_.size() + queue_.size();
  if (taken >= traits_.sequences_max + size_t{traits_.queued_requests_max}) {
    const std::optional<RequestId> displaced = queue_.Displaced(spec.key, spec.priority);
    if (!displaced.has_value()) {
      return ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kQueueFull,
                          absl::StrCat(queue_.size(), " requests wait"));
    }
    End(*Find(*displaced), EndReason::kDisplaced, now, effects);
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->tokens = std::exchange(spec.prompt, {});
  if (spec.context_length == 0) spec.context_length = traits_.context_length;
  const uint64_t answer = spec.max_new_tokens == 0 ? spec.context_length : spec.max_new_tokens;
  sequence->tokens_max = static_cast<uint32_t>(
      std::min<uint64_t>(spec.context_length, sequence->tokens.size() + answer));
  // Its last token is run, too.
  if (spec.rows != LogitRows::kLast) {
    sequence->tokens_max = static_cast<uint32_t>(sequence->tokens.size()) + 1;
  }
  sequence->order = next_order_++;
  sequence->arrived = now;
  sequence->usage.prompt_tokens = static_cast<uint32_t>(sequence->tokens.size());
  sequence->spec = std::move(spec);
  queue_.Arrived(sequence->spec.key);
  queue_.Push({sequence->spec.id, sequence->spec.key, sequence->spec.priority, now, sequence->order,
               false});
  sequences_.emplace(sequence->spec.id, std::move(sequence));
  return effects;
}

BatchScheduler::Sequence* BatchScheduler::Find(RequestId id) {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

Effects BatchScheduler::Cancel(RequestId id, MonotonicTime now) {
  Effects effects;
  if (Sequence* sequence = Find(id)) End(*sequence, EndReason::kCancelled, now, effects);
  return effects;
}

Effects BatchScheduler::Expire(MonotonicTime now) {
  std::vector<Sequence*> expired;
  for (const auto& [id, sequence] : sequences_) {
    const std::optional<MonotonicTime>& limit = sequence->spec.start_by;
    if (limit.has_value() && *limit <= now && !sequence->has_started) {
      expired.push_back(sequence.get());
    }
  }
  std::sort(expired.begin(), expired.end(),
            [](const Sequence* a, const Sequence* b) { return a->order < b->order; });
  Effects effects;
  for (Sequence* sequence : expired) End(*sequence, EndReason::kExpired, now, effects);
  return effects;
}

std::optional<PromptStanding> BatchScheduler::StandingOf(RequestId id) const {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second->IsAnswering()) return std::nullopt;
  const Sequence& sequence = *found->second;
  PromptStanding standing;
  standing.is_queued = !sequence.is_running;
  standing.prompt_tokens = sequence.usage.prompt_tokens;
  standing.computed_tokens = std::min(sequence.fed, standing.prompt_tokens);
  // Before its first step, what it has is what the cache had.
  standing.cached_tokens =
      sequence.has_started ? sequence.usage.cached_tokens : standing.computed_tokens;
  return standing;
}

NextStep BatchScheduler::Next(MonotonicTime now) {
  Plan plan;
  plan.number = next_step_;
  plan.now = now;
  if (in_flight_.size() < StepsAtOnce()) {
    PlanDecodes(plan);
    // What was preempted just now has to see the others go on first.
    if (plan.effects.preempted.empty()) Admit(now);
    PlanPrefills(plan, true);
    if (plan.step.segments.empty()) {  // nothing to see go on, nothing to wait for
      Admit(now);
      PlanPrefills(plan, false);
    }
  }
  return Order(plan);
}

Effects BatchScheduler::OnStepDone(uint64_t number, const std::vector<RowResult>& results,
                                   std::optional<Duration> measured, MonotonicTime now) {
  MACRAME_CHECK(!in_flight_.empty() && in_flight_.front().number == number)
      << "step " << number << " is not the oldest in flight";
  const InFlight done = std::move(in_flight_.front());
  in_flight_.pop_front();
  MACRAME_CHECK(results.size() == done.rows.size())
      << results.size() << " results for " << done.rows.size() << " rows of step " << number;
  if (measured.has_value()) cost_.Learn(done.work, *measured);
  Effects effects;
  RowCheck check(done.rows);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!check.Counts(i, results)) continue;
    Sequence* sequence = Find(done.rows[i].id);
    if (sequence == nullptr || sequence->order != done.orders[i]) continue;  // has ended
    if (check.rests_on_draft()) Accept(*sequence);
    if (done.rows[i].is_of_model && !results[i].finished) {
      drafts_.OnVerified(sequence->spec.id, results[i].token == *done.rows[i].draft);
    }
    TakeToken(*sequence, results[i].token);
    if (results[i].finished) {
      End(*sequence, EndReason::kFinished, now, effects);
    } else if (sequence->tokens.size() >= sequence->tokens_max) {
      End(*sequence, EndReason::kLength, now, effects);
    }
  }
  for (const HiddenOwner& owner : done.hidden) {
    Sequence* sequence = owner.is_last ? Find(owner.id) : nullptr;
    if (sequence == nullptr || sequence->order != owner.order) continue;
    End(*sequence, EndReason::kFinished, now, effects);
  }
  return effects;
}

// Blocks that running prompts were started for and don't have yet.
uint32_t BatchScheduler::PromisedBlocks() const {
  uint32_t promised = 0;
  for (const Sequence* sequence : running_) {
    const auto held = static_cast<uint32_t>(sequence->blocks.size());
    if (sequence->reserved_blocks > held) promised += sequence->reserved_blocks - held;
  }
  return promised;
}

// The prompt's blocks and one more; for one that was preempted, one more for each that runs, so
// that it is not preempted again at once. Never more than it can come to use.
uint32_t BatchScheduler::BlocksToStart(const Sequence& sequence) const {
  const auto spare = sequence.usage.preemptions > 0 ? static_cast<uint32_t>(running_.size()) : 0u;
  return std::min(CountBlocks(sequence.tokens.size()) + 1 + spare, sequence.BlocksMax());
}

bool BatchScheduler::StartIfFits(Sequence& sequence) {
  const uint32_t promised = PromisedBlocks();
  if (pool_.available() <= promised) return false;
  const auto [cached, state] = FindCached(sequence);
  const uint32_t reserved = BlocksToStart(sequence);
  // A cached block that nobody uses was available until now.
  const auto found = static_cast<uint32_t>(cached.size());
  const uint32_t needed = reserved - std::min(reserved, found) + pool_.CountIdle(cached);
  if (needed > pool_.available() - promised) return false;
  // What is left of the room once it has got the rest.
  TakeCached(sequence, cached,
             pool_.available() - promised - (reserved - std::min(reserved, found)));
  states_.Hold(sequence.state, state);
  sequence.fed = found * kBlockTokens;
  sequence.reserved_blocks = reserved;
  sequence.is_running = true;
  sequence.bypassed = 0;
  queue_.Remove(sequence.spec.id);
  const auto standing = [this](const Sequence* s) {
    return std::tuple(s->arrived - s->spec.priority * traits_.aging_interval, s->order);
  };
  const auto at = std::upper_bound(
      running_.begin(), running_.end(), &sequence,
      [&](const Sequence* a, const Sequence* b) { return standing(a) < standing(b); });
  running_.insert(at, &sequence);
  return true;
}

void BatchScheduler::Admit(MonotonicTime now) {
  while (running_.size() < traits_.sequences_max && queue_.size() > 0) {
    if (!AdmitOne(now)) return;
  }
}

bool BatchScheduler::AdmitOne(MonotonicTime now) {
  std::vector<Sequence*> passed;
  for (const RequestId id : queue_.Candidates(now)) {
    Sequence& sequence = *Find(id);
    if (sequence.awaits_result) continue;  // its next token is on the way
    if (StartIfFits(sequence)) {
      for (Sequence* other : passed) ++other->bypassed;
      return true;
    }
    if (sequence.bypassed >= kBypassesMax) return false;
    passed.push_back(&sequence);
  }
  return false;
}

bool BatchScheduler::MayDraft(const std::vector<Sequence*>& ready) const {
  if (traits_.draft_tokens_max == 0 || ready.empty() || queue_.size() > 0) return false;
  if (traits_.draft_rows_max > 0 && ready.size() >= traits_.draft_rows_max) return false;
  // What follows an unknown token can't be guessed, and a prompt has better use for the time.
  if (std::all_of(ready.begin(), ready.end(),
                  [](const Sequence* sequence) { return sequence->awaits_result; })) {
    return false;
  }
  return std::all_of(running_.begin(), running_.end(),
                     [](const Sequence* sequence) { return sequence->IsAnswering(); });
}

StepWork BatchScheduler::WorkOf(const std::vector<Sequence*>& ready) {
  StepWork work;
  for (const Sequence* sequence : ready) {
    ++work.decode_tokens;
    work.attended += StepWork::Attended(sequence->fed, 1);
  }
  return work;
}

uint32_t BatchScheduler::RoomOf(const Sequence& sequence) {
  return sequence.tokens_max - static_cast<uint32_t>(sequence.tokens.size()) - 1;
}

DraftOrder BatchScheduler::PlanModelDrafts() {
  if (!drafts_.is_on() || in_flight_.size() >= StepsAtOnce()) return {};
  const std::vector<Sequence*> ready = ReadyAnswers();
  if (!MayDraft(ready)) return {};
  std::vector<DraftPlanner::Answer> answers;
  for (Sequence* sequence : ready) {
    if (sequence->awaits_result) continue;
    sequence->lookup.Follow(sequence->tokens, sequence->usage.prompt_tokens);
    const bool has_lookup = !sequence->lookup.Draft(sequence->tokens, 1).empty();
    answers.push_back({sequence->spec.id, sequence->tokens, RoomOf(*sequence),
                       has_lookup ? sequence->lookup.RateAt(0) : 0.0});
  }
  DraftPlanner::Base base;
  base.work = WorkOf(ready);
  base.cost = &cost_;
  // Where a step chooses tokens, none is given ahead of drafts.
  base.steps_in_flight = traits_.chooses_tokens ? 1 : traits_.steps_in_flight_max;
  base.rounds = static_cast<double>(base.steps_in_flight) /
                static_cast<double>(std::min<size_t>(running_.size(), base.steps_in_flight));
  base.budget = traits_.step_budget;
  return drafts_.Plan(answers, base);
}

void BatchScheduler::OnModelDrafts(const DraftOrder& order, DraftsMade made) {
  drafts_.OnDrafted(order, std::move(made));
}

void BatchScheduler::ChooseDraft(Sequence& sequence) {
  sequence.lookup.Follow(sequence.tokens, sequence.usage.prompt_tokens);
  const uint32_t most = std::min(traits_.draft_tokens_max, RoomOf(sequence));
  sequence.draft = sequence.lookup.Draft(sequence.tokens, most);
  const auto made = drafts_.DraftOf(sequence.spec.id, sequence.tokens.size());
  sequence.draft_is_of_model = !made.empty();
  if (sequence.draft_is_of_model) sequence.draft.assign(made.begin(), made.end());
  if (sequence.spec.admitted && !sequence.draft.empty()) {
    sequence.draft.resize(sequence.spec.admitted(sequence.draft));
  }
}

void BatchScheduler::PlanDrafts(const std::vector<Sequence*>& ready) {
  if (!MayDraft(ready)) return;
  StepWork work = WorkOf(ready);
  const auto microseconds = [&](const StepWork& of) {
    return static_cast<double>(cost_.Predict(of).count());
  };
  auto expected = static_cast<double>(ready.size());  // tokens from this step
  double cost = microseconds(work);
  const double budget =
      std::max(static_cast<double>(traits_.step_budget.count()) * kPlannedShare, kLongerMax * cost);
  size_t rows = ready.size();
  for (Sequence* sequence : ready) {
    if (sequence->awaits_result) continue;
    ChooseDraft(*sequence);
    if (traits_.draft_rows_max > 0) {
      const size_t left = traits_.draft_rows_max - std::min<size_t>(rows, traits_.draft_rows_max);
      sequence->draft.resize(std::min(sequence->draft.size(), left));
    }
    const bool is_free = sequence->draft_is_of_model && traits_.draft_model.is_unpriced;
    double likely = 1.0;
    for (uint32_t i = 0; i < sequence->draft.size() && !is_free; ++i) {
      likely *= sequence->draft_is_of_model ? drafts_.RateOf(sequence->spec.id)
                                            : sequence->lookup.RateAt(i);
      StepWork more = work;
      ++more.decode_tokens;
      more.attended += StepWork::Attended(sequence->fed + 1 + i, 1);
      const double then = microseconds(more);
      // Worth it as long as tokens come the faster for it.
      if (likely * cost <= expected * (then - cost) || then > budget) {
        sequence->draft.resize(i);
        break;
      }
      work = more;
      cost = then;
      expected += likely;
    }
    rows += sequence->draft.size();
  }
}

// How many of so many tokens behind the next one the sequence has blocks for, without taking them
// from anybody.
uint32_t BatchScheduler::CoverForDraft(Sequence& sequence, uint32_t tokens) {
  const uint32_t spared = PromisedBlocks() + static_cast<uint32_t>(running_.size());
  while (sequence.blocks.size() * kBlockTokens < sequence.fed + 1 + tokens &&
         pool_.available() > spared) {
    sequence.blocks.push_back(*Allocate(sequence));
  }
  const auto covered = static_cast<uint32_t>(sequence.blocks.size() * kBlockTokens);
  return std::min(tokens, covered - sequence.fed - 1);
}

// The running sequence of lowest standing that has no part in the plan.
BatchScheduler::Sequence* BatchScheduler::LowestStanding(const Plan& plan) {
  for (auto at = running_.rbegin(); at != running_.rend(); ++at) {
    if (!plan.Has(**at)) return *at;
  }
  return nullptr;
}

uint32_t BatchScheduler::CoverForPrefill(Plan& plan, Sequence& sequence, uint32_t tokens) {
  while (sequence.blocks.size() * kBlockTokens < sequence.fed + tokens) {
    if (const std::optional<BlockId> block = Allocate(sequence)) {
      sequence.blocks.push_back(*block);
      continue;
    }
    // Running answers took what was promised. Those that stand lower give way; else it waits.
    Sequence* lowest = LowestStanding(plan);
    if (lowest == nullptr || lowest == &sequence ||
        std::find(running_.begin(), running_.end(), lowest) <
            std::find(running_.begin(), running_.end(), &sequence)) {
      break;
    }
    Preempt(*lowest, plan.effects);
  }
  const auto covered = static_cast<uint32_t>(sequence.blocks.size() * kBlockTokens);
  return std::min(tokens, covered - sequence.fed);
}

bool BatchScheduler::AwaitsCold(Plan& plan, Sequence& sequence) {
  const auto computing = [&](uint32_t blocks) {
    const uint32_t tokens = blocks * kBlockTokens;
    return cost_.Predict({0, tokens, StepWork::Attended(sequence.fed, tokens)});
  };
  while (true) {
    ColdTier::Prompt prompt;
    prompt.salt = sequence.spec.salt;
    prompt.tokens = sequence.tokens;
    prompt.blocks_held = static_cast<uint32_t>(sequence.blocks.size());
    prompt.blocks_max = static_cast<uint32_t>(BlockPool::PrefixBlocksMax(sequence.tokens.size()));
    uint32_t came = 0;
    const ColdTier::Next next = cold_.Seek(sequence.cold, prompt, plan.now, computing, &came);
    if (next != ColdTier::Next::kTake) return next == ColdTier::Next::kWait;
    const uint32_t held = prompt.blocks_held;
    const uint32_t covered = CoverForPrefill(plan, sequence, came * kBlockTokens);
    cold_.Take(sequence.cold, {sequence.blocks.begin() + held, sequence.blocks.end()});
    sequence.fed += covered;
    sequence.cold_blocks += covered / kBlockTokens;
    // They are filled before the step that comes next, and whoever wants them may have them in it.
    pool_.Publish(sequence.spec.salt, sequence.tokens, sequence.blocks, sequence.fed / kBlockTokens,
                  sequence.published);
    if (covered == 0) return false;
  }
}

// The blocks under which its content is cached, which need not be its own.
void BatchScheduler::OfferCold(const Sequence& sequence, MonotonicTime now) {
  if (!sequence.UsesDisk(traits_) || sequence.IsHidden()) return;
  const std::vector<BlockId> cached =
      pool_.index().Find(sequence.spec.salt, sequence.Known(), sequence.KnownBlocks());
  for (uint32_t depth = 0; depth < cached.size(); ++depth) {
    cold_.Offer(pool_.index(), cached[depth], depth, now);
  }
}

// Whether the block that it would compute first is about to be cached by another prompt.
bool BatchScheduler::ComputedByAnother(const Sequence& sequence) const {
  if (!traits_.shares_prefixes) return false;
  const size_t block = sequence.blocks.size();
  if (!sequence.TakesCache()) return false;
  if (block >= BlockPool::PrefixBlocksMax(sequence.tokens.size())) return false;
  if (states_.is_on()) return AwaitsState(sequence);
  const size_t end = (block + 1) * kBlockTokens;
  return std::any_of(running_.begin(), running_.end(), [&](const Sequence* other) {
    return other != &sequence && other->slot.has_value() && other->published.blocks <= block &&
           other->tokens.size() >= end && other->spec.salt == sequence.spec.salt &&
           std::equal(other->tokens.begin(),
                      other->tokens.begin() + static_cast<std::ptrdiff_t>(end),
                      sequence.tokens.begin());
  });
}

void BatchScheduler::PlanPrefills(Plan& plan, bool waits_for_cache) {
  std::vector<Sequence*> prompts;  // highest standing first
  const std::vector<Sequence*> running = running_;
  for (Sequence* sequence : running) {
    if (!sequence->is_running || sequence->IsAnswering() || plan.Has(*sequence)) continue;
    if (!sequence->slot.has_value() && sequence->TakesCache()) {
      TakeMoreOfCache(*sequence);
      if (states_.is_on()) AskForStates(*sequence);
      if (sequence->UsesDisk(traits_) && AwaitsCold(plan, *sequence)) continue;
      if (waits_for_cache && ComputedByAnother(*sequence)) continue;
    }
    prompts.push_back(sequence);
  }
  if (prompts.empty()) return;
  Sequence* first_come = prompts.front();
  std::stable_sort(prompts.begin(), prompts.end(), [](const Sequence* a, const Sequence* b) {
    return std::tuple(-a->spec.priority, a->Left()) < std::tuple(-b->spec.priority, b->Left());
  });
  uint32_t share = 0;
  if (prompts.front() != first_come) {
    const uint32_t fitting = FittingTokens(plan, *first_come);
    if (fitting >= 2 * traits_.chunk_tokens_min) {
      share = std::max(traits_.chunk_tokens_min,
                       static_cast<uint32_t>(fitting * traits_.first_come_share));
      share = std::min(share, first_come->Left());
      plan.reserved = {0, share, StepWork::Attended(first_come->fed, share)};
    } else if (plan.number % kFirstComeTurn == 0) {
      AddChunk(plan, *first_come, 0, waits_for_cache);
    }
  }
  for (Sequence* sequence : prompts) {
    if (share > 0 && sequence == first_come) continue;
    AddChunk(plan, *sequence, 0, waits_for_cache);
  }
  plan.reserved = {};
  if (share > 0) AddChunk(plan, *first_come, share, waits_for_cache);
}

bool BatchScheduler::IsAlone() const { return running_.size() == 1 && queue_.size() == 0; }

uint32_t BatchScheduler::FittingTokens(const Plan& plan, const Sequence& sequence) const {
  StepWork work = plan.work;
  work.prefill_tokens += plan.reserved.prefill_tokens;
  work.attended += plan.reserved.attended;
  const bool is_large = traits_.chunk_tokens_alone > traits_.chunk_tokens_max && IsAlone();
  const uint32_t most = is_large ? traits_.chunk_tokens_alone : traits_.chunk_tokens_max;
  if (work.prefill_tokens >= most) return 0;
  const Duration whole = is_large ? traits_.step_budget_alone : traits_.step_budget;
  const auto budget = std::chrono::duration_cast<Duration>(whole * kPlannedShare);
  return cost_.TokensWithin(work, sequence.fed, budget, most - work.prefill_tokens);
}

void BatchScheduler::AddChunk(Plan& plan, Sequence& sequence, uint32_t tokens_min,
                              bool waits_for_cache) {
  if (!sequence.is_running || plan.Has(sequence)) return;
  if (waits_for_cache && !sequence.slot.has_value() && ComputedByAnother(sequence)) return;
  uint32_t tokens = std::max(std::min(FittingTokens(plan, sequence), sequence.Left()), tokens_min);
  const uint32_t smallest = std::min(sequence.Left(), traits_.chunk_tokens_min);
  if (tokens < smallest) {
    if (plan.work.prefill_tokens + plan.reserved.prefill_tokens > 0) return;
    tokens = smallest;
  }
  if (states_.is_on()) {
    if (!sequence.slot.has_value()) PlanCuts(sequence);
    tokens = StateCache::ToNextCut(sequence.state, sequence.fed, tokens);
  }
  tokens = CoverForPrefill(plan, sequence, tokens);
  if (tokens > 0) AddSegment(plan, sequence, tokens);
}

void BatchScheduler::AddSegment(Plan& plan, Sequence& sequence, uint32_t tokens) {
  Segment segment;
  if (!traits_.shares_prefixes) segment.salt = SaltNumber(sequence.spec.salt);
  if (!sequence.slot.has_value()) segment.state_from = OpenSlot(plan, sequence);
  const uint32_t begin = sequence.fed;
  const uint32_t end = begin + tokens;
  std::vector<int32_t> draft = std::exchange(sequence.draft, {});
  draft.resize(CoverForDraft(sequence, static_cast<uint32_t>(draft.size())));
  segment.slot = *sequence.slot;
  segment.begin = begin;
  segment.tokens.assign(sequence.tokens.begin() + begin, sequence.tokens.begin() + end);
  segment.tokens.insert(segment.tokens.end(), draft.begin(), draft.end());
  segment.new_blocks.assign(sequence.blocks.begin() + sequence.told_blocks, sequence.blocks.end());
  sequence.told_blocks = static_cast<uint32_t>(sequence.blocks.size());
  if (sequence.IsHidden()) {
    AskHidden(plan, sequence, segment);
  } else if (end == sequence.tokens.size()) {
    AskRows(plan, sequence, segment, end, draft);
  }
  segment.state_to = KeepState(sequence, end, segment.state_from);
  plan.step.segments.push_back(std::move(segment));
  const auto drafted = static_cast<uint32_t>(draft.size());
  (tokens == 1 ? plan.work.decode_tokens : plan.work.prefill_tokens) += tokens + drafted;
  plan.work.attended += StepWork::Attended(begin, tokens + drafted);
  sequence.usage.draft_tokens += drafted;
  const uint32_t fresh = end - std::min(end, std::max(begin, sequence.computed_max));
  sequence.usage.recomputed_tokens += tokens - fresh;
  preempted_.recomputed_tokens += tokens - fresh;
  sequence.computed_max = std::max(sequence.computed_max, end);
  queue_.Served(sequence.spec.key, fresh);
  sequence.fed = end;
  sequence.last_step = plan.number;
  plan.planned.push_back(&sequence);
}

void BatchScheduler::AskHidden(Plan& plan, Sequence& sequence, Segment& segment) {
  const auto count = static_cast<uint32_t>(segment.tokens.size());
  const uint32_t end = segment.begin + count;
  const bool is_last = end == sequence.tokens.size();
  sequence.awaits_result = is_last;
  if (!is_last && sequence.spec.rows == LogitRows::kHiddenLast) return;
  segment.logit_rows = sequence.spec.rows;
  const uint32_t wanted = sequence.spec.rows == LogitRows::kHiddenLast ? 1 : count;
  plan.hidden.push_back({sequence.spec.id, end - wanted, wanted, is_last, sequence.order});
}

// Where its state comes from.
SnapshotId BatchScheduler::OpenSlot(Plan& plan, Sequence& sequence) {
  MACRAME_CHECK(!free_slots_.empty()) << "more sequences run than may";
  std::pop_heap(free_slots_.begin(), free_slots_.end(), std::greater<>());
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  OrderCopies(plan, sequence);
  const SnapshotId state_from = OpenState(sequence);
  const RequestId id = sequence.spec.id;
  if (sequence.has_started) {
    plan.effects.resumed.push_back(id);
    return state_from;
  }
  sequence.has_started = true;
  sequence.usage.cached_tokens = sequence.fed;
  sequence.usage.cold_tokens = sequence.cold_blocks * kBlockTokens;
  sequence.computed_max = sequence.fed;
  sequence.usage.queued = plan.now - sequence.arrived;
  plan.effects.started.push_back({id, sequence.fed, sequence.usage.cold_tokens,
                                  sequence.usage.queued,
                                  sequence.IsHidden() ? PrefixMiss() : ExplainMiss(sequence)});
  return state_from;
}

NextStep BatchScheduler::Order(Plan& plan) {
  NextStep next;
  next.effects = std::move(plan.effects);
  next.cold = cold_.TakeOrders(pool_.index());
  if (plan.step.segments.empty()) return next;  // and no state was read or written
  // Later steps may use these blocks: all ranks run the steps in order.
  for (Sequence* sequence : plan.planned) {
    pool_.Publish(sequence->spec.salt, sequence->Known(), sequence->blocks, sequence->KnownBlocks(),
                  sequence->published);
    states_.Attach(sequence->state, sequence->published.node);
  }
  states_.EndStep();
  plan.step.closed_slots = std::exchange(closed_slots_, {});
  in_flight_.push_back({plan.number, plan.work, plan.rows, std::move(plan.orders), plan.hidden});
  ++next_step_;
  next.ordered = OrderedStep{plan.number, std::move(plan.step), std::move(plan.rows),
                             std::move(plan.hidden), cost_.Predict(plan.work)};
  for (const Sequence* sequence : plan.planned) next.ordered->owners.push_back(sequence->spec.id);
  return next;
}

void BatchScheduler::Preempt(Sequence& sequence, Effects& effects) {
  LeaveBlocks(sequence);
  if (sequence.has_started) {
    ++sequence.usage.preemptions;
    ++preempted_.preemptions;
    effects.preempted.push_back(sequence.spec.id);
  }
  queue_.Push({sequence.spec.id, sequence.spec.key, sequence.spec.priority, sequence.arrived,
               sequence.order, true});
}

// Out of the running ones. The end of the table is released first: it gives way first.
void BatchScheduler::LeaveBlocks(Sequence& sequence) {
  states_.Leave(sequence.state);
  pool_.TakeOverIdle(sequence.spec.salt, sequence.Known(), sequence.blocks, sequence.published);
  for (auto at = sequence.blocks.rbegin(); at != sequence.blocks.rend(); ++at) pool_.Release(*at);
  for (const BlockCopy& copy : sequence.copies) pool_.Release(copy.from);
  sequence.copies.clear();
  sequence.blocks.clear();
  sequence.shared_blocks = 0;
  sequence.told_blocks = 0;
  sequence.fed = 0;
  sequence.draft.clear();
  sequence.chosen_row.reset();
  sequence.published = {};
  sequence.cold_blocks = 0;
  cold_.Leave(sequence.cold);
  sequence.is_running = false;
  if (sequence.slot.has_value()) {
    closed_slots_.push_back(*sequence.slot);
    free_slots_.push_back(*sequence.slot);
    std::push_heap(free_slots_.begin(), free_slots_.end(), std::greater<>());
    sequence.slot.reset();
  }
  std::erase(running_, &sequence);
}

void BatchScheduler::End(Sequence& sequence, EndReason reason, MonotonicTime now,
                         Effects& effects) {
  if (!sequence.has_started) sequence.usage.queued = now - sequence.arrived;
  if (sequence.is_running) {
    OfferCold(sequence, now);
    LeaveBlocks(sequence);
  } else {
    queue_.Remove(sequence.spec.id);
  }
  queue_.Left(sequence.spec.key);
  const RequestId id = sequence.spec.id;
  drafts_.Leave(id);
  effects.ended.push_back({id, reason, sequence.usage});
  sequences_.erase(id);
}

void BatchScheduler::CheckInvariants() const {
  std::vector<std::span<const BlockId>> tables;
  std::vector<const StateCache::Member*> states;
  for (const auto& [id, sequence] : sequences_) {
    states.push_back(&sequence->state);
    if (sequence->unknown == 0) continue;
    MACRAME_CHECK(sequence->unknown == 1 && IsChosenRow(sequence->tokens.back()) &&
                  sequence->is_running && sequence->awaits_result && in_flight_.size() == 2)
        << "request " << id << " holds a place for a token that no step chooses";
  }
  states_.CheckInvariants(states);
  std::vector<bool> slots(traits_.sequences_max, false);
  for (const uint32_t slot : free_slots_) {
    MACRAME_CHECK(!slots.at(slot)) << "slot " << slot << " is free twice";
    slots[slot] = true;
  }
  for (const Sequence* sequence : running_) {
    tables.emplace_back(sequence->blocks);
    for (const BlockCopy& copy : sequence->copies) tables.emplace_back(&copy.from, 1);
    MACRAME_CHECK(sequence->is_running && sequence->fed <= sequence->tokens.size());
    MACRAME_CHECK(sequence->blocks.size() * kBlockTokens >= sequence->fed)
        << "tokens of request " << sequence->spec.id << " outside its blocks";
    MACRAME_CHECK(sequence->blocks.size() <= sequence->BlocksMax())
        << "request " << sequence->spec.id << " has more blocks than it can use";
    MACRAME_CHECK(sequence->published.blocks * kBlockTokens <= sequence->Known().size())
        << "request " << sequence->spec.id << " offers tokens that are not known";
    if (!sequence->slot.has_value()) continue;
    MACRAME_CHECK(!slots.at(*sequence->slot)) << "slot " << *sequence->slot << " of two";
    slots[*sequence->slot] = true;
  }
  pool_.CheckInvariants(tables);
  drafts_.CheckInvariants();
  MACRAME_CHECK(running_.size() <= traits_.sequences_max);
  MACRAME_CHECK(running_.size() + queue_.size() == sequences_.size()) << "a request is lost";
  MACRAME_CHECK(in_flight_.size() <= traits_.steps_in_flight_max);
}

}  // namespace macrame::runtime::engine
