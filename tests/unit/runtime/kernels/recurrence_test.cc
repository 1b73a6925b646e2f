// Convolution, gated delta rule and state space against plain loops in double, on every instruction
// set.

#include "runtime/kernels/recurrence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/unit/runtime/kernels/targets.h"

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

// One head over some tokens, with room between what belongs to one token and to the next.
struct World {
  World(size_t tokens, size_t key_dim, size_t value_dim) {
    run.tokens = tokens;
    run.key_dim = key_dim;
    run.value_dim = value_dim;
    run.key_stride = 2 * key_dim + 3;
    run.value_stride = run.out_stride = value_dim + 5;
    run.gate_stride = 2;
    keyed = Numbers(tokens * run.key_stride, 1);
    values = Numbers(tokens * run.value_stride, 2);
    gates = Numbers(tokens * run.gate_stride, 3);
    matrix = Numbers(key_dim * value_dim, 4);
    out.assign(tokens * run.out_stride, -7.0F);
    // Keys of about length one, fades and shares within (0, 1).
    for (float& number : keyed) number *= 1.7F / std::sqrt(static_cast<float>(key_dim));
    for (float& number : gates) number = 0.5F + 0.49F * number;
    run.queries = keyed.data();
    run.keys = keyed.data() + key_dim;
    run.values = values.data();
    run.fades = gates.data();
    run.shares = gates.data() + 1;
    run.out = out.data();
    run.matrix = matrix.data();
  }
  // The part of it from `begin` on.
  HeadRun From(size_t begin, size_t tokens) const {
    HeadRun part = run;
    part.tokens = tokens;
    part.queries += begin * run.key_stride;
    part.keys += begin * run.key_stride;
    part.values += begin * run.value_stride;
    part.fades += begin * run.gate_stride;
    part.shares += begin * run.gate_stride;
    part.out += begin * run.out_stride;
    return part;
  }
  std::vector<float> keyed, values, gates, matrix, out;
  HeadRun run;
};

// As the rule is written down, all in double; a state space does not look at what is known.
std::vector<double> Plain(const World& world, std::vector<double>& matrix, bool delta_rule) {
  const HeadRun& run = world.run;
  std::vector<double> out;
  for (size_t t = 0; t < run.tokens; ++t) {
    const float* key = run.keys + t * run.key_stride;
    const float* query = run.queries + t * run.key_stride;
    for (double& number : matrix) number *= double{run.fades[t * run.gate_stride]};
    for (size_t row = 0; row < run.value_dim; ++row) {
      double* numbers = matrix.data() + row * run.key_dim;
      double known = 0, given = 0;
      for (size_t i = 0; delta_rule && i < run.key_dim; ++i) {
        known += numbers[i] * double{key[i]};
      }
      const double delta = double{run.shares[t * run.gate_stride]} *
                           (double{run.values[t * run.value_stride + row]} - known);
      for (size_t i = 0; i < run.key_dim; ++i) numbers[i] += delta * double{key[i]};
      for (size_t i = 0; i < run.key_dim; ++i) given += numbers[i] * double{query[i]};
      out.push_back(given);
    }
  }
  return out;
}

void ExpectMatchesPlainLoops(size_t key_dim, size_t value_dim, bool delta_rule) {
  World world(40, key_dim, value_dim);
  std::vector<double> matrix(world.matrix.begin(), world.matrix.end());
  const std::vector<double> plain = Plain(world, matrix, delta_rule);
  delta_rule ? GatedDelta(world.run) : StateSpace(world.run);
  for (size_t t = 0; t < world.run.tokens; ++t) {
    for (size_t row = 0; row < value_dim; ++row) {
      ASSERT_NEAR(world.out[t * world.run.out_stride + row], plain[t * value_dim + row], 3e-6)
          << key_dim << ", token " << t;
    }
    EXPECT_EQ(world.out[t * world.run.out_stride + value_dim], -7.0F);
  }
  for (size_t i = 0; i < matrix.size(); ++i) ASSERT_NEAR(world.matrix[i], matrix[i], 3e-6) << i;
}

TEST(RecurrenceTest, BothRulesMatchPlainLoops) {
  for (const int64_t target : Targets()) {
    const OnlyTarget only(target);
    for (const auto& [key_dim, value_dim] :
         {std::pair<size_t, size_t>{128, 128}, {24, 7}, {5, 3}}) {
      ExpectMatchesPlainLoops(key_dim, value_dim, /*delta_rule=*/true);
      ExpectMatchesPlainLoops(key_dim, value_dim, /*delta_rule=*/false);
    }
  }
}

TEST(RecurrenceTest, BitsDoNotDependOnWhereTokensWereCut) {
  World whole(37, 72, 18), cut(37, 72, 18);
  GatedDelta(whole.run);
  size_t done = 0;
  for (const size_t count : {1, 20, 3, 13}) {
    GatedDelta(cut.From(done, count));
    done += count;
  }
  EXPECT_EQ(whole.out, cut.out);
  EXPECT_EQ(whole.matrix, cut.matrix);
}

TEST(RecurrenceTest, ConvolutionMatchesPlainLoops) {
  constexpr size_t kTaps = 4;
  for (const int64_t target : Targets()) {
    const OnlyTarget only(target);
    for (const size_t channels : {3, 16, 67}) {
      const auto weights = Numbers(kTaps * channels, 1), bias = Numbers(channels, 2);
      const auto numbers = Numbers(kTaps * channels, 3);
      const float* inputs[kTaps];
      for (size_t j = 0; j < kTaps; ++j) inputs[j] = numbers.data() + (kTaps - 1 - j) * channels;
      for (const float* added : {static_cast<const float*>(nullptr), bias.data()}) {
        std::vector<float> out(channels + 1, -7.0F);
        ConvolveSilu(inputs, weights.data(), added, kTaps, channels, out.data());
        for (size_t c = 0; c < channels; ++c) {
          double sum = added == nullptr ? 0.0 : double{added[c]};
          for (size_t j = 0; j < kTaps; ++j) {
            sum += double{weights[j * channels + c]} * double{inputs[j][c]};
          }
          ASSERT_NEAR(out[c], sum / (1.0 + std::exp(-sum)), 1e-6) << c << " of " << channels;
        }
        EXPECT_EQ(out.back(), -7.0F);
      }
    }
  }
}

}  // namespace
}  // namespace macrame::runtime::kernels
