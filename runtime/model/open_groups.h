#pragma once

// What a layer that pools groups of positions keeps of a sequence's last ones: of a group that is
// not whole yet, the pooled vectors and their gates (ModelConfig::compress). Groups end where KV
// blocks do, so a sequence that begins behind cached blocks needs nothing of what was before them.
// Engine thread only.

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "runtime/model/cpu_linear.h"
#include "runtime/model/forward_step.h"

namespace macrame::runtime::engine {

class OpenGroups {
 public:
  // Position p's numbers stand at p % kPositions. As many as the longest group, and the drafts
  // that may have been run behind it and were wrong.
  static constexpr size_t kPositions = 64;

  // `layers`: of this rank that pool; each keeps `width` numbers of a position.
  OpenGroups(size_t layers, size_t width);

  // INTERNAL when a sequence begins within a block that it did not compute.
  absl::Status Check(const ForwardStep& step) const;
  void Apply(const ForwardStep& step);

  // A layer's [kPositions][width] of a slot.
  float* Layer(uint32_t slot, size_t layer) const {
    return slots_.at(slot).data() + layer * kPositions * width_;
  }
  bool empty() const { return layers_ == 0; }
  uint64_t memory_bytes() const;

 private:
  const size_t layers_, width_;
  std::map<uint32_t, FloatBuffer> slots_;
};

}  // namespace macrame::runtime::engine
