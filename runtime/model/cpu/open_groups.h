#pragma once

// What a layer that pools groups of positions keeps of a sequence's last ones: of a group that is
// not whole yet, the pooled vectors and their gates (ModelConfig::compress). Groups end where KV
// blocks do, so a sequence that begins behind cached blocks needs nothing of what was before them.
// Engine thread only.

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/cpu/linear.h"
#include "runtime/model/step/forward_step.h"

namespace macrame::runtime::engine {

class OpenGroups {
 public:
  // Position p's numbers stand at p % kPositions. As many as the longest group, and the drafts
  // that may have been run behind it and were wrong.
  static constexpr size_t kPositions = 64;
  // So many positions a sequence may go back, but to the beginning of a block.
  static constexpr size_t kBackMax = kPositions - CompressTraits::kRatioMax;

  // `layers`: of this rank that pool; each keeps `width` numbers of a position.
  OpenGroups(size_t layers, size_t width);

  // INTERNAL when a sequence begins within a block that it did not compute, or goes back further
  // than is kept.
  absl::Status Check(const ForwardStep& step) const;
  void Apply(const ForwardStep& step);

  // A layer's [kPositions][width] of a slot.
  float* Layer(uint32_t slot, size_t layer) const {
    return slots_.at(slot).numbers.data() + layer * kPositions * width_;
  }
  bool empty() const { return layers_ == 0; }
  uint64_t memory_bytes() const;

 private:
  struct Slot {
    FloatBuffer numbers{};
    size_t end = 0;  // behind the last position that was ever kept
  };
  const size_t layers_, width_;
  std::map<uint32_t, Slot> slots_;
};

}  // namespace macrame::runtime::engine
