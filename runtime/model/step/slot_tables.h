#pragma once

// Which KV blocks each sequence of a rank uses, in order: what the steps of rank 0 add up to. Pure.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/model/step/forward_step.h"

namespace macrame::runtime::engine {

// Blocks that `positions` positions need.
constexpr int BlocksFor(int positions) {
  return (positions + int{kBlockTokens} - 1) / int{kBlockTokens};
}

// INTERNAL, with the segment's slot: what rank 0 never orders.
absl::Status MalformedStep(const Segment& segment, const std::string& what);

class SlotTables {
 public:
  // Blocks have ids [0, blocks_total); no sequence is longer than `positions_max`.
  SlotTables(int blocks_total, int positions_max);

  // Closes and extends slots as `step` says. INTERNAL, and nothing changed, when the step is not
  // well-formed: a token outside of [0, vocab_size) that is no chosen row of the step applied
  // before, an unknown block, a table that does not just cover the tokens, a slot twice. Steps
  // without segments don't count as the step before.
  absl::Status Apply(const ForwardStep& step, int vocab_size);

  // Valid until the next Apply. The slot must be open.
  std::span<const int32_t> Table(uint32_t slot) const { return tables_.at(slot); }

 private:
  absl::Status Check(const Segment& segment, size_t blocks_before, int vocab_size) const;

  const int blocks_total_;
  const int positions_max_;
  int32_t chosen_rows_ = 0;  // of the step applied last
  std::map<uint32_t, std::vector<int32_t>> tables_;
};

}  // namespace macrame::runtime::engine
