// Against what mlx-lm's DeepSeek-V4.1 rounds the same numbers to.

#include "runtime/kernels/float_rounding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
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

// All numbers of a kind that are not negative, by their codes: an even code has an even mantissa.
std::vector<double> E4m3Numbers() {
  std::vector<double> numbers;
  for (int code = 0; code < 127; ++code) {  // the last one is none
    const int exponent = code >> 3, mantissa = code & 7;
    numbers.push_back(exponent == 0 ? std::ldexp(mantissa, -9)
                                    : std::ldexp(8 + mantissa, exponent - 10));
  }
  return numbers;
}

std::vector<double> E2m1Numbers() { return {0, 0.5, 1, 1.5, 2, 3, 4, 6}; }

// The nearest of these, of two as near the one with the even code; with x's sign.
double Nearest(const std::vector<double>& numbers, double x) {
  const double size = std::min(std::abs(x), numbers.back());
  size_t best = 0;
  for (size_t code = 1; code < numbers.size(); ++code) {
    const double now = std::abs(numbers[code] - size), before = std::abs(numbers[best] - size);
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return x < 0 ? -numbers[best] : numbers[best];
}

TEST(FloatRoundingTest, EveryNumberOfEightBitsStaysAndEveryTieGoesToTheEvenOne) {
  const std::vector<double> numbers = E4m3Numbers();
  ASSERT_EQ(numbers.back(), 448.0);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto exact = static_cast<float>(numbers[i]);
    EXPECT_EQ(RoundToE4m3(exact), exact);
    EXPECT_EQ(RoundToE4m3(-exact), -exact);
    if (i == 0) continue;
    const auto middle = static_cast<float>((numbers[i - 1] + numbers[i]) / 2);
    for (const float x : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1e9F)}) {
      EXPECT_EQ(RoundToE4m3(x), Nearest(numbers, x)) << x;
      EXPECT_EQ(RoundToE4m3(-x), Nearest(numbers, -x)) << x;
    }
  }
  EXPECT_EQ(RoundToE4m3(std::numeric_limits<float>::infinity()), 448.0F);
  EXPECT_EQ(RoundToE4m3(-std::numeric_limits<float>::max()), -448.0F);
}

// Of some size; a few are zero, and a few much larger than the others.
std::vector<float> SeededNumbers(uint64_t seed, size_t count) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 1);
  const float size = std::ldexp(1.0F, static_cast<int>(random() % 16) - 8);
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    number = random() % 7 == 0 ? 0.0F : normal(random) * size * (random() % 20 == 0 ? 50.0F : 1.0F);
  }
  return numbers;
}

// The least power of two that holds the block's largest number, where the kind goes up to `most`.
double PowerScale(const float* block, size_t size, double most) {
  double largest = 0;
  for (size_t i = 0; i < size; ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(block[i])));
  }
  double scale = std::ldexp(1.0, -60);
  while (largest > scale * most) scale *= 2;
  return scale;
}

TEST(FloatRoundingTest, BlocksAreRoundedByTheirOwnScale) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const std::vector<float> numbers = SeededNumbers(seed, 5 * kFp8Block);
    std::vector<float> eight = numbers, four = numbers;
    RoundToFp8(eight.data(), eight.size());
    RoundToFp4(four.data(), four.size(), 32, Fp4Scale::kPowerOfTwo);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const float* block = numbers.data() + i / 32 * 32;
      const double wide = PowerScale(block, 32, 448), narrow = PowerScale(block, 32, 6);
      ASSERT_EQ(eight[i], Nearest(E4m3Numbers(), numbers[i] / wide) * wide)
          << "seed " << seed << ": " << numbers[i];
      ASSERT_EQ(four[i], Nearest(E2m1Numbers(), numbers[i] / narrow) * narrow)
          << "seed " << seed << ": " << numbers[i];
    }
  }
}

// What was rounded once is what such keys hold: writing them again changes nothing.
TEST(FloatRoundingTest, RoundingTwiceIsRoundingOnce) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    for (const size_t block : {16, 32}) {
      for (const Fp4Scale kind : {Fp4Scale::kPowerOfTwo, Fp4Scale::kE4m3}) {
        std::vector<float> once = SeededNumbers(seed, 4 * block);
        // Where the scale itself is rounded finely, as it is above 2^-6.
        if (kind == Fp4Scale::kE4m3)
          for (float& number : once) number *= 64;
        RoundToFp4(once.data(), once.size(), block, kind);
        std::vector<float> twice = once;
        RoundToFp4(twice.data(), twice.size(), block, kind);
        ASSERT_EQ(once, twice) << "seed " << seed;
      }
    }
    std::vector<float> once = SeededNumbers(seed, 2 * kFp8Block);
    RoundToFp8(once.data(), once.size());
    std::vector<float> twice = once;
    RoundToFp8(twice.data(), twice.size());
    ASSERT_EQ(once, twice) << "seed " << seed;
  }
}

}  // namespace
}  // namespace macrame::runtime::kernels
