#pragma once

// Weights stored as 8-bit floats (e4m3) with scales, as DeepSeek, Qwen, MiniMax, GLM and others
// publish theirs. They become bfloat16 once, while they are read: number times scale in float32,
// rounded to the nearest, which is mlx-lm's rule. Pure.

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/model/config/model_config.h"
#include "runtime/model/weights/weight_files.h"

namespace macrame::runtime::engine {

inline bool IsFp8(const StoredTensor& tensor) { return tensor.dtype == "F8_E4M3"; }

// A scale that is a byte e, which stands for 2^(e - 127).
inline bool IsPowerScale(const StoredTensor& tensor) {
  return tensor.dtype == "F8_E8M0" || tensor.dtype == "U8";
}

// Of a weight in 8-bit floats: "NAME_scale_inv" or "NAME_scale", whichever is there.
const StoredTensor* FindFp8Scale(const StoredTensor& weight, const WeightFiles& files);

bool IsFp8Scale(const StoredTensor& tensor, const WeightFiles& files);

// So many rows and columns share a scale.
struct Fp8Block {
  size_t rows = 0;
  size_t columns = 0;
};
// What a scale's shape says: one for the whole weight, one for each row, or one for each of the
// config's blocks. Unset: it is none of these.
std::optional<Fp8Block> Fp8BlockOf(const ModelConfig& config, const StoredTensor& weight,
                                   const StoredTensor& scale);

// Scales of a stored weight, row after row of blocks.
struct Fp8Scales {
  Fp8Block block;
  size_t blocks_across = 0;
  std::vector<float> numbers;
};
// Shape and type must be those that CheckWeights takes.
Fp8Scales ReadFp8Scales(const ModelConfig& config, const StoredTensor& weight,
                        const StoredTensor& scale);

// Columns [column, column + columns) of `rows` rows that begin with `row`, of a weight whose rows
// have `row_bytes` numbers.
struct Fp8Part {
  size_t row = 0;
  size_t rows = 0;
  size_t row_bytes = 0;
  size_t column = 0;
  size_t columns = 0;
};
// `stored`: the part's whole rows. `out`: rows * columns bfloat16 numbers.
void WidenFp8(const Fp8Scales& scales, const Fp8Part& part, const std::byte* stored,
              std::byte* out);

}  // namespace macrame::runtime::engine
