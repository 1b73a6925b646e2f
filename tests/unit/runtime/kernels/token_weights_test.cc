// Weights of tokens: each instruction set gives the plain way's numbers, and these are the
// softmax's, as closely as the header says.

#include "runtime/kernels/token_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/unit/runtime/kernels/targets.h"

namespace macrame::runtime::kernels {
namespace {

constexpr uint64_t kFullWeight = uint64_t{1} << kFullWeightBits;  // of the likeliest token
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(TokenWeightsTest, AWeightIsThePowerOfItsDistance) {
  EXPECT_EQ(WeightAt(0), kFullWeight);
  EXPECT_EQ(WeightAt(1u << kDistanceBits), kFullWeight / 2);
  EXPECT_EQ(WeightAt(kFarthest), 0u);
  uint64_t before = kFullWeight;
  for (uint32_t distance = 0; distance <= kFarthest; distance += 1 + distance / 4000) {
    const uint64_t weight = WeightAt(distance);
    const double exact = std::exp2(kFullWeightBits - distance / 65536.0);
    ASSERT_NEAR(static_cast<double>(weight), exact, 2e-9 * exact + 1.0) << distance;
    ASSERT_LE(weight, before) << "a token that is farther away weighs no more";
    before = weight;
  }
}

TEST(TokenWeightsTest, WeightsAreThoseOfTheSoftmax) {
  for (const double temperature : {0.01, 0.3, 1.0, 7.0, 100.0}) {
    const float scale = NumbersOf(temperature, 1.0, 0.0, 0, 0).scale;
    for (const double below : {0.0, 0.001, 0.5, 3.0, 11.0, 20.0}) {
      const float highest = 20.0F, logit = static_cast<float>(20.0 - below * temperature);
      const double exact = std::exp((double{logit} - highest) / temperature);
      const double share = static_cast<double>(WeightAt(DistanceOf(highest, logit, scale))) /
                           static_cast<double>(kFullWeight);
      // A step of distance, the rounding of the scale and product, and of the weight.
      EXPECT_NEAR(share, exact, 1.5e-5 * exact + 1e-12) << temperature << ", " << below;
      EXPECT_GE(share, 0.999995 * exact - 1e-12) << "a distance is cut, so a weight is not less";
    }
  }
}

TEST(TokenWeightsTest, EachInstructionSetGivesTheSameNumbers) {
  std::mt19937 random(5);
  for (const int64_t target : Targets()) {
    const OnlyTarget only(target);
    SCOPED_TRACE(hwy::TargetName(target));
    for (const size_t size : {0, 1, 3, 4, 7, 8, 15, 16, 17, 33, 255, 256}) {
      for (const float scale : {945.0F, 94548.0F, 1e6F, std::numeric_limits<float>::max()}) {
        std::normal_distribution<float> normal(3.0F, 6.0F);
        std::vector<float> logits(size);
        for (float& logit : logits) logit = std::min(normal(random), 20.0F);
        for (size_t i = 0; i < size; i += 5) logits[i] = -kInfinity;
        for (size_t i = 2; i < size; i += 7) logits[i] = 20.0F;
        std::vector<uint32_t> distances(size + 1, 7);
        std::vector<uint64_t> weights(size + 1, 7);
        WeighLogits(logits.data(), size, 20.0F, scale, distances.data(), weights.data());
        EXPECT_EQ(distances[size], 7u);
        EXPECT_EQ(weights[size], 7u) << "one for each logit, and no more";
        for (const uint32_t farthest : {0u, 1000u, 20u << kDistanceBits, kFarthest}) {
          uint64_t sum = 0;
          for (size_t i = 0; i < size; ++i) {
            const uint32_t distance = DistanceOf(20.0F, logits[i], scale);
            ASSERT_EQ(distances[i], distance) << size << ", " << i;
            ASSERT_EQ(weights[i], WeightAt(distance)) << size << ", " << i;
            sum += distance <= farthest ? weights[i] : 0;
          }
          ASSERT_EQ(SumOfWeights(logits.data(), size, 20.0F, scale, farthest), sum) << size;
        }
      }
    }
  }
}

TEST(TokenWeightsTest, TheNumbersOfADrawKeepATokenWhateverIsAsked) {
  const DrawNumbers greedy = NumbersOf(0.0, 0.5, 0.5, 3, 4);
  EXPECT_EQ(greedy.farthest, 0u);
  EXPECT_EQ(greedy.draw, 0u);
  EXPECT_EQ(DistanceOf(1.0F, 1.0F, greedy.scale), 0u);
  EXPECT_EQ(DistanceOf(1.0F, std::nextafter(1.0F, 0.0F), greedy.scale), kFarthest);
  EXPECT_EQ(NumbersOf(1.0, 1.0, 0.0, 0, 0).top_p, kWhole);
  EXPECT_EQ(NumbersOf(1.0, 1.0, 0.0, 0, 0).farthest, kFarthest);
  EXPECT_EQ(NumbersOf(1.0, 1.0, 1.0, 0, 0).farthest, 0u);
  EXPECT_EQ(NumbersOf(1.0, 1.0, 0.25, 0, 0).farthest, 2u << kDistanceBits);
  EXPECT_GT(ShareOf(kFullWeight, NumbersOf(1.0, 1e-300, 0.0, 0, 0).top_p), 0u);
  EXPECT_TRUE(std::isfinite(NumbersOf(1e-300, 1.0, 0.0, 0, 0).scale));
}

TEST(TokenWeightsTest, SharesAreCutProducts) {
  std::mt19937_64 random(9);
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t total = random() >> (2 + random() % 60);
    const uint64_t share = i == 0 ? kWhole : random() >> 32;
    __extension__ using Wide = unsigned __int128;
    ASSERT_EQ(ShareOf(total, share), static_cast<uint64_t>((Wide{total} * share) >> 32));
  }
  EXPECT_EQ(ShareOf(uint64_t{1} << 62, kWhole), uint64_t{1} << 62);
}

// Each of 64 parts of what a draw may be is drawn as often, over seeds as over positions.
TEST(TokenWeightsTest, DrawsAreEven) {
  constexpr int kDraws = 64'000;
  for (const bool by_seed : {false, true}) {
    std::vector<int> counts(64);
    for (uint64_t i = 0; i < kDraws; ++i) {
      ++counts[(by_seed ? DrawAt(i, 77) : DrawAt(77, i)) >> 26];
    }
    double chi = 0.0;
    for (const int count : counts) chi += (count - 1000.0) * (count - 1000.0) / 1000.0;
    EXPECT_NEAR(chi, 63.0, 4.0 * std::sqrt(2.0 * 63.0));
  }
}

}  // namespace
}  // namespace macrame::runtime::kernels
