// What layers with a state compute as MLX graphs, against the CPU's kernels, which go token by
// token; and how many primitives the graphs have.

#include "runtime/model/mlx/recurrence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/kernels/recurrence.h"
#include "tests/unit/runtime/model/graph_nodes.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

using Floats = std::vector<float>;

constexpr size_t kKeyHeads = 2, kGroup = 3, kHeads = kKeyHeads * kGroup;
constexpr size_t kKeyDim = 16, kValueDim = 24;

RecurrentCut Cut() {
  RecurrentCut cut;
  cut.key_heads = kKeyHeads;
  cut.value_heads = kHeads;
  cut.key_dim = kKeyDim;
  cut.value_dim = kValueDim;
  return cut;
}

mx::array ArrayOf(const Floats& numbers, const std::vector<size_t>& shape) {
  mx::Shape sizes;
  for (const size_t size : shape) sizes.push_back(static_cast<int>(size));
  return mx::array(numbers.data(), sizes);
}

Floats FloatsOf(mx::array given) {
  given = mx::contiguous(given);
  given.eval();
  return {given.data<float>(), given.data<float>() + given.size()};
}

struct Numbers {
  size_t sequences, tokens;
  Floats keyed, values, logs, shares, state;
};

class RecurrenceTest : public ::testing::TestWithParam<RecurrenceRule> {
 protected:
  RecurrenceTest() { mx::set_default_device(mx::Device::cpu); }

  bool is_delta() const { return GetParam() == RecurrenceRule::kGatedDelta; }
  Floats Random(size_t count, float least, float greatest) {
    std::uniform_real_distribution<float> between(least, greatest);
    Floats floats(count);
    for (float& number : floats) number = between(random_);
    return floats;
  }
  Numbers RandomNumbers(size_t sequences, size_t tokens) {
    const size_t all = sequences * tokens;
    Numbers numbers{sequences,
                    tokens,
                    Random(all * 2 * kKeyHeads * kKeyDim, -1.0F, 1.0F),
                    Random(all * kHeads * kValueDim, -2.0F, 2.0F),
                    Random(all * kHeads, -3.0F, 0.0F),
                    Random(all * kHeads, 0.0F, 1.0F),
                    Random(sequences * kHeads * kValueDim * kKeyDim, -1.0F, 1.0F)};
    // Some heads forget next to nothing, one nearly all.
    for (size_t i = 0; i < numbers.logs.size(); ++i) {
      if (i % kHeads < 3) numbers.logs[i] *= 1e-3F;
      if (i % kHeads == 5) numbers.logs[i] *= 40.0F;
    }
    if (is_delta()) Measure(numbers.keyed);
    return numbers;
  }
  static void Measure(Floats& keyed) {
    for (size_t begin = 0; begin < keyed.size(); begin += kKeyDim) {
      float squares = 0;
      for (size_t i = 0; i < kKeyDim; ++i) squares += keyed[begin + i] * keyed[begin + i];
      for (size_t i = 0; i < kKeyDim; ++i) keyed[begin + i] /= std::sqrt(squares);
    }
  }
  static MlxRecurrence::Result Graph(const MlxRecurrence& recurrence, const Numbers& numbers) {
    const size_t n = numbers.sequences, count = numbers.tokens;
    return recurrence.Run(
        {ArrayOf(numbers.keyed, {n, count, 2 * kKeyHeads, kKeyDim}),
         ArrayOf(numbers.values, {n, count, kHeads, kValueDim}),
         ArrayOf(numbers.logs, {n, count, kHeads}), ArrayOf(numbers.shares, {n, count, kHeads})},
        ArrayOf(numbers.state, {n, kHeads, kValueDim, kKeyDim}));
  }
  // What is given, and the states behind.
  std::pair<Floats, Floats> Plain(const Numbers& numbers) const {
    Floats given(numbers.values.size()), states = numbers.state, fades;
    for (const float log : numbers.logs) fades.push_back(std::exp(log));
    for (size_t job = 0; job < numbers.sequences * kHeads; ++job) {
      const size_t first = job / kHeads * numbers.tokens, head = job % kHeads;
      kernels::HeadRun run;
      run.tokens = numbers.tokens;
      run.key_dim = kKeyDim;
      run.value_dim = kValueDim;
      run.key_stride = 2 * kKeyHeads * kKeyDim;
      run.queries = numbers.keyed.data() + first * run.key_stride + head / kGroup * kKeyDim;
      run.keys = run.queries + kKeyHeads * kKeyDim;
      run.value_stride = run.out_stride = kHeads * kValueDim;
      run.values = numbers.values.data() + first * run.value_stride + head * kValueDim;
      run.out = given.data() + first * run.out_stride + head * kValueDim;
      run.gate_stride = kHeads;
      run.fades = fades.data() + first * kHeads + head;
      run.shares = numbers.shares.data() + first * kHeads + head;
      run.matrix = states.data() + job * kValueDim * kKeyDim;
      is_delta() ? kernels::GatedDelta(run) : kernels::StateSpace(run);
    }
    return {given, states};
  }
  void ExpectAsPlain(const Numbers& numbers) const {
    const MlxRecurrence::Result result = Graph(recurrence_, numbers);
    const auto [given, states] = Plain(numbers);
    ExpectNear(FloatsOf(result.given), given);
    ExpectNear(FloatsOf(result.state), states);
  }
  static void ExpectNear(const Floats& ours, const Floats& plain) {
    ASSERT_EQ(ours.size(), plain.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      ASSERT_NEAR(ours[i], plain[i], 1e-4 * (1 + std::fabs(plain[i]))) << i;
    }
  }
  // As on a GPU, where elementwise functions are one primitive; nothing is evaluated.
  size_t NodesOf(size_t sequences, size_t tokens) {
    const MlxRecurrence recurrence{GetParam(), Cut(), EngineDevice::kGpu};
    const MlxRecurrence::Result result = Graph(recurrence, RandomNumbers(sequences, tokens));
    std::unordered_set<std::uintptr_t> seen;
    return CountNodes({result.given, result.state}, seen).computing;
  }

