#pragma once

// What an answer's tokens are held to, whoever knows it: which of them may come next. One answer's,
// one thread at a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"

namespace macrame::runtime::engine {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // The same for another answer, from here on.
  virtual std::unique_ptr<TokenConstraint> Fork() const = 0;
  // Sets the logits of tokens that may not stand behind what was taken and `ahead` to minus
  // infinity; at least one is left as it is. What is ahead has a place. Nothing is taken.
  virtual absl::Status Mask(std::span<const int32_t> ahead, std::span<float> logits) = 0;
  // The answer's next token, which has a place.
  virtual absl::Status Take(int32_t token) = 0;
  // How many of the tokens may follow, one after the other.
  virtual size_t Admitted(std::span<const int32_t> tokens) = 0;
  // Nothing may follow.
  virtual bool is_over() const = 0;
};

}  // namespace macrame::runtime::engine
