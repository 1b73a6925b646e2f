#include "planner/cost_model.h"

#include <gtest/gtest.h>

#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

const RankSpeed kRank{ComputeKind::kGpu, 800e9, 60e12};

double WeightsUs(const v1::ModelDescription& model, const StepLoad& load, Slice slice = {}) {
  const StepModel step(model, load, CostParameters());
  return step.TimeOf(kRank, 0, model.layer_count(), slice).weights_us;
}

TEST(CostModel, OneTokenReadsTheChosenExpertsOnly) {
  const v1::ModelDescription dense = LargeModel("m", 100'000'000'000, 60);
  const v1::ModelDescription mixture = MixtureModel("m", 100'000'000'000, 60);
  EXPECT_NEAR(WeightsUs(mixture, {}) / WeightsUs(dense, {}), 0.1 + 0.9 * 8 / 128, 0.001);
}

TEST(CostModel, ReadingIsBytesOverBandwidth) {
  const v1::ModelDescription model = LargeModel("m", 100'000'000'000, 60);
  const double bytes = 98e9;  // without embedding and head
  EXPECT_NEAR(WeightsUs(model, {}), bytes / (800e9 * CostParameters().bandwidth_efficiency) * 1e6,
              10);
}

TEST(CostModel, TokensOfABatchShareExpertsButNeverReadMoreThanAll) {
  EXPECT_NEAR(ExpertShareRead(128, 8, 1), 8.0 / 128, 1e-12);
  EXPECT_LT(ExpertShareRead(128, 8, 2), 2 * ExpertShareRead(128, 8, 1));
  EXPECT_LE(ExpertShareRead(128, 8, 1e9), 1);
  EXPECT_EQ(ExpertShareRead(0, 0, 1), 1) << "a dense model reads all";
}

TEST(CostModel, ALargeBatchIsArithmeticNotReading) {
  const v1::ModelDescription model = LargeModel("m", 16'000'000'000, 32);
  EXPECT_NEAR(WeightsUs(model, {4, 1}), WeightsUs(model, {1, 1}), 1);
  EXPECT_GT(WeightsUs(model, {1, 256}), 2 * WeightsUs(model, {1, 1}));
}

// A CPU's kernels unpack what they read before several tokens are multiplied with it: batches of
// answers took 80 ms and 16.5 ms each where one took 72 (tests/bench/README.md, steps).
TEST(CostModel, AStepOfSeveralTokensOnACpuReadsAndThenComputes) {
  const v1::ModelDescription model = LargeModel("m", 16'000'000'000, 32);
  const RankSpeed cpu{ComputeKind::kCpu, 11e9, 170e9};
  const auto us = [&](uint32_t sequences) {
    const StepModel step(model, {sequences, 1}, CostParameters());
    return step.TimeOf(cpu, 0, 32, {}).weights_us;
  };
  const double each = us(3) - us(2);
  EXPECT_GT(each, 0);
  EXPECT_NEAR(us(2), us(1) + 2 * each, each * 0.01);
  EXPECT_NEAR(us(16), us(1) + 16 * each, each * 0.01);
}

// Eight of 1,024 numbers more cost nothing at two nodes, and 8 us at four.
TEST(CostModel, SmallMessagesCostByTheirSizeAndTheRanksBeyondTwo) {
  const CostParameters parameters;
  EXPECT_EQ(SmallMessageUs(24'576, 2, parameters), 0);
  EXPECT_NEAR(SmallMessageUs(4'096, 4, parameters) - SmallMessageUs(2'048, 4, parameters),
              SmallMessageUs(2'048, 4, parameters), 1e-9);
  EXPECT_GT(SmallMessageUs(2'048, 4, parameters), SmallMessageUs(2'048, 3, parameters));
  EXPECT_EQ(SmallMessageUs(1e9, 4, parameters), SmallMessageUs(kSmallMessageBytes, 4, parameters))
      << "chunks of prompts go at the links' speed";
}

TEST(CostModel, IndexKeysAreReadWholeOnEachRank) {
  v1::ModelDescription model = LargeModel("m", 16'000'000'000, 32);
  const auto kv_us = [&](Slice slice) {
    return StepModel(model, {1, 1, 1000}, CostParameters()).TimeOf(kRank, 0, 32, slice).kv_us;
  };
  const double whole = kv_us({}), quarter = kv_us({1, 4});
  model.set_kv_index_width(256);  // of 2,048 numbers of keys and values
  EXPECT_NEAR(kv_us({}) / whole, 1 + 1.0 / 8, 1e-6);
  EXPECT_NEAR(kv_us({1, 4}) / quarter, 1 + 1.0 / 2, 1e-6);
}

TEST(CostModel, ASliceReadsItsShareAndWhatIsNotDivided) {
  const v1::ModelDescription model = LargeModel("m", 100'000'000'000, 60);
  EXPECT_NEAR(WeightsUs(model, {}, {1, 4}) / WeightsUs(model, {}), 0.05 + 0.95 / 4, 0.001);
}

TEST(CostModel, ALongerContextIsReadForEachSequence) {
  const v1::ModelDescription model = LargeModel("m", 16'000'000'000, 32);
  const auto kv = [&](const StepLoad& load) {
    return StepModel(model, load, CostParameters()).TimeOf(kRank, 0, 32, {}).kv_us;
  };
  const double position_bytes = 2 * 8 * 128 * 2 * 32;
  EXPECT_EQ(kv({1, 1, 0}), 0);
  EXPECT_NEAR(kv({1, 1, 32768}),
              position_bytes * 32768 / (800e9 * CostParameters().kv_efficiency) * 1e6, 1);
  EXPECT_NEAR(kv({2, 1, 32768}), 2 * kv({1, 1, 32768}), 1);
  EXPECT_NEAR(kv({1, 1, 32768, 8}), kv({1, 1, 32768}) * 8.5 / 16, 1) << "with scales and biases";
}

TEST(CostModel, ALatentCacheIsSmallAndWholeOnEveryRank) {
  v1::ModelDescription model = LargeModel("m", 16'000'000'000, 32);
  model.set_kv_latent_width(576);
  EXPECT_EQ(KvPositionBytes(model, {1, 4}, 0, ComputeKind::kGpu), 576 * 2);
  EXPECT_EQ(KvPositionBytes(model, {4, 4}, 0, ComputeKind::kGpu), 576 * 2);
  EXPECT_EQ(KvPositionBytes(model, {1, 4}, 0, ComputeKind::kCpu), 576 * 2);
  EXPECT_EQ(KvPositionBytes(model, {1, 4}, 8, ComputeKind::kCpu), 576 * 8.5 / 8);
  const StepModel latent(model, {}, CostParameters());
  model.set_kv_latent_width(0);
  EXPECT_GT(latent.OverheadUs(kRank, 0, 32),
            StepModel(model, {}, CostParameters()).OverheadUs(kRank, 0, 32));
}

TEST(CostModel, ResidualStreamsPassBetweenStagesAndNotInSums) {
  v1::ModelDescription model = LargeModel("m", 16'000'000'000, 32);
  const StepModel one(model, {}, CostParameters());
  EXPECT_EQ(one.HopBytes(), one.MessageBytes());
  ServingLoad load;
  load.context_tokens = 4096;
  const uint64_t activations = ActivationBytes(model, {}, load, ComputeKind::kCpu, false);
  model.set_residual_streams(4);
  const StepModel four(model, {}, CostParameters());
  EXPECT_EQ(four.MessageBytes(), one.MessageBytes());
  EXPECT_EQ(four.HopBytes(), 4 * 4 * model.hidden_size());
  EXPECT_GT(ActivationBytes(model, {}, load, ComputeKind::kCpu, false), activations);
}

TEST(CostModel, HybridLayersReadTheirStateInsteadOfAllPositions) {
  v1::ModelDescription model = LargeModel("m", 16'000'000'000, 32);
  const auto kv = [&](const v1::ModelDescription& m) {
    return StepModel(m, {1, 1, 100'000}, CostParameters()).TimeOf(kRank, 0, 32, {}).kv_us;
  };
  const double full = kv(model);
  model.set_full_attention_every(4);
  EXPECT_NEAR(kv(model), full / 4, 1);
  EXPECT_EQ(LayerKvBytes(model, 0, {}, {100'000, 1}, ComputeKind::kGpu), 0u);
  model.set_fixed_state_bytes(1 << 20);
  EXPECT_EQ(LayerKvBytes(model, 0, {}, {100'000, 3}, ComputeKind::kGpu), 3u << 20);
  EXPECT_GT(LayerKvBytes(model, 3, {}, {100'000, 1}, ComputeKind::kGpu), 1u << 20);
}

}  // namespace
}  // namespace macrame::planner
