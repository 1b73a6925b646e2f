// What lies between matrix products, against plain loops in double.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/kernels/elementwise.h"

namespace macrame::runtime::kernels {
namespace {

// Numbers in [-1, 1) that `seed` fixes.
std::vector<float> Numbers(size_t count, uint32_t seed) {
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    seed = seed * 1664525U + 1013904223U;
    number = static_cast<float>(seed >> 8) / 8388608.0F - 1.0F;
  }
  return numbers;
}

// The exponential function that attention and the gates share: far below zero a gate lets through
// little else.
TEST(ElementwiseTest, GatesAreRightToTheLastBits) {
  std::vector<float> gate;
  for (float value = -87.9F; value < 86.9F; value += 0.0173F) gate.push_back(value);
  std::vector<float> x(gate.size(), 1.0F);
  SigmoidMultiply(gate.data(), gate.size(), x.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double exact = 1.0 / (1.0 + std::exp(-double{gate[i]}));
    ASSERT_NEAR(x[i] / exact, 1.0, 2.5e-7) << gate[i];
  }
}

TEST(ElementwiseTest, GatesAtTheirEnds) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float gate[] = {0.0F, infinity, 100.0F, 1e30F, -infinity, std::nanf("")};
  float x[] = {1.0F, 1.0F, 1.0F, 1.0F, 1.0F, 1.0F};
  SigmoidMultiply(gate, 6, x);
  EXPECT_EQ(x[0], 0.5F);
  EXPECT_EQ(x[1], 1.0F);
  EXPECT_EQ(x[2], 1.0F);
  EXPECT_EQ(x[3], 1.0F);
  EXPECT_NEAR(x[4] * std::exp(88.0), 1.0, 1e-6);
  EXPECT_TRUE(std::isnan(x[5]));
}

TEST(ElementwiseTest, SquaredReluLeavesWhatIsAboveZero) {
  for (const size_t size : {1, 16, 37}) {
    auto x = Numbers(size, 1);
    const auto before = x;
    SquaredRelu(x.data(), size);
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(x[i], before[i] > 0 ? before[i] * before[i] : 0.0F) << i;
    }
  }
}

TEST(ElementwiseTest, SigmoidMultiplyMatchesPlainLoops) {
  for (const size_t size : {1, 16, 37}) {
    const auto gate = Numbers(size, 1);
    auto x = Numbers(size, 2);
    const auto before = x;
    SigmoidMultiply(gate.data(), size, x.data());
    for (size_t i = 0; i < size; ++i) {
      ASSERT_NEAR(x[i], before[i] / (1.0 + std::exp(-double{gate[i]})), 2e-7) << i;
    }
  }
}

TEST(ElementwiseTest, RmsNormMatchesPlainLoops) {
  for (const size_t size : {6, 64, 80, 128, 2048 + 3}) {
    const auto x = Numbers(size, 1), weight = Numbers(size, 2);
    double squares = 0.0;
    for (const float value : x) squares += double{value} * value;
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(size) + 1e-5);
    std::vector<float> out(size), in_place = x;
    RmsNorm(x.data(), weight.data(), 1e-5F, size, out.data());
    RmsNorm(in_place.data(), weight.data(), 1e-5F, size, in_place.data());
    EXPECT_EQ(out, in_place);
    for (size_t i = 0; i < size; ++i) ASSERT_NEAR(out[i], x[i] * scale * weight[i], 1e-6) << i;
  }
}

TEST(ElementwiseTest, RotateTurnsHalvesAgainstEachOther) {
  for (const size_t head_dim : {6, 64, 80, 128}) {
    const size_t half = head_dim / 2;
    std::vector<float> cosines(half), sines(half);
    for (size_t i = 0; i < half; ++i) {
      cosines[i] = std::cos(0.3F * static_cast<float>(i));
      sines[i] = std::sin(0.3F * static_cast<float>(i));
    }
    const auto x = Numbers(3 * head_dim, 3);
    auto out = x;
    Rotate(out.data(), 3, head_dim, {head_dim, false, cosines.data(), sines.data()});
    for (size_t head = 0; head < 3; ++head) {
      for (size_t i = 0; i < half; ++i) {
        const double first = x[head * head_dim + i], second = x[head * head_dim + half + i];
        ASSERT_NEAR(out[head * head_dim + i], first * cosines[i] - second * sines[i], 1e-6);
        ASSERT_NEAR(out[head * head_dim + half + i], first * sines[i] + second * cosines[i], 1e-6);
      }
    }
  }
}

