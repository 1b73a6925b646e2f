// Our matrix products against plain loops, for every storage and awkward sizes.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "runtime/kernels/matmul.h"

namespace macrame::runtime::kernels {
namespace {

class Numbers {
 public:
  explicit Numbers(uint32_t seed) : state_(seed) {}
  uint32_t Next() {
    state_ = state_ * 1664525U + 1013904223U;
    return state_ >> 8;
  }
  float Float() { return static_cast<float>(Next() % 2001) / 1000.0F - 1.0F; }

 private:
  uint32_t state_;
};

uint16_t ToBfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>(bits >> 16);
}

float FromBfloat16(uint16_t raw) {
  const uint32_t bits = uint32_t{raw} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Halves of the form k/64 are exact and have simple bits.
uint16_t ToHalf(float value) {
  if (value == 0.0F) return 0;
  int exponent;
  const float mantissa = std::frexp(std::fabs(value), &exponent);
  const auto fraction = static_cast<uint16_t>(std::lround((mantissa * 2.0F - 1.0F) * 1024.0F));
  return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | ((exponent + 14) << 10) | fraction);
}

// A matrix in one storage together with what it means.
struct Stored {
  MatrixView view;
  std::vector<uint8_t> weights, scales, biases;
  std::vector<float> meaning;
};

void PutScalar(std::vector<uint8_t>& out, Scalar type, float& value) {
  if (type == Scalar::kFloat32) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    out.insert(out.end(), bytes, bytes + 4);
    return;
  }
  uint16_t raw;
  if (type == Scalar::kBfloat16) {
    raw = ToBfloat16(value);
    value = FromBfloat16(raw);
  } else {
    value = std::round(value * 64.0F) / 64.0F;
    raw = ToHalf(value);
  }
  out.push_back(static_cast<uint8_t>(raw & 0xff));
  out.push_back(static_cast<uint8_t>(raw >> 8));
}

Stored Make(size_t rows, size_t columns, int bits, int group_size, Scalar type, uint32_t seed) {
  Numbers numbers(seed);
  Stored stored;
  stored.weights.push_back(0);  // nothing is aligned
  stored.scales.push_back(0);
  stored.biases.push_back(0);
  stored.view = {rows, columns, bits, group_size, type};
  for (size_t row = 0; row < rows; ++row) {
    uint64_t pending = 0;
    int pending_bits = 0;
    float scale = 0.0F;
    float bias = 0.0F;
    for (size_t column = 0; column < columns; ++column) {
      if (bits == 0) {
        float value = numbers.Float();
        PutScalar(stored.weights, type, value);
        stored.meaning.push_back(value);
        continue;
      }
      if (column % static_cast<size_t>(group_size) == 0) {
        scale = numbers.Float() / 8.0F;
        bias = numbers.Float();
        PutScalar(stored.scales, type, scale);
        PutScalar(stored.biases, type, bias);
      }
      const uint32_t number = numbers.Next() & ((1U << bits) - 1);
      pending |= uint64_t{number} << pending_bits;
      for (pending_bits += bits; pending_bits >= 8; pending_bits -= 8, pending >>= 8) {
        stored.weights.push_back(static_cast<uint8_t>(pending & 0xff));
      }
      stored.meaning.push_back(scale * static_cast<float>(number) + bias);
    }
  }
  stored.view.weights = stored.weights.data() + 1;
  stored.view.scales = stored.scales.data() + 1;
  stored.view.biases = stored.biases.data() + 1;
  return stored;
}

void CheckProduct(const Stored& stored, size_t count) {
  const size_t rows = stored.view.rows;
  const size_t columns = stored.view.columns;
  Numbers numbers(99);
  std::vector<float> x(count * columns);
  for (float& value : x) value = numbers.Float();
  std::vector<float> y(count * rows, -7.0F);
  MultiplyTransposed(stored.view, x.data(), count, y.data(), 0, rows);
  for (size_t m = 0; m < count; ++m) {
    for (size_t row = 0; row < rows; ++row) {
      double sum = 0.0;
      double size = 1.0;
      for (size_t c = 0; c < columns; ++c) {
        const double term = double{stored.meaning[row * columns + c]} * x[m * columns + c];
        sum += term;
        size += std::fabs(term);
      }
      ASSERT_NEAR(y[m * rows + row], sum, size * 2e-6) << "vector " << m << ", row " << row;
    }
  }
}

struct Case {
  int bits;
  int group_size;
};

class KernelsTest : public ::testing::TestWithParam<std::tuple<Case, Scalar>> {};

TEST_P(KernelsTest, ProductsMatchPlainLoops) {
  const auto [shape, type] = GetParam();
  for (const size_t rows : {1, 7, 33}) {
    for (const size_t columns : {128, 384, 4096 + 256}) {
      const Stored stored = Make(rows, columns, shape.bits, shape.group_size, type, 3);
      for (const size_t count : {1, 2, 5, 8}) CheckProduct(stored, count);
    }
  }
}

TEST_P(KernelsTest, RowsComeOutAsTheyMean) {
  const auto [shape, type] = GetParam();
  const Stored stored = Make(9, 128, shape.bits, shape.group_size, type, 4);
  const int32_t rows[] = {8, 0, 8};
  std::vector<float> out(3 * 128);
  GatherRows(stored.view, rows, 3, out.data());
  for (size_t i = 0; i < 3; ++i) {
    for (size_t c = 0; c < 128; ++c) {
      EXPECT_NEAR(out[i * 128 + c], stored.meaning[static_cast<size_t>(rows[i]) * 128 + c], 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, KernelsTest,
    ::testing::Combine(::testing::Values(Case{0, 0}, Case{4, 32}, Case{4, 64}, Case{4, 128},
                                         Case{6, 64}, Case{8, 64}, Case{8, 32}),
                       ::testing::Values(Scalar::kFloat32, Scalar::kBfloat16, Scalar::kFloat16)));

TEST(KernelsRangeTest, TouchesOnlyTheRowsAskedFor) {
  const Stored stored = Make(20, 128, 4, 64, Scalar::kFloat32, 5);
  std::vector<float> x(2 * 128, 0.5F);
  for (const size_t count : {1, 2}) {
    std::vector<float> y(count * 20, -7.0F);
    MultiplyTransposed(stored.view, x.data(), count, y.data(), 5, 11);
    for (size_t m = 0; m < count; ++m) {
      EXPECT_EQ(y[m * 20 + 4], -7.0F);
      EXPECT_NE(y[m * 20 + 5], -7.0F);
      EXPECT_NE(y[m * 20 + 10], -7.0F);
      EXPECT_EQ(y[m * 20 + 11], -7.0F);
    }
  }
}

TEST(KernelsRangeTest, OddColumnsOfFloatsWork) {
  CheckProduct(Make(5, 77, 0, 0, Scalar::kBfloat16, 6), 1);
  CheckProduct(Make(5, 77, 0, 0, Scalar::kFloat16, 7), 6);
}

}  // namespace
}  // namespace macrame::runtime::kernels
