// Rotary forms of random traits against the formulas of transformers' modeling_rope_utils, written
// as they stand there: over all pairs at once, with inverse frequencies.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "runtime/model/config/rope.h"

namespace macrame::runtime::engine {
namespace {

using Numbers = std::vector<double>;

struct Form {
  Numbers inverse_frequencies;
  double attention_factor = 1.0;
};

Numbers Plain(double base, int dim) {
  Numbers all;
  for (int i = 0; i < dim; i += 2) all.push_back(1.0 / std::pow(base, double{1} * i / dim));
  return all;
}

Form Dynamic(const RopeTraits& rope, int context) {
  const double length = std::max(context, rope.context_length_max);
  const double base =
      rope.theta * std::pow(rope.factor * length / rope.context_length_max - (rope.factor - 1),
                            double{1} * rope.dims / (rope.dims - 2));
  return {Plain(base, rope.dims)};
}

Form Llama3(const RopeTraits& rope) {
  Form form{Plain(rope.theta, rope.dims)};
  for (double& frequency : form.inverse_frequencies) {
    const double wavelength = 2 * M_PI / frequency, old = rope.original_context;
    const double smooth =
        (old / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    const bool is_medium =
        wavelength >= old / rope.high_freq_factor && wavelength <= old / rope.low_freq_factor;
    const double scaled =
        wavelength > old / rope.low_freq_factor ? frequency / rope.factor : frequency;
    frequency = is_medium ? (1 - smooth) * frequency / rope.factor + smooth * frequency : scaled;
  }
  return form;
}

Form Yarn(const RopeTraits& rope) {
  const auto correction_dim = [&](double rotations) {
    return (rope.dims * std::log(rope.original_context / (rotations * 2 * M_PI))) /
           (2 * std::log(rope.theta));
  };
  double low = correction_dim(rope.beta_fast), high = correction_dim(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rope.dims - 1.0);
  if (low == high) high += 0.001;
  Form form{Plain(rope.theta, rope.dims)};
  for (size_t i = 0; i < form.inverse_frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double extrapolated = form.inverse_frequencies[i];
    form.inverse_frequencies[i] = extrapolated / rope.factor * ramp + extrapolated * (1 - ramp);
  }
  const auto mscale = [&](double by) {
    return rope.factor <= 1 ? 1.0 : 0.1 * by * std::log(rope.factor) + 1.0;
  };
  form.attention_factor = rope.attention_factor.value_or(
      rope.mscale_all_dim > 0 ? mscale(rope.mscale) / mscale(rope.mscale_all_dim)
                              : mscale(rope.mscale));
  return form;
}

Form Longrope(const RopeTraits& rope, int context) {
  Form form{Plain(rope.theta, rope.dims)};
  const Numbers& factors = context > rope.original_context ? rope.long_factors : rope.short_factors;
  for (size_t i = 0; i < factors.size(); ++i) form.inverse_frequencies[i] /= factors[i];
  const double factor = double{1} * rope.context_length_max / rope.original_context;
  const double own =
      factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(rope.original_context));
  form.attention_factor = rope.attention_factor.value_or(own);
  return form;
}

Form Reference(const RopeTraits& rope, int context) {
  switch (rope.scaling) {
    case RopeScalingKind::kDynamic:
      return Dynamic(rope, context);
    case RopeScalingKind::kLlama3:
      return Llama3(rope);
    case RopeScalingKind::kYarn:
      return Yarn(rope);
    case RopeScalingKind::kLongrope:
      return Longrope(rope, context);
    case RopeScalingKind::kNone:
    case RopeScalingKind::kLinear:
    case RopeScalingKind::kProportional:
      break;
  }
  Form form{Plain(rope.theta, rope.dims)};
  for (size_t i = 0; i < form.inverse_frequencies.size(); ++i) {
    double& frequency = form.inverse_frequencies[i];
    if (rope.scaling != RopeScalingKind::kNone) frequency /= rope.factor;
    const bool is_proportional = rope.scaling == RopeScalingKind::kProportional;
    if (is_proportional && i >= static_cast<size_t>(rope.turned / 2)) frequency = 0;
  }
  return form;
}

class RandomRopes {
 public:
  explicit RandomRopes(uint32_t seed) : random_(seed) {}

  RopeTraits Next(RopeScalingKind kind) {
    RopeTraits rope;
    rope.scaling = kind;
    rope.dims = 2 * Whole(2, 64);
    rope.theta = std::exp(Between(std::log(50.0), std::log(1e7)));
    rope.factor = Between(1.0, 40.0);
    rope.original_context = Whole(16, 40000);
    rope.context_length_max = Whole(16, 200000);
    rope.low_freq_factor = Between(0.5, 3.0);
    rope.high_freq_factor = rope.low_freq_factor + Between(0.1, 6.0);
    rope.beta_slow = Between(0.5, 4.0);
    rope.beta_fast = rope.beta_slow + Between(0.0, 40.0);
    rope.mscale = Between(0.1, 2.0);
    rope.mscale_all_dim = Whole(0, 1) * Between(0.1, 2.0);
    rope.truncate = Whole(0, 1) == 1;
    if (Whole(0, 3) == 0) rope.attention_factor = Between(0.5, 2.0);
    rope.turned = 2 * Whole(1, rope.dims / 2);
    for (int i = 0; i < rope.dims / 2; ++i) {
      rope.short_factors.push_back(Between(1.0, 4.0));
      rope.long_factors.push_back(Between(1.0, 60.0));
    }
    return rope;
  }
  int Context() { return Whole(1, 300000); }

