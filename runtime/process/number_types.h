#pragma once

#include <optional>

#include "runtime/gang/step_codec.h"
#include "runtime/kernels/kv_view.h"

namespace macrame::runtime::engine {

// What debugging asks for instead of the engine's own types; unset: those. Comparisons with other
// programs take float32 for both, where nothing is rounded on its way.
struct NumberTypes {
  std::optional<kernels::KvType> kv{};  // see LayerStackOptions
  // What ranks hand each other, by rank 0's word; the others' is not asked.
  std::optional<WireType> wire{};
};

}  // namespace macrame::runtime::engine
