#include "runtime/serving/structure/grammar_constraint.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace macrame::runtime::engine {

constexpr size_t kBits = 32;
constexpr float kNever = -std::numeric_limits<float>::infinity();

GrammarConstraint::GrammarConstraint(text::GrammarMatcher matcher, size_t size)
    : matcher_(std::move(matcher)), bits_((size + kBits - 1) / kBits) {}

std::unique_ptr<TokenConstraint> GrammarConstraint::Fork() const {
  auto fork = std::make_unique<GrammarConstraint>(matcher_.Fork(), bits_.size() * kBits);
  fork->is_over_ = is_over_;
  return fork;
}

absl::Status GrammarConstraint::Mask(std::span<const int32_t> ahead, std::span<float> logits) {
  const absl::Status masked = matcher_.Mask(ahead, bits_);
  if (masked.ok()) KeepLogits(bits_, logits);
  return masked;
}

absl::Status GrammarConstraint::Take(int32_t token) {
  const auto is_over = matcher_.Take(token);
  if (!is_over.ok()) return is_over.status();
  is_over_ = *is_over;
  return absl::OkStatus();
}

size_t GrammarConstraint::Admitted(std::span<const int32_t> tokens) {
  return matcher_.Admitted(tokens);
}

void KeepLogits(std::span<const uint32_t> bits, std::span<float> logits) {
  for (size_t word = 0; word * kBits < logits.size(); ++word) {
    const uint32_t kept = word < bits.size() ? bits[word] : 0;
    if (kept == ~uint32_t{0}) continue;
    const std::span<float> part =
        logits.subspan(word * kBits, std::min(kBits, logits.size() - word * kBits));
    if (kept == 0) {
      std::fill(part.begin(), part.end(), kNever);
      continue;
    }
    for (size_t i = 0; i < part.size(); ++i) {
      if ((kept >> i & 1U) == 0) part[i] = kNever;
    }
  }
}

}  // namespace macrame::runtime::engine
