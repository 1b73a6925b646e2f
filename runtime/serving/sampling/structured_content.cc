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

std::vector<int32_t> StructuredContent::Others() const {
  std::vector<int32_t> others;
  if (state_ != State::kOpening && state_ != State::kBehind) return others;
  others = plan_.call_openers;
  if (state_ == State::kBehind) {
    others.insert(others.end(), plan_.line_ends.begin(), plan_.line_ends.end());
  } else if (plan_.think_open.has_value()) {
    others.push_back(*plan_.think_open);
  }
  return others;
}

std::optional<StructuredContent::State> StructuredContent::After(int32_t token) const {
  if (!Has(Others(), token)) return std::nullopt;
  if (Has(plan_.call_openers, token)) return State::kFree;
  return state_ == State::kOpening ? State::kWaiting : State::kHeld;
}

absl::StatusOr<bool> StructuredContent::Mask(std::span<const int32_t> ahead,
                                             std::span<float> logits) const {
  if (!is_held()) return false;
  const std::optional<State> first = ahead.empty() ? std::nullopt : After(ahead[0]);
  if (first.has_value()) {
    if (*first != State::kHeld) return false;
    ahead = ahead.subspan(1);
  }
  std::vector<std::pair<size_t, float>> kept;
  if (ahead.empty() && !first.has_value()) {
    for (const int32_t other : Others()) {
      const auto at = static_cast<size_t>(other);
      if (at < logits.size()) kept.emplace_back(at, logits[at]);
    }
  }
  const absl::Status masked = constraint_->Mask(ahead, logits);
  if (!masked.ok()) return masked;
  for (const auto& [at, logit] : kept) logits[at] = logit;
  return true;
}

absl::Status StructuredContent::Take(int32_t token, bool is_content) {
  if (!has_structure()) return absl::OkStatus();
  if (state_ == State::kFree) return absl::OkStatus();
  if (state_ == State::kWaiting) {
    if (is_content) state_ = State::kBehind;
    return absl::OkStatus();
  }
  if (const std::optional<State> after = After(token)) {
    state_ = *after;
    return absl::OkStatus();
  }
  state_ = State::kHeld;
  const absl::Status taken = constraint_->Take(token);
  if (plan_.is_of_call && constraint_->is_over()) state_ = State::kFree;
  return taken;
}

size_t StructuredContent::Admitted(std::span<const int32_t> tokens) const {
  if (!is_held() || tokens.empty()) return tokens.size();
  const std::optional<State> first = After(tokens[0]);
  if (!first.has_value()) return constraint_->Admitted(tokens);
  if (*first != State::kHeld) return tokens.size();
  return 1 + constraint_->Admitted(tokens.subspan(1));
}

}  // namespace macrame::runtime::engine
