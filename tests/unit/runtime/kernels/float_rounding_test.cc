// Against what mlx-lm's DeepSeek-V4.1 rounds the same numbers to.

#include "runtime/kernels/float_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace macrame::runtime::kernels {
namespace {

// Of all sizes between 0.01 and 10.
std::vector<float> Numbers() {
  std::vector<float> numbers;
  for (int i = 0; i < 64; ++i) {
    const double part = (i * i * 37 + i * 101 + 13) % 997 / 997.0 * 2 - 1;
    numbers.push_back(static_cast<float>(part) * static_cast<float>(std::pow(10.0, i / 16 - 2)));
  }
  return numbers;
}

void ExpectEveryFifth(const std::vector<float>& rounded, const std::vector<float>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(rounded[5 * i], expected[i]) << 5 * i;
}

TEST(FloatRoundingTest, EightBitFloatsWithPowersOfTwo) {
  auto numbers = Numbers();
  RoundToFp8(numbers.data(), numbers.size());
  ExpectEveryFifth(
      numbers, {-0.009765625F, -0.0010986328125F, 0.0048828125F, 0.0078125F, 0.078125F, 0.046875F,
                -0.009765625F, -0.9375F, -0.1171875F, 0.4375F, 7.0F, 7.0F, 3.75F});
}

TEST(FloatRoundingTest, FourBitFloatsWithPowersOfTwo) {
  auto numbers = Numbers();
  RoundToFp4(numbers.data(), numbers.size(), 32, Fp4Scale::kPowerOfTwo);
  ExpectEveryFifth(numbers, {-0.015625F, 0.0F, 0.0F, 0.0F, 0.0625F, 0.046875F, -0.015625F, -1.0F,
                             0.0F, 0.0F, 8.0F, 6.0F, 4.0F});
}

TEST(FloatRoundingTest, FourBitFloatsWithScalesOfEightBits) {
  auto numbers = Numbers();
  RoundToFp4(numbers.data(), numbers.size(), 16, Fp4Scale::kE4m3);
  ExpectEveryFifth(numbers,
                   {-0.0078125F, -0.0009765625F, 0.00390625F, 0.0078125F, 0.0625F, 0.046875F,
                    -0.0078125F, -0.9375F, -0.078125F, 0.46875F, 6.0F, 6.0F, 4.5F});
}

TEST(FloatRoundingTest, TiesGoToTheEvenOneAndLargeNumbersToTheLargest) {
  EXPECT_EQ(RoundToE4m3(1000.0F), 448.0F);
  EXPECT_EQ(RoundToE4m3(17.0F), 16.0F);
  EXPECT_EQ(RoundToE4m3(-19.0F), -20.0F);
  EXPECT_EQ(RoundToE4m3(std::ldexp(1.0F, -10)), 0.0F);
  EXPECT_EQ(RoundToE4m3(std::ldexp(3.0F, -10)), std::ldexp(1.0F, -8));
  std::vector<float> ties = {6, 5, 3.5, 2.5, 1.75, 1.25, 0.75, 0.25};
  RoundToFp4(ties.data(), ties.size(), ties.size(), Fp4Scale::kPowerOfTwo);
  EXPECT_EQ(ties, (std::vector<float>{6, 4, 4, 2, 2, 1, 1, 0}));
}

TEST(FloatRoundingTest, NumbersOfNoWholeBlocksStay) {
  std::vector<float> numbers(33, 0.3F);
  RoundToFp8(numbers.data(), numbers.size());
  RoundToFp4(numbers.data(), numbers.size(), 32, Fp4Scale::kPowerOfTwo);
  EXPECT_EQ(numbers, std::vector<float>(33, 0.3F));
}

}  // namespace
}  // namespace macrame::runtime::kernels
