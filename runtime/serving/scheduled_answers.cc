// The BatchScheduler's part that has to do with answers that go on, token by token.

#include <algorithm>
#include <utility>

#include "proto/check.h"
#include "runtime/serving/scheduled_sequence.h"

namespace macrame::runtime::engine {
namespace {

// No step is given ahead where it would leave out more than one answer for so many that it has.
constexpr size_t kAheadForEachLeftOut = 4;
// A first draft that is likelier right than this is worth that a step waits for the one before.
constexpr double kAwaitedDraftRate = 0.3;

}  // namespace

uint32_t BatchScheduler::StepsAtOnce() const {
  if (!traits_.chooses_tokens || in_flight_.empty()) return traits_.steps_in_flight_max;
  size_t ahead = 0, left_out = 0;
  for (Sequence* sequence : running_) {
    if (!sequence->IsAnswering() || !sequence->awaits_result || sequence->IsHidden()) continue;
    ++(sequence->chosen_row.has_value() && !ExpectsDraft(*sequence) ? ahead : left_out);
  }
  const bool waits = left_out * kAheadForEachLeftOut > ahead;
  return waits ? 1 : traits_.steps_in_flight_max;
}

// By the tokens that are known: the draft goes on behind the one that the step in flight chooses.
bool BatchScheduler::ExpectsDraft(Sequence& sequence) const {
  if (traits_.draft_tokens_max == 0 || sequence.unknown > 0) return false;
  if (drafts_.is_on()) return true;
  sequence.lookup.Follow(sequence.tokens, sequence.usage.prompt_tokens);
  return sequence.lookup.RateAt(0) > kAwaitedDraftRate &&
         sequence.lookup.Draft(sequence.tokens, 2).size() == 2;
}

bool BatchScheduler::GoesAhead(Sequence& sequence) const {
  const bool is_chosen_now = sequence.chosen_row.has_value() && !in_flight_.empty() &&
                             sequence.last_step == in_flight_.back().number;
  if (!traits_.chooses_tokens || !sequence.awaits_result || !is_chosen_now) return false;
  if (sequence.unknown > 0 || sequence.tokens.size() + 1 >= sequence.tokens_max) return false;
  if (ExpectsDraft(sequence)) return false;
  // There a state is kept, of tokens that are known.
  const bool ends_block = (sequence.fed + 1) % kBlockTokens == 0;
  return !states_.is_on() || !ends_block;
}

std::vector<BatchScheduler::Sequence*> BatchScheduler::ReadyAnswers() const {
  std::vector<Sequence*> ready;
  size_t answering = 0;
  for (Sequence* sequence : running_) {
    if (!sequence->IsAnswering()) continue;
    ++answering;
    if (!sequence->awaits_result || GoesAhead(*sequence)) ready.push_back(sequence);
  }
  if (traits_.chooses_tokens) return ready;
  // With several steps in flight, each has its part of the answers.
  const size_t in_flight_max = traits_.steps_in_flight_max;
  const size_t share = (answering + in_flight_max - 1) / in_flight_max;
  if (ready.size() <= share) return ready;
  std::stable_sort(ready.begin(), ready.end(), [](const Sequence* a, const Sequence* b) {
    return a->last_step < b->last_step;
  });
  ready.resize(share);
  std::vector<Sequence*> by_standing;
  for (Sequence* sequence : running_) {
    if (std::find(ready.begin(), ready.end(), sequence) != ready.end()) {
      by_standing.push_back(sequence);
    }
  }
  return by_standing;
}

void BatchScheduler::PlanDecodes(Plan& plan) {
  const std::vector<Sequence*> ready = ReadyAnswers();
  PlanDrafts(ready);
  // Highest standing first, so whoever is preempted for a block has no part in this step yet.
  for (Sequence* sequence : ready) {
    if (!sequence->is_running || !CoverForDecode(plan, *sequence)) continue;
    if (sequence->awaits_result) {
      sequence->tokens.push_back(TokenOfChosenRow(*sequence->chosen_row));
      sequence->unknown = 1;
    }
    AddSegment(plan, *sequence, 1);
  }
}

bool BatchScheduler::CoverForDecode(Plan& plan, Sequence& sequence) {
  while (sequence.blocks.size() * kBlockTokens <= sequence.fed) {
    if (const std::optional<BlockId> block = Allocate(sequence)) {
      sequence.blocks.push_back(*block);
      continue;
    }
    Sequence* lowest = LowestStanding(plan);
    MACRAME_CHECK(lowest != nullptr) << "nobody to preempt, not even the one that needs a block";
    Preempt(*lowest, plan.effects);
    if (lowest == &sequence) return false;
  }
  return true;
}

void BatchScheduler::AskRows(Plan& plan, Sequence& sequence, Segment& segment, uint32_t end,
                             const std::vector<int32_t>& draft) {
  segment.logit_rows = draft.empty() ? LogitRows::kLast : LogitRows::kAll;
  sequence.awaits_result = true;
  sequence.chosen_row.reset();
  for (uint32_t i = 0; i <= draft.size(); ++i) {
    plan.rows.push_back({sequence.spec.id, end + i});
    if (i < draft.size()) {
      plan.rows.back().draft = draft[i];
      plan.rows.back().is_of_model = sequence.draft_is_of_model;
    }
    plan.orders.push_back(sequence.order);
  }
  if (!sequence.spec.choice.has_value() || !draft.empty()) return;
  segment.logit_rows = LogitRows::kChosen;
  segment.choice = *sequence.spec.choice;
  segment.choice.position += end - sequence.usage.prompt_tokens;
  sequence.chosen_row = plan.chosen_rows++;
  plan.rows.back().is_chosen = true;
}

void BatchScheduler::TakeToken(Sequence& sequence, int32_t token) {
  ++sequence.usage.new_tokens;
  if (sequence.unknown > 0) {  // the next step runs it already, and gives the one behind it
    sequence.tokens.back() = token;
    sequence.unknown = 0;
    return;
  }
  sequence.tokens.push_back(token);
  sequence.awaits_result = false;
  sequence.chosen_row.reset();
}

// The token that was chosen last has been run already.
void BatchScheduler::Accept(Sequence& sequence) {
  ++sequence.usage.accepted_tokens;
  if (!sequence.is_running) return;  // preempted meanwhile: it is run again
  ++sequence.fed;
  sequence.computed_max = std::max(sequence.computed_max, sequence.fed);
  queue_.Served(sequence.spec.key, 1);
}

}  // namespace macrame::runtime::engine
