// Against our kernels, number for number, also where ties and powers of two decide.

#include "runtime/model/mlx/float_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

// Rows of numbers of many sizes; some blocks of zeros, of powers of two, of what lies between two
// numbers that can be held.
std::vector<float> NumbersOf(int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> kind(0, 5), exponent(-20, 12), eighth(-64, 64);
  std::vector<float> numbers;
  float scale = 1.0F;
  int block = 0;
  for (int i = 0; i < count; ++i) {
    if (i % 16 == 0) {
      block = kind(random);
      scale = std::ldexp(1.0F, exponent(random));
    }
    const auto step = static_cast<float>(eighth(random));
    numbers.push_back(block == 0   ? 0.0F
                      : block < 3  ? scale * normal(random)
                      : block == 3 ? std::ldexp(scale, eighth(random) % 4)
                                   : scale * step / 8.0F);
  }
  return numbers;
}

std::vector<float> Values(const mx::array& x) {
  mx::array plain = mx::contiguous(mx::astype(x, mx::float32));
  plain.eval();
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

class MlxFloatRoundingTest : public ::testing::Test {
 protected:
  MlxFloatRoundingTest() { mx::set_default_device(mx::Device::cpu); }
  const MlxFloatRounding rounding_{EngineDevice::kMlxCpu};
};

TEST_F(MlxFloatRoundingTest, IsThatOfTheKernels) {
  constexpr int kRows = 40, kWidth = 96;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> numbers = NumbersOf(kRows * kWidth, seed);
    const mx::array x(numbers.data(), {kRows, 2, kWidth / 2});
    const mx::array by_row = mx::reshape(x, {kRows, 1, kWidth});
    std::vector<float> fp8 = numbers, by_power = numbers, by_e4m3 = numbers;
    for (int row = 0; row < kRows; ++row) {
      const auto at = [&](std::vector<float>& all) { return all.data() + row * kWidth; };
      kernels::RoundToFp8(at(fp8), kWidth);
      kernels::RoundToFp4(at(by_power), kWidth, 32, kernels::Fp4Scale::kPowerOfTwo);
      kernels::RoundToFp4(at(by_e4m3), kWidth, 16, kernels::Fp4Scale::kE4m3);
    }
    EXPECT_EQ(Values(rounding_.ToFp8(by_row)), fp8) << seed;
    EXPECT_EQ(Values(rounding_.ToFp4(by_row, 32, kernels::Fp4Scale::kPowerOfTwo)), by_power);
    EXPECT_EQ(Values(rounding_.ToFp4(x, 16, kernels::Fp4Scale::kE4m3)), by_e4m3) << seed;
  }
}

TEST_F(MlxFloatRoundingTest, KeepsTypeAndShapeAndWhatBlocksDoNotDivide) {
  const std::vector<float> numbers = NumbersOf(2 * 3 * 48, 1);
  const mx::array x = mx::astype(mx::array(numbers.data(), {2, 3, 48}), mx::bfloat16);
  const mx::array rounded = rounding_.ToFp4(x, 16, kernels::Fp4Scale::kE4m3);
  EXPECT_EQ(rounded.dtype(), mx::bfloat16);
  EXPECT_EQ(rounded.shape(), x.shape());
  EXPECT_EQ(Values(rounding_.ToFp8(x)), Values(x)) << "48 numbers in blocks of 32";
}

}  // namespace
}  // namespace macrame::runtime::engine
