#include "runtime/serving/draft_planner.h"

#include <algorithm>
#include <utility>

#include "proto/check.h"

namespace macrame::runtime::engine {
namespace {

// One step of so many goes without: else what a step costs would be mixed up with what rows cost.
// In a pipeline as many in a row as are in flight, so that no pass falls into the first of them.
constexpr uint64_t kPlainTurn = 6;
constexpr double kGainMin = 1.03;            // speeds are measured no better than this
constexpr double kOtherRateEnough = 0.35;    // of a draft that costs nothing to make
constexpr double kTryRate = 0.9;             // what a try hopes for
constexpr uint32_t kTryTokens = 4;           // of a try
constexpr uint32_t kFirstChunkTokens = 32;   // before any pass was measured
constexpr uint32_t kChunkTokensMin = 16;     // of an order's first chunk, unless less is lacking
constexpr double kUsualRateGain = 1.0 / 64;  // of the newest draft of any answer

uint32_t BlocksFor(size_t tokens) {
  return static_cast<uint32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

double Microseconds(const StepCost& cost, const StepWork& work) {
  return static_cast<double>(cost.Predict(work).count());
}

}  // namespace

DraftPlanner::DraftPlanner(const DraftModelTraits& traits, uint32_t draft_tokens_max)
    : traits_(traits),
      draft_tokens_max_(draft_tokens_max),
      cost_(kFirstChunkTokens),
      chunk_cost_(kFirstChunkTokens) {
  for (uint32_t block = traits.blocks_total; block-- > 0;) {
    free_blocks_.push_back(static_cast<int32_t>(block));
  }
}

void DraftPlanner::TurnOff() {
  traits_.blocks_total = 0;
  states_.clear();
  free_blocks_.clear();
}

double DraftPlanner::PassUs(const StepWork& work) const { return Microseconds(cost_, work); }

DraftPlanner::State& DraftPlanner::StateOf(const Answer& answer) {
  std::unique_ptr<State>& state = states_[answer.id];
  if (state == nullptr) {
    state = std::make_unique<State>(
        State{DraftGate(usual_rate_, static_cast<uint32_t>(answer.tokens.size()))});
  }
  return *state;
}

bool DraftPlanner::CanRead(const Answer& answer, State& state) const {
  const auto lacking = answer.tokens.subspan(state.sure);
  return answer.tokens.size() <= traits_.positions_max &&
         std::all_of(lacking.begin(), lacking.end(),
                     [&](int32_t token) { return token < traits_.vocab_size; });
}

// Of what was run behind the sequence, the tokens that were then chosen count.
void DraftPlanner::Settle(const Answer& answer, State& state) const {
  for (const int32_t token : state.tail) {
    if (state.sure >= answer.tokens.size() || answer.tokens[state.sure] != token) break;
    ++state.sure;
  }
  state.tail.clear();
}

std::vector<DraftPlanner::Member> DraftPlanner::Members(const std::vector<Answer>& answers) {
  std::vector<Member> members;
  for (const Answer& answer : answers) {
    State& state = StateOf(answer);
    const auto length = static_cast<uint32_t>(answer.tokens.size());
    if (state.draft_at == length && !state.draft.empty()) continue;  // it has one
    if (answer.room == 0) continue;
    if (answer.other_rate >= std::min(state.gate.rate(), kOtherRateEnough)) continue;
    Settle(answer, state);
    if (!CanRead(answer, state)) continue;
    Member member;
    member.answer = &answer;
    member.state = &state;
    // Its last token is run again if need be: what follows it is asked for.
    member.lag = std::max(1u, length - state.sure);
    member.most = std::min({draft_tokens_max_, answer.room, traits_.positions_max - length + 1});
    member.rate = state.gate.rate();
    members.push_back(member);
  }
  return members;
}

DraftPlanner::Sum DraftPlanner::Reckon(std::vector<Member*>& members, const Base& base) const {
  const StepCost& cost = *base.cost;
  StepWork step = base.work;
  const double budget_us = std::max(static_cast<double>(base.budget.count()) * kPlannedShare,
                                    kLongerMax * Microseconds(cost, step));
  Sum now{static_cast<double>(step.decode_tokens), base.rounds * Microseconds(cost, step)};
  Sum best = now;
  uint32_t best_depth = 0;
  for (Member* member : members) member->count = traits_.is_unpriced ? member->most : 0;
  if (traits_.is_unpriced || now.us <= 0.0) return best;  // or nothing is known of steps
  std::vector<double> likely(members.size(), 1.0);
  for (uint32_t depth = 1; depth <= draft_tokens_max_; ++depth) {
    StepWork pass;
    for (size_t i = 0; i < members.size(); ++i) {
      Member& member = *members[i];
      if (member.most < depth) continue;
      likely[i] *= member.rate;
      const auto position = static_cast<uint32_t>(member.answer->tokens.size()) + depth - 1;
      StepWork more = step;
      ++more.decode_tokens;
      more.attended += StepWork::Attended(position, 1);
      const double row_us = base.rounds * (Microseconds(cost, more) - Microseconds(cost, step));
      if (likely[i] * now.us <= now.tokens * row_us || Microseconds(cost, more) > budget_us) {
        member.most = depth - 1;
        continue;
      }
      step = more;
      now.tokens += likely[i];
      now.us += row_us;
      const uint32_t rows = depth == 1 ? member.lag : 1;
      pass.decode_tokens += rows;
      pass.attended += StepWork::Attended(position - rows, rows);
    }
    if (pass.decode_tokens == 0) break;
    now.us += PassUs(pass);
    if (now.Rate() <= best.Rate()) continue;
    best = now;
    best_depth = depth;
  }
  const double without =
      static_cast<double>(base.work.decode_tokens) / (base.rounds * Microseconds(cost, base.work));
  if (best.Rate() < kGainMin * without) return best;
  for (Member* member : members) member->count = std::min(member->most, best_depth);
  return best;
}

// `likely`: how likely it is to be as right as the member's rate says.
bool DraftPlanner::PaysToCatchUp(Member& member, const Base& base, double likely) const {
  Member alone = member;
  alone.lag = 1;
  std::vector<Member*> one = {&alone};
  const Sum with = Reckon(one, base);
  if (alone.count == 0 || traits_.is_unpriced) return alone.count > 0;
  const double before = static_cast<double>(base.work.decode_tokens);
  const double us_a_token = base.rounds * Microseconds(*base.cost, base.work) / before;
  const double saved_us = with.tokens * us_a_token - with.us;
  const double own_tokens = 1.0 + with.tokens - before;
  const double steps = std::min(member.answer->room, kDraftOutlookTokens) / own_tokens;
  const uint32_t from = member.state->sure;
  const StepWork work{0, member.lag, StepWork::Attended(from, member.lag)};
  return likely * steps * saved_us > Microseconds(chunk_cost_, work);
}

// The tokens that it lacks, as many as there is time for beside what the order has already.
void DraftPlanner::PlanChunk(Member& member, const Base& base, DraftOrder& order) {
  StepWork work;
  for (const DraftOrder::Part& part : order.parts) {
    const auto tokens = static_cast<uint32_t>(part.tokens.size());
    (part.count == 0 ? work.prefill_tokens : work.decode_tokens) += tokens;
    work.attended += StepWork::Attended(part.begin, tokens);
  }
  const uint32_t used = work.prefill_tokens + work.decode_tokens;
  if (used >= kDraftChunkTokens) return;
  const uint32_t most = std::min(kDraftChunkTokens - used, member.lag);
  const uint32_t fitting =
      chunk_cost_.TokensWithin(work, member.state->sure, base.budget / 2, most);
  const uint32_t least = std::min(kChunkTokensMin, most);
  if (fitting < least && work.prefill_tokens > 0) return;  // its turn comes
  member.count = 0;
  AddPart(member, std::max(fitting, least), order);
}

void DraftPlanner::Release(State& state) {
  for (auto at = state.blocks.rbegin(); at != state.blocks.rend(); ++at) {
    free_blocks_.push_back(*at);
  }
  state.blocks.clear();
  state.told = 0;
  if (state.slot.has_value()) {
    closed_slots_.push_back(*state.slot);
    free_slots_.push_back(*state.slot);
    state.slot.reset();
  }
  state.sure = 0;
  state.tail.clear();
}

// Its answer is over for now, or drafts for it don't pay: between two turns of an answer that runs
// are as many orders as steps are in flight, and as many that go without drafts.
bool DraftPlanner::IsOld(const State& state) const {
  return state.used + 2 * static_cast<uint64_t>(steps_in_flight_) < orders_;
}

// Whether the state has blocks for so many positions, after taking what it can get from answers
// that have had no turn for long. Where they don't suffice, its own go to others: an answer that
// can't go on drafting would only keep them from drafting.
bool DraftPlanner::Cover(State& state, uint32_t positions) {
  while (state.blocks.size() < BlocksFor(positions)) {
    if (!free_blocks_.empty()) {
      state.blocks.push_back(free_blocks_.back());
      free_blocks_.pop_back();
      continue;
    }
    State* oldest = nullptr;
    for (const auto& [id, other] : states_) {
      if (other.get() == &state || other->blocks.empty() || !IsOld(*other)) continue;
      if (oldest == nullptr || other->used < oldest->used) oldest = other.get();
    }
    if (oldest == nullptr) {
      Release(state);
      return false;
    }
    Release(*oldest);
  }
  return true;
}

bool DraftPlanner::AddPart(Member& member, uint32_t tokens, DraftOrder& order) {
  State& state = *member.state;
  const auto length = static_cast<uint32_t>(member.answer->tokens.size());
  const uint32_t begin = std::min(state.sure, length - 1);
  const uint32_t drafted = member.count == 0 ? 0 : member.count - 1;
  if (member.count > 0 && begin + tokens != length) return false;  // the slot lacks what is between
  // A prompt that is begun must come to its end, and to a draft behind it.
  const uint32_t end = begin + tokens + drafted;
  const uint32_t whole = std::min(length + draft_tokens_max_ + kBlockTokens, traits_.positions_max);
  if (!Cover(state, member.count > 0 ? end : std::max(end, whole))) return false;
  if (!state.slot.has_value()) {
    if (free_slots_.empty()) free_slots_.push_back(slots_++);
    state.slot = free_slots_.back();
    free_slots_.pop_back();
  }
  state.used = orders_;
  state.draft_rate = member.rate;
  DraftOrder::Part part;
  part.id = member.answer->id;
  part.slot = *state.slot;
  part.begin = begin;
  const auto from = member.answer->tokens.begin() + begin;
  part.tokens.assign(from, from + tokens);
  part.count = member.count;
  part.blocks_before = state.told;
  state.told = std::max(state.told, BlocksFor(end));
  part.blocks.assign(state.blocks.begin() + part.blocks_before, state.blocks.begin() + state.told);
  order.parts.push_back(std::move(part));
  return true;
}

void DraftPlanner::PlanTry(Member& member, const Base& base, DraftOrder& order) {
  const auto length = static_cast<uint32_t>(member.answer->tokens.size());
  member.rate = kTryRate;
  member.most = std::min(
      {draft_tokens_max_, member.answer->room, traits_.positions_max - length + 1, kTryTokens});
  if (member.lag > kDraftLagMax) {
    // A long prompt is not run for a mere hope.
    if (member.lag <= kDraftChunkTokens || PaysToCatchUp(member, base, usual_rate_)) {
      PlanChunk(member, base, order);
    }
    return;
  }
  member.count = member.most;
  if (AddPart(member, member.lag, order)) member.state->gate.OnTry(length);
}

DraftOrder DraftPlanner::Plan(const std::vector<Answer>& answers, const Base& base) {
  DraftOrder order;
  if (!is_on() || base.work.decode_tokens == 0) return order;
  steps_in_flight_ = base.steps_in_flight;
  ++orders_;
  if (orders_ / steps_in_flight_ % kPlainTurn == 0 && !traits_.is_unpriced) return order;
  std::vector<Member> members = Members(answers);
  std::vector<Member*> ready;
  for (Member& member : members) {
    if (member.lag <= kDraftLagMax && member.rate >= kDraftRateMin) ready.push_back(&member);
  }
  Reckon(ready, base);
  // Before any part takes blocks: not from one that comes later in this very order.
  for (Member& member : members) {
    if (member.rate >= kDraftRateMin) member.state->used = orders_;
  }
  for (Member& member : members) {
    const auto length = static_cast<uint32_t>(member.answer->tokens.size());
    // Anew: it may have lost its blocks to one before it.
    member.lag = std::max(1u, length - member.state->sure);
    const bool is_ready = member.lag <= kDraftLagMax;
    const bool is_good = member.rate >= kDraftRateMin;
    if (is_ready && member.count > 0) {
      if (AddPart(member, member.lag, order)) member.state->gate.OnPaid(length);
    } else if (!is_ready && is_good && PaysToCatchUp(member, base, 1.0)) {
      PlanChunk(member, base, order);
    } else if (member.state->gate.MayTry(length)) {
      PlanTry(member, base, order);
    }
  }
  if (!order.empty()) order.closed_slots = std::exchange(closed_slots_, {});
  return order;
}

void DraftPlanner::OnDrafted(const DraftOrder& order, DraftsMade made) {
  MACRAME_CHECK(made.tokens.size() == order.parts.size())
      << made.tokens.size() << " drafts of " << order.parts.size();
  for (const DraftsMade::Pass& pass : made.passes) {
    (pass.work.prefill_tokens > 0 ? chunk_cost_ : cost_).Learn(pass.work, pass.took);
  }
  for (size_t i = 0; i < order.parts.size(); ++i) {
    const DraftOrder::Part& part = order.parts[i];
    const auto found = states_.find(part.id);
    if (found == states_.end()) continue;
    State& state = *found->second;
    state.sure = part.begin + static_cast<uint32_t>(part.tokens.size());
    state.draft = std::move(made.tokens[i]);
    state.draft_at = state.sure;
    state.tail.assign(state.draft.begin(), state.draft.end() - (state.draft.empty() ? 0 : 1));
  }
}

std::span<const int32_t> DraftPlanner::DraftOf(RequestId id, size_t tokens) const {
  const auto found = states_.find(id);
  if (found == states_.end() || found->second->draft_at != tokens) return {};
  return found->second->draft;
}

double DraftPlanner::RateOf(RequestId id) const {
  const auto found = states_.find(id);
  return found == states_.end() ? 0.0 : found->second->draft_rate;
}

void DraftPlanner::OnVerified(RequestId id, bool is_right) {
  usual_rate_ += kUsualRateGain * ((is_right ? 1.0 : 0.0) - usual_rate_);
  const auto found = states_.find(id);
  if (found != states_.end()) found->second->gate.OnVerified(is_right);
}

void DraftPlanner::Leave(RequestId id) {
  const auto found = states_.find(id);
  if (found == states_.end()) return;
  Release(*found->second);
  states_.erase(found);
}

void DraftPlanner::CheckInvariants() const {
  std::vector<bool> seen(traits_.blocks_total, false);
  const auto take = [&](int32_t block) {
    MACRAME_CHECK(!seen.at(static_cast<size_t>(block))) << "draft block " << block << " of two";
    seen[static_cast<size_t>(block)] = true;
  };
  for (const int32_t block : free_blocks_) take(block);
  for (const auto& [id, state] : states_) {
    for (const int32_t block : state->blocks) take(block);
    MACRAME_CHECK(state->blocks.size() >= state->told) << "of request " << id;
    MACRAME_CHECK(state->told * kBlockTokens >= state->sure) << "of request " << id;
  }
  MACRAME_CHECK(std::all_of(seen.begin(), seen.end(), [](bool one) { return one; }))
      << "a draft block is lost";
}

}  // namespace macrame::runtime::engine
