#pragma once

// How far back sequences can go where layers pool groups of positions (DeepSeek-V4.1). The
// numbers of a group that is not whole are kept beside the KV cache, of a sequence's last positions
// alone. Groups end where KV blocks do, so a sequence that begins behind cached blocks needs
// nothing of what was before them. Pure.

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "runtime/model/step/forward_step.h"

namespace macrame::runtime::engine {

class OpenPositions {
 public:
  // Positions of a sequence whose numbers are kept: as many as the longest group, which is a block,
  // and the drafts that may have been run behind it and were wrong.
  static constexpr size_t kKept = 64;
  // So many positions a sequence may go back, but to the beginning of a block.
  static constexpr size_t kBackMax = kKept - kBlockTokens;

  // INTERNAL when a sequence begins within a block that it did not compute, or goes back further
  // than is kept.
  absl::Status Check(const ForwardStep& step) const;
  void Apply(const ForwardStep& step);

 private:
  std::map<uint32_t, size_t> ends_;  // by slot: behind the last position that was ever kept
};

}  // namespace macrame::runtime::engine
