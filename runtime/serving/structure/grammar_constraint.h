#pragma once

// A grammar as what sampling holds an answer to.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "runtime/serving/sampling/token_constraint.h"
#include "runtime/text/grammar.h"

namespace macrame::runtime::engine {

class GrammarConstraint : public TokenConstraint {
 public:
  // `size`: that of the engine that the matcher is of.
  GrammarConstraint(text::GrammarMatcher matcher, size_t size);

  std::unique_ptr<TokenConstraint> Fork() const override;
  absl::Status Mask(std::span<const int32_t> ahead, std::span<float> logits) override;
  absl::Status Take(int32_t token) override;
  size_t Admitted(std::span<const int32_t> tokens) override;
  bool is_over() const override { return is_over_; }

 private:
  text::GrammarMatcher matcher_;
  std::vector<uint32_t> bits_;
  bool is_over_ = false;
};

// Leaves the logits whose bits are set, sets the others and those beyond to minus infinity.
void KeepLogits(std::span<const uint32_t> bits, std::span<float> logits);

}  // namespace macrame::runtime::engine
