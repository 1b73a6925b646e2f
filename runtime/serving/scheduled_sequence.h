#pragma once

// What the BatchScheduler knows of a request, and of the step that it is planning. For its own
// sources alone.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/serving/batch_scheduler.h"
#include "runtime/serving/prompt_lookup.h"

namespace macrame::runtime::engine {

// KV blocks that so many tokens stand in.
inline uint32_t CountBlocks(size_t tokens) {
  return static_cast<uint32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

struct BatchScheduler::Sequence {
  RequestSpec spec;             // its prompt has moved to `tokens`
  std::vector<int32_t> tokens;  // prompt and what was chosen so far, and the place of one more
  uint32_t unknown = 0;         // 1: the last one is a place, TokenOfChosenRow, until its step ends
  uint32_t tokens_max = 0;
  uint64_t order = 0;  // of arrival
  MonotonicTime arrived{};
  RequestUsage usage;
  bool has_started = false;
  uint32_t bypassed = 0;       // how many started before it since it came first
  uint32_t computed_max = 0;   // beyond this, tokens run for the first time
  bool awaits_result = false;  // its next token comes from a step in flight
  // While it runs:
  bool is_running = false;
  uint32_t reserved_blocks = 0;
  std::vector<BlockId> blocks;
  uint32_t shared_blocks = 0;     // the first of `blocks`: cached ones, which others may use too
  std::vector<BlockCopy> copies;  // to be ordered with its first step; it holds their sources
  uint32_t told_blocks = 0;       // of `blocks`, those that the other ranks know
  uint32_t fed = 0;               // tokens that steps have run, or cached blocks hold
  std::optional<uint32_t> slot;
  BlockPool::Published published;
  ColdTier::Seeker cold;
  uint32_t cold_blocks = 0;  // of `blocks`, read from disk
  StateCache::Member state;
  uint64_t last_step = 0;
  std::optional<int32_t> chosen_row;  // of the step `last_step`, which chooses its next token
  PromptLookup lookup;
  std::vector<int32_t> draft;  // that the step in planning takes along
  bool draft_is_of_model = false;

  uint32_t Left() const { return static_cast<uint32_t>(tokens.size()) - fed; }
  // Tokens that are known.
  std::span<const int32_t> Known() const {
    return std::span(tokens).first(tokens.size() - unknown);
  }
  // Full blocks whose tokens are known.
  uint32_t KnownBlocks() const {
    return std::min(fed, static_cast<uint32_t>(tokens.size()) - unknown) / kBlockTokens;
  }
  bool IsAnswering() const { return slot.has_value() && Left() <= 1; }
  bool IsHidden() const { return spec.rows != LogitRows::kLast; }
  // What is not run gives no hidden states.
  bool TakesCache() const { return spec.rows != LogitRows::kHiddenAll; }
  // What is read would count as used, and stay on disk.
  bool UsesDisk(const BatchTraits& traits) const {
    return traits.cold.ranks > 0 && !spec.memory_only;
  }
  // Its table at its longest; the last token that is chosen is never run.
  uint32_t BlocksMax() const { return CountBlocks(tokens_max - 1); }
};

struct BatchScheduler::Plan {
  uint64_t number = 0;
  MonotonicTime now{};
  ForwardStep step;
  StepWork work;
  StepWork reserved;  // for the prompt that came first, while others are planned
  std::vector<Sequence*> planned;
  std::vector<RowOwner> rows;
  std::vector<uint64_t> orders;
  std::vector<HiddenOwner> hidden;
  int32_t chosen_rows = 0;  // of the step
  Effects effects;

  bool Has(const Sequence& sequence) const {
    return std::find(planned.begin(), planned.end(), &sequence) != planned.end();
  }
};

}  // namespace macrame::runtime::engine
