#include "runtime/serving/prompt_lookup.h"

#include <algorithm>

namespace macrame::runtime::engine {
namespace {

constexpr double kLookupRateGain = 1.0 / 12.0;  // of the newest draft

}  // namespace

size_t PromptLookup::RunOf(uint32_t length) {
  if (length == 0) return 0;
  if (length < 4) return 1;
  return length < 16 ? 2 : 3;
}

double PromptLookup::RateAt(uint32_t index) const { return rates_[RunOf(run_ + index)]; }

// Of the kLookupTokens tokens before `end`.
uint64_t PromptLookup::KeyAt(std::span<const int32_t> tokens, size_t end) {
  uint64_t key = 0;
  for (size_t i = end - kLookupTokens; i < end; ++i) {
    key = (key ^ static_cast<uint32_t>(tokens[i])) * 0x9E3779B97F4A7C15u;
    key ^= key >> 29;
  }
  return key;
}

void PromptLookup::Find(std::span<const int32_t> tokens, size_t end) {
  source_ = 0;
  run_ = 0;
  if (end < kLookupTokens) return;
  const auto found = ends_.find(KeyAt(tokens, end));
  if (found == ends_.end()) return;
  const auto now = tokens.subspan(end - kLookupTokens, kLookupTokens);
  const auto then = tokens.subspan(found->second - kLookupTokens, kLookupTokens);
  if (std::equal(now.begin(), now.end(), then.begin())) source_ = found->second;
}

void PromptLookup::Follow(std::span<const int32_t> tokens, uint32_t prompt_tokens) {
  const size_t end =
      std::min({tokens.size(), size_t{followed_} + kFollowedAtOnceMax, size_t{kFollowedTokensMax}});
  for (; followed_ < end; ++followed_) {
    if (source_ > 0) {
      const bool is_right = tokens[source_] == tokens[followed_];
      // What a prompt repeats of itself says little of what the model will.
      if (followed_ >= prompt_tokens) {
        double& rate = rates_[RunOf(run_)];
        rate += kLookupRateGain * ((is_right ? 1.0 : 0.0) - rate);
      }
      source_ = is_right ? source_ + 1 : 0;
      run_ = is_right ? run_ + 1 : 0;
    }
    const size_t after = followed_ + 1;
    if (source_ == 0) Find(tokens, after);
    if (after >= kLookupTokens) ends_[KeyAt(tokens, after)] = static_cast<uint32_t>(after);
  }
}

std::vector<int32_t> PromptLookup::Draft(std::span<const int32_t> tokens,
                                         uint32_t count_max) const {
  std::vector<int32_t> draft;
  if (source_ == 0 || followed_ != tokens.size()) return draft;
  for (uint32_t i = 0; i < count_max; ++i) {
    const size_t at = size_t{source_} + i;
    // Past the end it goes on as it began: what repeats itself.
    draft.push_back(at < tokens.size() ? tokens[at] : draft[at - tokens.size()]);
  }
  return draft;
}

}  // namespace macrame::runtime::engine
