#include "runtime/serving/sampling/structured_content.h"

#include <algorithm>
#include <utility>

namespace macrame::runtime::engine {
namespace {

bool Has(const std::vector<int32_t>& tokens, int32_t token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

}  // namespace

StructuredContent::StructuredContent(const StructurePlan& plan, bool begins_with_content)
    : constraint_(plan.constraint == nullptr ? nullptr : plan.constraint->Fork()),
      plan_(plan),
      state_(begins_with_content && !plan.is_of_call ? State::kOpening : State::kWaiting) {}

std::vector<int32_t> StructuredContent::Others(State state) const {
  std::vector<int32_t> others;
  if (state != State::kOpening && state != State::kBehind && state != State::kBehindLine) {
    return others;
  }
  others = plan_.call_openers;
  if (state == State::kBehind) {
    others.insert(others.end(), plan_.line_ends.begin(), plan_.line_ends.end());
  } else if (state == State::kOpening && plan_.think_open.has_value()) {
    others.push_back(*plan_.think_open);
  }
  return others;
}

std::optional<StructuredContent::State> StructuredContent::After(State state, int32_t token) const {
  if (!Has(Others(state), token)) return std::nullopt;
  if (Has(plan_.call_openers, token)) return State::kFree;
  return state == State::kOpening ? State::kWaiting : State::kBehindLine;
}

StructuredContent::Place StructuredContent::PlaceBehind(std::span<const int32_t> tokens) const {
  Place place{state_, 0};
  while (place.taken < tokens.size()) {
    const std::optional<State> after = After(place.state, tokens[place.taken]);
    if (!after.has_value()) break;
    place.state = *after;
    ++place.taken;
    if (!IsHeld(place.state)) break;
  }
  return place;
}

absl::StatusOr<bool> StructuredContent::Mask(std::span<const int32_t> ahead,
                                             std::span<float> logits) const {
  if (!is_held()) return false;
  const Place place = PlaceBehind(ahead);
  if (!IsHeld(place.state)) return false;
  ahead = ahead.subspan(place.taken);
  std::vector<std::pair<size_t, float>> kept;
  if (ahead.empty()) {
    for (const int32_t other : Others(place.state)) {
      const auto at = static_cast<size_t>(other);
      if (at < logits.size()) kept.emplace_back(at, logits[at]);
    }
  }
  const absl::Status masked = constraint_->Mask(ahead, logits);
  if (!masked.ok()) return masked;
  for (const auto& [at, logit] : kept) logits[at] = logit;
  return true;
}

void StructuredContent::NoteCall() {
  if (state_ == State::kWaiting && !plan_.is_of_call) state_ = State::kFree;
}

absl::Status StructuredContent::Take(int32_t token, bool is_content) {
  if (!has_structure()) return absl::OkStatus();
  if (state_ == State::kFree) return absl::OkStatus();
  if (state_ == State::kWaiting) {
    if (plan_.awaits_calls) {
      if (is_content && Has(plan_.call_openers, token)) state_ = State::kHeld;
    } else if (is_content) {
      state_ = State::kBehind;
    }
    return absl::OkStatus();
  }
  if (const std::optional<State> after = After(state_, token)) {
    state_ = *after;
    return absl::OkStatus();
  }
  state_ = State::kHeld;
  const absl::Status taken = constraint_->Take(token);
  if (plan_.is_of_call && constraint_->is_over()) {
    state_ = plan_.awaits_calls ? State::kWaiting : State::kFree;
    if (plan_.awaits_calls) constraint_ = plan_.constraint->Fork();
  }
  return taken;
}

size_t StructuredContent::Admitted(std::span<const int32_t> tokens) const {
  if (!is_held() || tokens.empty()) return tokens.size();
  const Place place = PlaceBehind(tokens);
  if (!IsHeld(place.state)) return tokens.size();
  return place.taken + constraint_->Admitted(tokens.subspan(place.taken));
}

}  // namespace macrame::runtime::engine
