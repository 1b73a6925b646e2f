#pragma once

// What a layer that pools groups of positions keeps of a sequence's last ones: of a group that is
// not whole yet, the pooled vectors and their gates (ModelConfig::compress, step/open_positions.h).
// Engine thread only.

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "runtime/model/cpu/linear.h"
#include "runtime/model/step/forward_step.h"
#include "runtime/model/step/open_positions.h"

namespace macrame::runtime::engine {

class OpenGroups {
 public:
  // Position p's numbers stand at p % kPositions.
  static constexpr size_t kPositions = OpenPositions::kKept;

  // `layers`: of this rank that pool; each keeps `width` numbers of a position.
  OpenGroups(size_t layers, size_t width);

  // As OpenPositions has it.
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
  OpenPositions positions_;
  std::map<uint32_t, FloatBuffer> slots_;
};

}  // namespace macrame::runtime::engine
