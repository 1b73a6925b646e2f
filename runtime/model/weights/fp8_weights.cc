#include "runtime/model/weights/fp8_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/check.h"

namespace macrame::runtime::engine {
namespace {

size_t NumberOf(const StoredTensor& tensor) {
  size_t count = 1;
  for (const int64_t size : tensor.shape) count *= static_cast<size_t>(size);
  return count;
}

size_t Blocks(size_t size, size_t block) { return (size + block - 1) / block; }

// Sign, four bits of exponent (bias 7), three of mantissa; no infinities.
float FromE4m3(int bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if (exponent == 15 && mantissa == 7) value = std::numeric_limits<float>::quiet_NaN();
  return (bits & 128) != 0 ? -value : value;
}

const std::array<float, 256>& AllE4m3() {
  static const auto numbers = [] {
    std::array<float, 256> all{};
    for (int bits = 0; bits < 256; ++bits) all[static_cast<size_t>(bits)] = FromE4m3(bits);
    return all;
  }();
  return numbers;
}

uint16_t RoundedToBfloat16(float value) {
  if (std::isnan(value)) return 0x7FC0;
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

float NumberAt(const StoredTensor& tensor, size_t index) {
  if (tensor.dtype == "F32") {
    float value = 0;
    std::memcpy(&value, tensor.data + 4 * index, sizeof(value));
    return value;
  }
  if (IsPowerScale(tensor)) {
    const int power = std::to_integer<int>(tensor.data[index]);
    return power == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, power - 127);
  }
  MACRAME_CHECK(tensor.dtype == "BF16") << tensor.name << " of " << tensor.dtype;
  uint16_t half = 0;
  std::memcpy(&half, tensor.data + 2 * index, sizeof(half));
  return std::bit_cast<float>(uint32_t{half} << 16);
}

// All 256 numbers times a scale.
using Widened = std::array<uint16_t, 256>;
Widened WidenAll(float scale) {
  Widened out{};
  for (size_t i = 0; i < out.size(); ++i) out[i] = RoundedToBfloat16(AllE4m3()[i] * scale);
  return out;
}

}  // namespace

const StoredTensor* FindFp8Scale(const StoredTensor& weight, const WeightFiles& files) {
  const StoredTensor* inverse = files.Find(absl::StrCat(weight.name, "_scale_inv"));
  return inverse != nullptr ? inverse : files.Find(absl::StrCat(weight.name, "_scale"));
}

bool IsFp8Scale(const StoredTensor& tensor, const WeightFiles& files) {
  for (const std::string_view ending : {"_scale_inv", "_scale"}) {
    const std::string_view name = tensor.name;
    if (name.size() <= ending.size() || name.substr(name.size() - ending.size()) != ending) {
      continue;
    }
    const StoredTensor* weight = files.Find(name.substr(0, name.size() - ending.size()));
    return weight != nullptr && IsFp8(*weight);
  }
  return false;
}

std::optional<Fp8Block> Fp8BlockOf(const ModelConfig& config, const StoredTensor& weight,
                                   const StoredTensor& scale) {
  if (weight.shape.size() != 2) return std::nullopt;
  const auto rows = static_cast<size_t>(weight.shape[0]);
  const auto columns = static_cast<size_t>(weight.shape[1]);
  const size_t count = NumberOf(scale);
  if (count == 1 && scale.shape.size() <= 2) return Fp8Block{rows, columns};
  const bool is_column =
      scale.shape.size() == 1 || (scale.shape.size() == 2 && scale.shape[1] == 1);
  if (is_column && count == rows) return Fp8Block{1, columns};
  const Fp8Block block{static_cast<size_t>(config.fp8_block_rows),
                       static_cast<size_t>(config.fp8_block_columns)};
  const bool is_grid = scale.shape.size() == 2 &&
                       static_cast<size_t>(scale.shape[0]) == Blocks(rows, block.rows) &&
                       static_cast<size_t>(scale.shape[1]) == Blocks(columns, block.columns);
  return is_grid ? std::optional(block) : std::nullopt;
}

Fp8Scales ReadFp8Scales(const ModelConfig& config, const StoredTensor& weight,
                        const StoredTensor& scale) {
  const auto block = Fp8BlockOf(config, weight, scale);
  MACRAME_CHECK(block.has_value()) << scale.name;
  Fp8Scales scales{*block, 0, {}};
  if (weight.bytes == 0) return scales;
  scales.blocks_across = Blocks(static_cast<size_t>(weight.shape[1]), block->columns);
  const size_t count = NumberOf(scale);
  for (size_t i = 0; i < count; ++i) scales.numbers.push_back(NumberAt(scale, i));
  return scales;
}

namespace {

// Blocks of fewer numbers than a table of all has: each by itself.
constexpr size_t kTableFrom = 256;

void WidenRow(const Fp8Scales& scales, const Fp8Part& part, size_t row, const std::byte* stored,
              std::byte* out) {
  const Fp8Block& block = scales.block;
  const float* own = scales.numbers.data() + row / block.rows * scales.blocks_across;
  for (size_t column = part.column; column < part.column + part.columns; ++column) {
    const float number = AllE4m3()[std::to_integer<size_t>(stored[column])];
    const uint16_t wide = RoundedToBfloat16(number * own[column / block.columns]);
    std::memcpy(out, &wide, sizeof(wide));
    out += sizeof(wide);
  }
}

}  // namespace

void WidenFp8(const Fp8Scales& scales, const Fp8Part& part, const std::byte* stored,
              std::byte* out) {
  if (part.rows == 0 || part.columns == 0) return;
  const Fp8Block& block = scales.block;
  if (block.rows * block.columns < kTableFrom) {
    for (size_t i = 0; i < part.rows; ++i) {
      WidenRow(scales, part, part.row + i, stored + i * part.row_bytes,
               out + i * part.columns * sizeof(uint16_t));
    }
    return;
  }
  const size_t first = part.column / block.columns;
  const size_t last = (part.column + part.columns - 1) / block.columns;
  std::vector<Widened> tables(last - first + 1);  // of a row of blocks
  size_t tables_row = std::numeric_limits<size_t>::max();
  for (size_t i = 0; i < part.rows; ++i) {
    const size_t block_row = (part.row + i) / block.rows;
    if (block_row != tables_row) {
      for (size_t across = first; across <= last; ++across) {
        tables[across - first] =
            WidenAll(scales.numbers[block_row * scales.blocks_across + across]);
      }
      tables_row = block_row;
    }
    const std::byte* row = stored + i * part.row_bytes;
    for (size_t across = first; across <= last; ++across) {
      const Widened& table = tables[across - first];
      const size_t begin = std::max(part.column, across * block.columns);
      const size_t end = std::min(part.column + part.columns, (across + 1) * block.columns);
      for (size_t column = begin; column < end; ++column) {
        const uint16_t number = table[std::to_integer<size_t>(row[column])];
        std::memcpy(out, &number, sizeof(number));
        out += sizeof(number);
      }
    }
  }
}

}  // namespace macrame::runtime::engine
