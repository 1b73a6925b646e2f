#pragma once

// Weights as compressed-tensors packs whole numbers ("pack-quantized"), which is how Kimi publishes
// its experts: "NAME.weight_packed" of 4 or 8 bits a number, "NAME.weight_scale" of a group along a
// row, and "NAME.weight_shape", which says what config.json does. A number q means
// (q - 2^(bits - 1)) * scale: MLX's affine form, bits in the same places, with a bias of
// -2^(bits - 1) * scale, which is exact in any type. Pure.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/model/weights/weight_files.h"

namespace macrame::runtime::engine {

inline constexpr std::string_view kPackedWeight = ".weight_packed";
inline constexpr std::string_view kPackedScale = ".weight_scale";
inline constexpr std::string_view kPackedShape = ".weight_shape";

// Whether a tensor holds such numbers, its scales, or its shape.
bool IsPackedWeight(const StoredTensor& tensor);
bool IsPackedScale(const StoredTensor& tensor, const WeightFiles& files);
bool IsPackedShape(const StoredTensor& tensor, const WeightFiles& files);

// By what a group's scale is multiplied to be its bias.
inline float PackedBias(int bits) { return -static_cast<float>(1 << (bits - 1)); }

// What a stored tensor takes in memory once it is loaded, whatever the engine: 8-bit floats become
// bfloat16, and their scales go into them; packed numbers get biases of their scales' size.
uint64_t HeldBytes(const StoredTensor& tensor, const WeightFiles& files);

}  // namespace macrame::runtime::engine
