#pragma once

// Drafts what comes next in a sequence from what came before in it: where the last kLookupTokens
// tokens stood already, what followed them then may follow again, as it does in edited code, quotes
// and lists. Pure; one for each sequence.
//
// It follows the sequence token by token whether its drafts are tried or not, so how often they
// are right is known without trying them. A draft that was right for some tokens in a row is
// likelier to be right for the next: rates are kept for runs of several lengths.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace macrame::runtime::engine {

inline constexpr uint32_t kLookupTokens = 3;
inline constexpr uint32_t kFollowedAtOnceMax = 4096;  // tokens of one call
// Of a sequence, 20 bytes or so each; for one that grows longer nothing more is drafted.
inline constexpr uint32_t kFollowedTokensMax = 1u << 16;

class PromptLookup {
 public:
  // The sequence so far, of which the first `prompt_tokens` were not chosen by the model. As long
  // as it has not seen all, which takes several calls for a long prompt, it drafts nothing.
  void Follow(std::span<const int32_t> tokens, uint32_t prompt_tokens);
  // Up to `count_max` tokens that may come next.
  std::vector<int32_t> Draft(std::span<const int32_t> tokens, uint32_t count_max) const;
  // How likely the draft at `index` is right if those before it are.
  double RateAt(uint32_t index) const;

 private:
  static constexpr size_t kRuns = 4;
  static size_t RunOf(uint32_t length);
  static uint64_t KeyAt(std::span<const int32_t> tokens, size_t end);
  void Find(std::span<const int32_t> tokens, size_t end);

  absl::flat_hash_map<uint64_t, uint32_t> ends_;  // where these tokens ended last
  uint32_t followed_ = 0;
  uint32_t source_ = 0;  // the next token may be the one that stands there; 0: no draft
  uint32_t run_ = 0;     // drafts in a row that were right
  std::array<double, kRuns> rates_{0.4, 0.6, 0.8, 0.9};
};

}  // namespace macrame::runtime::engine
