#pragma once

// Proof, before a rank serves by MLX's graphs, that its device computes what the model says.
//
// One layer of each kind that the rank has (layer_proof.h; mixtures with as many experts as a token
// takes) runs over the same synthetic hidden states on the device and by our CPU kernels: half
// of them as a prompt, then one by one as an answer's tokens, since MLX has other kernels for few
// rows. Where many rows of either differ by more than rounding can explain, the driver, a kernel or
// the memory is broken: what would come is fluent nonsense. Activations in 16 bits make a few
// hundredths of the difference that the layer makes; a product that is wrong makes about 1.

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/model/config/engine_device.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/weights/weight_files.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// |difference| / (|what the layer adds| + kDeviceProofFloor * |what goes in|), by Euclid's norm of
// a row. The floor is what rounding the sum to bfloat16 (2^-9) may make, four times over.
inline constexpr double kDeviceProofTolerance = 0.25;
inline constexpr double kDeviceProofFloor = 1.0 / 64;

struct DeviceProof {
  const ModelConfig& config;
  ShardPlace place;  // of this rank
  std::shared_ptr<const WeightFiles> files;
  EngineDevice device = EngineDevice::kGpu;
  int threads = 1;  // of CPU kernels
  // The most that a layer may take beside what is loaded; larger ones are not proven.
  uint64_t layer_bytes_max = 0;
  // In which the device keeps keys and values (LayerStackOptions); ours are kept as they come. Not
  // 4: these round by more than the tolerance.
  int kv_bits = 0;
};

// What was proven.
struct ProvenDevice {
  int layers = 0;    // one of each kind
  int left_out = 0;  // too large
  int rows = 0, agreeing = 0;
};

// DEVICE_DIFFERS. Throws what MLX throws.
absl::StatusOr<ProvenDevice> ProveDevice(const DeviceProof& proof);

}  // namespace macrame::runtime::engine