  const MlxRecurrence recurrence_{GetParam(), Cut(), EngineDevice::kMlxCpu};
  std::mt19937 random_{7};
};

TEST_P(RecurrenceTest, RunsOfAnyLengthGiveWhatTheKernelsGive) {
  for (const size_t tokens : {1, 2, 3, 16, 37, 63, 64, 65, 128, 200}) {
    SCOPED_TRACE(tokens);
    ExpectAsPlain(RandomNumbers(1, tokens));
  }
}

TEST_P(RecurrenceTest, SequencesRunTogether) {
  for (const size_t tokens : {1, 5, 70}) {
    SCOPED_TRACE(tokens);
    ExpectAsPlain(RandomNumbers(3, tokens));
  }
}

// More blocks than there are masks for.
TEST_P(RecurrenceTest, LongRunsGiveWhatTheKernelsGive) { ExpectAsPlain(RandomNumbers(1, 4200)); }

// The same token again and again, which hardly fades: powers of what keys have in common grow
// beyond float32, their inverse does not.
TEST_P(RecurrenceTest, EqualKeysStayExact) {
  Numbers numbers = RandomNumbers(1, 128);
  for (size_t i = 0; i < numbers.keyed.size(); ++i) {
    numbers.keyed[i] = numbers.keyed[i % (2 * kKeyHeads * kKeyDim)];
  }
  for (float& log : numbers.logs) log *= 1e-3F;
  for (float& share : numbers.shares) share = is_delta() ? 1.0F : 0.01F;
  ExpectAsPlain(numbers);
}

TEST_P(RecurrenceTest, LongerRunsHaveFewMorePrimitives) {
  const size_t one = NodesOf(1, 1), few = NodesOf(1, 16), block = NodesOf(1, 64);
  const size_t blocks = NodesOf(1, 256);
  EXPECT_EQ(NodesOf(8, 1), one);
  EXPECT_EQ(NodesOf(8, 16), few);
  if (is_delta()) {
    EXPECT_EQ(one, 3u);
    EXPECT_EQ(block, few + 2 * 3) << "two more levels of an inverse";
    EXPECT_EQ(blocks, block + 3 * 3 + 2) << "three for each further block, which are put together";
    EXPECT_LE(blocks, 44u);
  } else {
    EXPECT_EQ(one, 2u);
    EXPECT_EQ(block, few);
    EXPECT_EQ(blocks, few);
    EXPECT_EQ(NodesOf(1, 2048), few);
    EXPECT_LE(few, 14u);
  }
}

std::string NameOf(const ::testing::TestParamInfo<RecurrenceRule>& info) {
  return info.param == RecurrenceRule::kGatedDelta ? "GatedDelta" : "StateSpace";
}
INSTANTIATE_TEST_SUITE_P(Rules, RecurrenceTest,
                         ::testing::Values(RecurrenceRule::kGatedDelta,
                                           RecurrenceRule::kStateSpace),
                         NameOf);

}  // namespace
}  // namespace macrame::runtime::engine
