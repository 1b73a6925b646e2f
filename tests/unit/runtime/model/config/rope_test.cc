#include "runtime/model/config/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace macrame::runtime::engine {
namespace {

RopeTraits Traits(RopeScalingKind scaling, double theta = 10000.0, int dims = 64) {
  RopeTraits rope;
  rope.theta = theta;
  rope.dims = dims;
  rope.scaling = scaling;
  return rope;
}

TEST(RopeTest, PlainFrequenciesFallFromOne) {
  const RopeTable table = MakeRopeTable(Traits(RopeScalingKind::kNone), 4096);
  ASSERT_EQ(table.frequencies.size(), 32u);
  EXPECT_TRUE(table.divisors.empty());
  EXPECT_FLOAT_EQ(table.frequencies[0], 1.0F);
  EXPECT_NEAR(table.frequencies[16], 0.01, 1e-7);
  EXPECT_EQ(table.magnitude, 1.0F);
}

TEST(RopeTest, LinearSlowsPositions) {
  RopeTraits rope = Traits(RopeScalingKind::kLinear);
  rope.factor = 4.0;
  EXPECT_FLOAT_EQ(MakeRopeTable(rope, 4096).position_scale, 0.25F);
}

TEST(RopeTest, Llama3StretchesLongWavesOnly) {
  RopeTraits rope = Traits(RopeScalingKind::kLlama3, 500000.0, 128);
  rope.factor = 8.0;
  const auto divisors = MakeRopeTable(rope, 4096).divisors;
  ASSERT_EQ(divisors.size(), 64u);
  EXPECT_FLOAT_EQ(divisors[0], 1.0F);
  EXPECT_FLOAT_EQ(divisors[63], static_cast<float>(8.0 * std::pow(500000.0, 126.0 / 128.0)));
  for (size_t i = 1; i < divisors.size(); ++i) EXPECT_GT(divisors[i], divisors[i - 1]);
}

TEST(RopeTest, DynamicStretchesForTheContextThatIsServed) {
  RopeTraits rope = Traits(RopeScalingKind::kDynamic);
  rope.factor = 2.0;
  rope.context_length_max = 2048;
  const RopeTable within = MakeRopeTable(rope, 2048), beyond = MakeRopeTable(rope, 4096);
  EXPECT_FLOAT_EQ(within.divisors[31], static_cast<float>(std::pow(10000.0, 62.0 / 64.0)));
  // theta grows by (2 * 4096 / 2048 - 1) to the power 64 / 62, so the last divisor by 3.
  EXPECT_NEAR(beyond.divisors[31] / within.divisors[31], 3.0, 1e-5);
  EXPECT_FLOAT_EQ(beyond.divisors[0], 1.0F);
}

TEST(RopeTest, YarnStretchesWhatTurnsSeldom) {
  RopeTraits rope = Traits(RopeScalingKind::kYarn, 1e6, 128);
  rope.factor = 4.0;
  rope.original_context = 32768;
  const RopeTable table = MakeRopeTable(rope, 131072);
  const auto plain = [](int pair) { return std::pow(1e6, 2.0 * pair / 128.0); };
  // From dimension floor(23.6) on it stretches, from ceil(39.6) on in full.
  EXPECT_FLOAT_EQ(table.divisors[23], static_cast<float>(plain(23)));
  EXPECT_GT(table.divisors[24], plain(24) * 1.01);
  EXPECT_LT(table.divisors[39], plain(39) * 3.99);
  EXPECT_FLOAT_EQ(table.divisors[40], static_cast<float>(4.0 * plain(40)));
  EXPECT_FLOAT_EQ(table.magnitude, static_cast<float>(0.1 * std::log(4.0) + 1.0));
}

TEST(RopeTest, YarnTakesWhatItsConfigSays) {
  RopeTraits rope = Traits(RopeScalingKind::kYarn, 150000.0);
  rope.factor = 32.0;
  rope.original_context = 4096;
  const RopeTable whole = MakeRopeTable(rope, 131072);
  rope.truncate = false;
  const RopeTable exact = MakeRopeTable(rope, 131072);
  // Dimensions 8.1 to 17.4: rounded outwards to 8 and 18.
  EXPECT_EQ(exact.divisors[8], MakeRopeTable(rope, 1).divisors[8]);
  EXPECT_GT(whole.divisors[9], exact.divisors[9]);
  EXPECT_LT(whole.divisors[17], exact.divisors[17]);
  rope.mscale_all_dim = 1.0;
  EXPECT_FLOAT_EQ(MakeRopeTable(rope, 131072).magnitude, 1.0F);
  rope.mscale = 0.707;
  EXPECT_FLOAT_EQ(MakeRopeTable(rope, 131072).magnitude,
                  static_cast<float>(YarnMagnitude(32.0, 0.707) / YarnMagnitude(32.0, 1.0)));
  rope.attention_factor = 1.5;
  EXPECT_FLOAT_EQ(MakeRopeTable(rope, 131072).magnitude, 1.5F);
}

TEST(RopeTest, ProportionalTurnsAFewPairsAsFastAsIfAllDid) {
  RopeTraits rope = Traits(RopeScalingKind::kProportional, 1e6, 16);
  rope.turned = 4;
  rope.factor = 2.0;
  const RopeTable table = MakeRopeTable(rope, 2048);
  ASSERT_EQ(table.frequencies.size(), 8u) << "pair i is dimensions i and i + 8";
  EXPECT_FLOAT_EQ(table.divisors[0], 2.0F);
  EXPECT_FLOAT_EQ(table.divisors[1], static_cast<float>(2.0 * std::pow(1e6, 2.0 / 16.0)));
  for (size_t pair = 2; pair < 8; ++pair) EXPECT_EQ(table.frequencies[pair], 0.0F) << pair;
}

TEST(RopeTest, LongropeGoesByTheContextThatIsServed) {
  RopeTraits rope = Traits(RopeScalingKind::kLongrope, 10000.0, 4);
  rope.original_context = 4096;
  rope.context_length_max = 131072;
  rope.short_factors = {1.0, 1.5};
  rope.long_factors = {2.0, 30.0};
  const RopeTable shorter = MakeRopeTable(rope, 4096), longer = MakeRopeTable(rope, 4097);
  EXPECT_FLOAT_EQ(shorter.divisors[1], 150.0F);
  EXPECT_FLOAT_EQ(longer.divisors[0], 2.0F);
  EXPECT_FLOAT_EQ(longer.divisors[1], 3000.0F);
  const auto magnitude = static_cast<float>(std::sqrt(1.0 + std::log(32.0) / std::log(4096.0)));
  EXPECT_FLOAT_EQ(shorter.magnitude, magnitude);
  EXPECT_FLOAT_EQ(longer.magnitude, magnitude);
}

}  // namespace
}  // namespace macrame::runtime::engine