 private:
  int Whole(int lowest, int highest) {
    return std::uniform_int_distribution<int>(lowest, highest)(random_);
  }
  double Between(double lowest, double highest) {
    return std::uniform_real_distribution<double>(lowest, highest)(random_);
  }
  std::mt19937 random_;
};

class RopeReferenceTest : public ::testing::TestWithParam<RopeScalingKind> {};

TEST_P(RopeReferenceTest, AngleOfEachPairIsTheFormulas) {
  RandomRopes ropes(static_cast<uint32_t>(GetParam()) + 1);
  for (int round = 0; round < 500; ++round) {
    const RopeTraits rope = ropes.Next(GetParam());
    const int context = ropes.Context();
    const RopeTable table = MakeRopeTable(rope, context);
    const Form expected = Reference(rope, context);
    SCOPED_TRACE("round " + std::to_string(round));
    ASSERT_EQ(table.frequencies.size(), expected.inverse_frequencies.size());
    for (size_t i = 0; i < table.frequencies.size(); ++i) {
      const double frequency = double{table.frequencies[i]} * table.position_scale;
      ASSERT_NEAR(frequency, expected.inverse_frequencies[i],
                  2e-6 * expected.inverse_frequencies[i])
          << "pair " << i << " of " << rope.dims;
      if (table.divisors.empty()) continue;
      ASSERT_FLOAT_EQ(table.frequencies[i], 1.0F / table.divisors[i]) << "both engines turn alike";
    }
    EXPECT_NEAR(table.magnitude, expected.attention_factor, 1e-6 * expected.attention_factor);
  }
}

// Pairs turn slower and slower, and none faster than without a form.
TEST_P(RopeReferenceTest, NoPairTurnsFasterThanThePlainForm) {
  RandomRopes ropes(static_cast<uint32_t>(GetParam()) + 77);
  for (int round = 0; round < 200; ++round) {
    const RopeTraits rope = ropes.Next(GetParam());
    const RopeTable table = MakeRopeTable(rope, ropes.Context());
    const Numbers plain = Plain(rope.theta, rope.dims);
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_LE(double{table.frequencies[i]} * table.position_scale, plain[i] * (1 + 1e-5));
    }
  }
}

// Where the context decides the angles, keys on disk of one context are not read for another.
TEST_P(RopeReferenceTest, KeysOfAnotherContextAreToldApart) {
  RandomRopes ropes(static_cast<uint32_t>(GetParam()) + 5);
  const RopeTraits rope = ropes.Next(GetParam());
  bool differs = false;
  const RopeTable shorter = MakeRopeTable(rope, 16);
  for (const int context : {64, 4096, 300000, 1 << 30}) {
    differs = differs || MakeRopeTable(rope, context).frequencies != shorter.frequencies;
  }
  EXPECT_EQ(differs, rope.FollowsContext());
  const std::string own = RopeLayoutOf(rope, std::nullopt, 4096);
  EXPECT_EQ(own != RopeLayoutOf(rope, std::nullopt, 300000), differs);
  EXPECT_EQ(own.empty(), !differs);
  RopeTraits plain;
  EXPECT_EQ(RopeLayoutOf(plain, rope, 4096), own) << "of the layers that look at a window";
}

INSTANTIATE_TEST_SUITE_P(Forms, RopeReferenceTest,
                         ::testing::Values(RopeScalingKind::kNone, RopeScalingKind::kLinear,
                                           RopeScalingKind::kDynamic, RopeScalingKind::kLlama3,
                                           RopeScalingKind::kYarn, RopeScalingKind::kLongrope,
                                           RopeScalingKind::kProportional));

TEST(RopeReferencesTest, AFactorOfOneChangesNothing) {
  RandomRopes ropes(3);
  for (const RopeScalingKind kind : {RopeScalingKind::kLinear, RopeScalingKind::kLlama3,
                                     RopeScalingKind::kYarn, RopeScalingKind::kDynamic}) {
    RopeTraits rope = ropes.Next(kind);
    rope.factor = 1.0;
    rope.attention_factor.reset();
    const RopeTable table = MakeRopeTable(rope, rope.context_length_max);
    const Numbers plain = Plain(rope.theta, rope.dims);
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_NEAR(table.frequencies[i] * table.position_scale, plain[i], 2e-6 * plain[i]);
    }
    EXPECT_FLOAT_EQ(table.magnitude, 1.0F);
  }
}

TEST(RopeReferencesTest, ADynamicFormOfOnePairIsLeftAsItIs) {
  RopeTraits rope;
  rope.scaling = RopeScalingKind::kDynamic;
  rope.dims = 2;
  rope.factor = 8.0;
  rope.context_length_max = 16;
  EXPECT_THAT(MakeRopeTable(rope, 4096).frequencies, ::testing::ElementsAre(1.0F));
}

}  // namespace
}  // namespace macrame::runtime::engine
