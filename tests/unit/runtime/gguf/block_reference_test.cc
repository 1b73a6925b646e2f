// Random blocks of each kind against what ggml makes of them (dequantize_row_* of its
// ggml-quants.c, written down anew): nothing is lost of the exact kinds, of the others no more than
// is said.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/gguf/block_forms.h"
#include "runtime/gguf/float16.h"

namespace macrame::runtime::gguf {
namespace {

using Block = const uint8_t*;

float Half(Block at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof(half));
  return FloatFromHalf(half);
}

// Blocks of 32: a scale, perhaps a least number, perhaps fifth bits, then nibbles or bytes.
void OfOneGroup(uint32_t type, Block x, float* y) {
  const float d = Half(x);
  const bool has_least = type == 3 || type == 7, has_fifth = type == 6 || type == 7;
  const float m = has_least ? Half(x + 2) : 0;
  Block at = x + (has_least ? 4 : 2);
  uint32_t fifth = 0;
  if (has_fifth) {
    std::memcpy(&fifth, at, sizeof(fifth));
    at += sizeof(fifth);
  }
  for (int i = 0; i < 32; ++i) {
    if (type == 8) {
      y[i] = d * static_cast<float>(static_cast<int8_t>(at[i]));
      continue;
    }
    const int low = i < 16 ? at[i] & 15 : at[i - 16] >> 4;
    const int q = low | static_cast<int>((fifth >> i & 1U) << 4U);
    y[i] = has_least ? d * static_cast<float>(q) + m
                     : d * static_cast<float>(q - (has_fifth ? 16 : 8));
  }
}

void OfQ2K(Block x, float* y) {
  const float d = Half(x + 80), least = Half(x + 82);
  Block q = x + 16, scale = x;
  for (int n = 0; n < 256; n += 128, q += 32) {
    for (int shift = 0; shift < 8; shift += 2) {
      for (int l = 0; l < 32; ++l) {
        const uint8_t s = scale[l / 16];
        *y++ = d * static_cast<float>(s & 15) * static_cast<float>(q[l] >> shift & 3) -
               least * static_cast<float>(s >> 4);
      }
      scale += 2;
    }
  }
}

void OfQ3K(Block x, float* y) {
  const float d = Half(x + 108);
  uint32_t packed[4] = {};
  std::memcpy(packed, x + 96, 12);
  constexpr uint32_t kTwo = 0x03030303, kFour = 0x0f0f0f0f;
  const uint32_t upper = packed[2];
  packed[2] = (packed[0] >> 4 & kFour) | (upper >> 4 & kTwo) << 4;
  packed[3] = (packed[1] >> 4 & kFour) | (upper >> 6 & kTwo) << 4;
  packed[0] = (packed[0] & kFour) | (upper & kTwo) << 4;
  packed[1] = (packed[1] & kFour) | (upper >> 2 & kTwo) << 4;
  int8_t scales[16];
  std::memcpy(scales, packed, sizeof(scales));
  Block q = x + 32;
  uint8_t mask = 1;
  for (int n = 0, group = 0; n < 256; n += 128, q += 32) {
    for (int shift = 0; shift < 8; shift += 2, mask = static_cast<uint8_t>(mask << 1)) {
      for (int l = 0; l < 32; ++l) {
        if (l == 16) ++group;
        const int number = (q[l] >> shift & 3) - ((x[l] & mask) != 0 ? 0 : 4);
        *y++ = d * static_cast<float>(scales[group] - 32) * static_cast<float>(number);
      }
      ++group;
    }
  }
}

// Q4_K, and Q5_K with fifth bits before the nibbles.
void OfQ45K(bool has_fifth, Block x, float* y) {
  const float d = Half(x), least = Half(x + 2);
  Block packed = x + 4, fifth = x + 16, q = x + (has_fifth ? 48 : 16);
  for (int j = 0; j < 8; ++j) {
    const int s = j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
    const int m = j < 4 ? packed[j + 4] & 63 : packed[j + 4] >> 4 | (packed[j] >> 6) << 4;
    for (int l = 0; l < 32; ++l) {
      int number = j % 2 == 0 ? q[l] & 15 : q[l] >> 4;
      if (has_fifth && (fifth[l] >> j & 1) != 0) number += 16;
      *y++ = d * static_cast<float>(s) * static_cast<float>(number) - least * static_cast<float>(m);
    }
    if (j % 2 == 1) q += 32;
  }
}

void OfQ6K(Block x, float* y) {
  const float d = Half(x + 208);
  Block low = x, high = x + 128;
  const auto* scales = reinterpret_cast<const int8_t*>(x + 192);
  for (int n = 0; n < 2; ++n, low += 64, high += 32, scales += 8, y += 128) {
    for (int l = 0; l < 32; ++l) {
      const int nibbles[] = {low[l] & 15, low[l + 32] & 15, low[l] >> 4, low[l + 32] >> 4};
      for (int part = 0; part < 4; ++part) {
        const int number = (nibbles[part] | (high[l] >> (2 * part) & 3) << 4) - 32;
        y[part * 32 + l] =
            d * static_cast<float>(scales[l / 16 + 2 * part]) * static_cast<float>(number);
      }
    }
  }
}

std::vector<float> ByGgml(const BlockForm& form, const std::vector<std::byte>& blocks) {
  std::vector<float> numbers(blocks.size() / form.bytes * form.elements);
  for (size_t block = 0; block * form.bytes < blocks.size(); ++block) {
    const auto x = reinterpret_cast<Block>(blocks.data() + block * form.bytes);
    float* y = numbers.data() + block * form.elements;
    if (form.elements == 32) OfOneGroup(form.type, x, y);
    if (form.type == 10) OfQ2K(x, y);
    if (form.type == 11) OfQ3K(x, y);
    if (form.type == 12 || form.type == 13) OfQ45K(form.type == 13, x, y);
    if (form.type == 14) OfQ6K(x, y);
  }
  return numbers;
}

struct Imported {
  std::vector<float> numbers;
  ConversionError error;
};

Imported Import(const BlockForm& form, const std::vector<std::byte>& blocks) {
  const size_t columns = blocks.size() / form.bytes * form.elements;
  const auto bits = static_cast<size_t>(form.bits);
  std::vector<std::byte> weights(columns * bits / 8);
  std::vector<uint16_t> scales(columns / 32), biases(columns / 32);
  Imported out;
  ConvertRow(form, blocks.data(), columns, {weights.data(), scales.data(), biases.data()},
             out.error);
  for (size_t i = 0; i < columns; ++i) {
    uint32_t number = 0;
    for (size_t bit = 0; bit < bits; ++bit) {
      const size_t at = i * bits + bit;
      number |= (static_cast<uint32_t>(weights[at / 8]) >> (at % 8) & 1U) << bit;
    }
    out.numbers.push_back(FloatFromHalf(scales[i / 32]) * static_cast<float>(number) +
                          FloatFromHalf(biases[i / 32]));
  }
  return out;
}

// Where a kind's halves stand, within a block.
std::vector<size_t> HalvesOf(uint32_t type) {
  switch (type) {
    case 3:
    case 7:
    case 12:
    case 13:
      return {0, 2};
    case 10:
      return {80, 82};
    case 11:
      return {108};
    case 14:
      return {208};
    default:
      return {0};
  }
}

// Random bits; the scales of some usual size, of either sign, or a quarter of them zero.
std::vector<std::byte> RandomRow(const BlockForm& form, std::mt19937_64& random) {
  std::vector<std::byte> row(form.bytes * (1 + random() % 6));
  for (std::byte& byte : row) byte = static_cast<std::byte>(random());
  for (size_t block = 0; block < row.size(); block += form.bytes) {
    for (const size_t at : HalvesOf(form.type)) {
      const float size = std::ldexp(1.0F + static_cast<float>(random() % 1024) / 1024.0F,
                                    -static_cast<int>(random() % 12) - 1);
      const bool is_zero = random() % 4 == 0;
      const uint16_t half = HalfFromFloat(is_zero ? 0.0F : random() % 2 == 0 ? size : -size);
      std::memcpy(row.data() + block + at, &half, sizeof(half));
    }
  }
  return row;
}

class BlockReference : public testing::TestWithParam<uint32_t> {};

TEST_P(BlockReference, NumbersAreGgmlsToWhatTheFormHolds) {
  const BlockForm& form = *FindBlockForm(GetParam());
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    std::mt19937_64 random(seed);
    const std::vector<std::byte> row = RandomRow(form, random);
    const std::vector<float> expected = ByGgml(form, row);
    const Imported imported = Import(form, row);
    ASSERT_FALSE(imported.error.infinite) << "seed " << seed;
    double squared_error = 0, squared = 0;
    for (size_t group = 0; group < expected.size(); group += 32) {
      const auto begin = expected.begin() + static_cast<ptrdiff_t>(group);
      const auto [least, most] = std::minmax_element(begin, begin + 32);
      // Rounding of scale and least number; where groups are made anew, half a step beside it.
      const double size = std::max(std::abs(*least), std::abs(*most));
      const double step = (*most - *least) / static_cast<double>((1 << form.bits) - 1);
      const double most_error = form.exact ? 0 : 0.51 * step + 6e-3 * size + 1e-6;
      for (size_t i = group; i < group + 32; ++i) {
        ASSERT_NEAR(imported.numbers[i], expected[i], most_error)
            << std::string(form.name) << ", seed " << seed << ", number " << i;
        squared_error += std::pow(double{imported.numbers[i]} - double{expected[i]}, 2);
        squared += std::pow(double{expected[i]}, 2);
      }
    }
    // What people are told that the import cost.
    const double relative = squared > 0 ? std::sqrt(squared_error / squared) : 0;
    ASSERT_NEAR(imported.error.Relative(), relative, 1e-6 + 1e-3 * relative) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, BlockReference, testing::Values(2, 3, 6, 7, 8, 10, 11, 12, 13, 14));

}  // namespace
}  // namespace macrame::runtime::gguf