TEST(ElementwiseTest, RotateLeavesWhatIsBehindItsDimensions) {
  constexpr size_t kHeadDim = 80, kDims = 52;
  std::vector<float> cosines(kDims / 2), sines(kDims / 2);
  for (size_t i = 0; i < kDims / 2; ++i) {
    cosines[i] = std::cos(0.3F * static_cast<float>(i));
    sines[i] = std::sin(0.3F * static_cast<float>(i));
  }
  const auto x = Numbers(2 * kHeadDim, 3);
  for (const bool interleaved : {false, true}) {
    auto out = x;
    Rotate(out.data(), 2, kHeadDim, {kDims, interleaved, cosines.data(), sines.data()});
    for (size_t head = 0; head < 2; ++head) {
      const float* from = x.data() + head * kHeadDim;
      const float* to = out.data() + head * kHeadDim;
      for (size_t i = 0; i < kDims / 2; ++i) {
        const size_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + kDims / 2;
        ASSERT_NEAR(to[a], double{from[a]} * cosines[i] - double{from[b]} * sines[i], 1e-6);
        ASSERT_NEAR(to[b], double{from[a]} * sines[i] + double{from[b]} * cosines[i], 1e-6);
      }
      for (size_t i = kDims; i < kHeadDim; ++i) ASSERT_EQ(to[i], from[i]);
    }
  }
}

TEST(ElementwiseTest, GeluMultiplyMatchesPlainLoops) {
  for (const size_t size : {1, 5, 64, 1000}) {
    auto gate = Numbers(size, 4);
    const auto up = Numbers(size, 5);
    for (float& value : gate) value *= 6.0F;
    gate[0] = -200.0F;
    std::vector<float> out(size);
    GeluMultiply(gate.data(), up.data(), size, out.data());
    for (size_t i = 0; i < size; ++i) {
      const double x = gate[i];
      const double inside = std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
      const double exact = x / (1.0 + std::exp(-2.0 * inside)) * up[i];
      ASSERT_NEAR(out[i], exact, 1e-5 * std::fabs(exact) + 1e-30) << gate[i];
    }
  }
}

TEST(ElementwiseTest, SiluMultiplyMatchesPlainLoops) {
  for (const size_t size : {1, 5, 64, 1000}) {
    auto gate = Numbers(size, 4);
    const auto up = Numbers(size, 5);
    for (float& value : gate) value *= 20.0F;
    gate[0] = -200.0F;
    std::vector<float> out(size);
    SiluMultiply(gate.data(), up.data(), size, out.data());
    for (size_t i = 0; i < size; ++i) {
      const double exact = gate[i] / (1.0 + std::exp(-double{gate[i]})) * up[i];
      ASSERT_NEAR(out[i], exact, 4e-7 * std::fabs(exact) + 1e-30) << gate[i];
    }
  }
}

TEST(ElementwiseTest, ClampedSwigluMatchesPlainLoops) {
  for (const size_t size : {1, 5, 64, 1000}) {
    auto gate = Numbers(size, 4), up = Numbers(size, 5);
    for (float& value : gate) value *= 20.0F;
    for (float& value : up) value *= 20.0F;
    gate[0] = -200.0F;
    std::vector<float> out(size), in_place = gate;
    ClampedSwiglu(gate.data(), up.data(), 1.702F, 7.0F, size, out.data());
    ClampedSwiglu(in_place.data(), up.data(), 1.702F, 7.0F, size, in_place.data());
    EXPECT_EQ(out, in_place);
    for (size_t i = 0; i < size; ++i) {
      const double g = std::min(double{gate[i]}, 7.0);
      const double u = std::clamp(double{up[i]}, -7.0, 7.0);
      const double exact = g / (1.0 + std::exp(-1.702F * g)) * (u + 1.0);
      // The exponent is rounded before it is raised: up to 34 is off by 2e-6.
      ASSERT_NEAR(out[i], exact, 5e-6 * std::fabs(exact) + 1e-6) << gate[i] << ", " << up[i];
    }
  }
  const float bad = std::nanf("");
  const float one = 1.0F;
  float out = 0.0F;
  ClampedSwiglu(&bad, &one, 1.702F, 7.0F, 1, &out);
  EXPECT_TRUE(std::isnan(out));
  ClampedSwiglu(&one, &bad, 1.702F, 7.0F, 1, &out);
  EXPECT_TRUE(std::isnan(out));
}

TEST(ElementwiseTest, AddToAdds) {
  const auto x = Numbers(77, 6), before = Numbers(77, 7);
  auto to = before;
  AddTo(x.data(), 77, to.data());
  for (size_t i = 0; i < 77; ++i) EXPECT_EQ(to[i], before[i] + x[i]);
}

}  // namespace
}  // namespace macrame::runtime::kernels
