// Weights of 2, 3 and 5 bits at the width of their loops, and the memory that products keep.

#include "runtime/kernels/narrow_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "runtime/kernels/activations.h"

namespace macrame::runtime::kernels {
namespace {

// Number `index` of a little-endian stream of numbers that are `bits` wide.
uint32_t NumberAt(const std::vector<uint8_t>& stream, int bits, size_t index) {
  uint32_t number = 0;
  for (int bit = 0; bit < bits; ++bit) {
    const size_t at = index * static_cast<size_t>(bits) + static_cast<size_t>(bit);
    number |= uint32_t{(stream[at / 8] >> (at % 8)) & 1U} << bit;
  }
  return number;
}

MatrixView ViewOf(const std::vector<uint8_t>& weights, int bits, size_t rows, size_t columns) {
  MatrixView matrix;
  matrix.rows = rows;
  matrix.columns = columns;
  matrix.bits = bits;
  matrix.group_size = 32;
  matrix.weights = weights.data();
  return matrix;
}

TEST(NarrowWeights, AnyRowsKeepTheirNumbersAtTheWiderForm) {
  constexpr size_t kRows = 9;
  for (const int bits : {2, 3, 5}) {
    for (const size_t columns : {32, 64, 96, 160}) {
      std::mt19937_64 random(columns);
      const size_t row_bytes = columns * static_cast<size_t>(bits) / 8;
      std::vector<uint8_t> weights(kRows * row_bytes);
      for (uint8_t& byte : weights) byte = static_cast<uint8_t>(random());
      const MatrixView matrix = ViewOf(weights, bits, kRows, columns);
      ASSERT_EQ(WeightRowBytes(matrix), row_bytes);
      const int wide = LoopBits(bits);
      ASSERT_GT(wide, bits);
      for (const auto& [begin, end] :
           {std::pair<size_t, size_t>{0, kRows}, {0, 1}, {3, 7}, {kRows - 1, kRows}, {4, 4}}) {
        const size_t bytes = (end - begin) * columns * static_cast<size_t>(wide) / 8;
        std::vector<uint8_t> out(bytes + 16, 0xA5);
        WidenWeights(matrix, begin, end, out.data());
        for (size_t i = 0; i < (end - begin) * columns; ++i) {
          ASSERT_EQ(NumberAt(out, wide, i), NumberAt(weights, bits, begin * columns + i))
              << bits << " bits, row " << begin + i / columns << ", column " << i % columns;
        }
        for (size_t i = bytes; i < out.size(); ++i) ASSERT_EQ(out[i], 0xA5) << "beyond its rows";
      }
    }
  }
}

TEST(NarrowWeights, WidthsWithLoopsOfTheirOwnStay) {
  for (const int bits : {0, 4, 6, 8}) EXPECT_EQ(LoopBits(bits), bits);
}

TEST(AlignedBuffer, GrowsAndNeverShrinksOnACacheLinesBoundary) {
  AlignedBuffer buffer;
  EXPECT_EQ(buffer.bytes(), 0u);
  EXPECT_EQ(buffer.Reserve(0), nullptr);
  size_t largest = 0;
  for (const size_t bytes : {1, 63, 64, 65, 10, 100'000, 99'999, 0, 100'001}) {
    uint8_t* data = buffer.Reserve(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u) << bytes;
    EXPECT_GE(buffer.bytes(), bytes);
    EXPECT_GE(buffer.bytes(), largest) << bytes;
    largest = buffer.bytes();
    if (bytes > 0) data[0] = data[bytes - 1] = 7;
  }
}

// A vector is told by its place in the batch and nothing else of it: forms of one length go over to
// another without a trace of what was there.
TEST(Activations, NothingOfAnEarlierBatchIsLeft) {
  ThreadPool pool(2);
  std::vector<uint8_t> weights(4 * 64, 0x77);
  const MatrixView matrix = ViewOf(weights, 8, 4, 64);
  std::vector<float> ones(16 * 64, 1.0F), halves(3 * 64, 0.5F);
  Activations reused;
  reused.Set(ones.data(), 16, 64);
  reused.FormFor(pool, matrix);
  const size_t memory = reused.memory_bytes();
  reused.Set(halves.data(), 3, 64);
  Activations fresh;
  fresh.Set(halves.data(), 3, 64);
  const QuantizedForm& again = reused.FormFor(pool, matrix);
  const QuantizedForm& first = fresh.FormFor(pool, matrix);
  for (size_t i = 0; i < 3 * 2; ++i) {
    EXPECT_EQ(again.scales[i], first.scales[i]);
    EXPECT_EQ(again.integer_sums[i], first.integer_sums[i]);
    EXPECT_EQ(again.integer_sums[i], 32 * 32639) << "each of a group is its largest";
    EXPECT_FLOAT_EQ(again.sums[i], 16.0F);
  }
  EXPECT_EQ(reused.memory_bytes(), memory) << "less needs no more";
}

// By the definition: a group's number is off by no more than half a step of its largest.
TEST(Activations, GroupsKeepTheirSumsToHalfAStepOfEachNumber) {
  ThreadPool pool(1);
  std::vector<uint8_t> weights(64 * 128, 0);
  for (const int group_size : {32, 64, 128}) {
    MatrixView matrix = ViewOf(weights, 4, 1, 128);
    matrix.group_size = group_size;
    for (uint64_t seed = 1; seed <= 50; ++seed) {
      std::mt19937_64 random(seed);
      std::normal_distribution<float> normal(0, 1);
      std::vector<float> x(2 * 128);
      for (float& value : x) value = normal(random) * std::ldexp(1.0F, static_cast<int>(seed) - 25);
      Activations activations;
      activations.Set(x.data(), 2, 128);
      const QuantizedForm& form = activations.FormFor(pool, matrix);
      const auto size = static_cast<size_t>(group_size);
      for (size_t group = 0; group < x.size() / size; ++group) {
        double sum = 0;
        float largest = 0;
        for (size_t i = 0; i < size; ++i) {
          sum += x[group * size + i];
          largest = std::max(largest, std::abs(x[group * size + i]));
        }
        EXPECT_FLOAT_EQ(form.scales[group], largest / 32639.0F) << "seed " << seed;
        EXPECT_NEAR(form.sums[group], sum, 0.51 * form.scales[group] * static_cast<double>(size))
            << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace macrame::runtime::kernels
