#pragma once

#include <optional>

#include "runtime/gang/step_codec.h"
#include "runtime/kernels/kv_view.h"
#include "runtime/model/config/engine_device.h"

namespace macrame::runtime::engine {

// What debugging asks for instead of the engine's own choice; unset: that. Comparisons with other
// programs take float32 for both types, where nothing is rounded on its way.
struct EngineOverrides {
  // Unset: the machine's GPU, or our CPU kernels where it has none.
  std::optional<EngineDevice> device{};
  std::optional<kernels::KvType> kv{};  // see LayerStackOptions
  // What ranks hand each other, by rank 0's word; the others' is not asked.
  std::optional<WireType> wire{};
};

}  // namespace macrame::runtime::engine
