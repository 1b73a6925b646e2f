#include "planner/cost_model.h"

#include <gtest/gtest.h>

namespace macrame::planner {
namespace {

constexpr double kBandwidth = 800e9;

// A mixture of experts: 20 GB for every token, 200 GB of experts of which 8 of 128 are chosen.
ModelWork Mixture() {
  ModelWork work;
  work.layers = 60;
  work.shared_weight_bytes = 20e9;
  work.expert_weight_bytes = 200e9;
  work.experts = 128;
  work.experts_active = 8;
  work.kv_bytes_per_position = 100e3;
  return work;
}

std::vector<RankWork> Equal(int count, uint32_t layers) {
  return std::vector<RankWork>(count, RankWork{kBandwidth, 1.0 / count, layers});
}

TEST(CostModel, OneTokenReadsTheChosenExpertsOnly) {
  EXPECT_NEAR(StepWeightBytes(Mixture(), 1), 20e9 + 200e9 * 8 / 128, 1);
}

TEST(CostModel, TokensOfABatchShareExpertsButNeverReadMoreThanAll) {
  const double one = StepWeightBytes(Mixture(), 1), two = StepWeightBytes(Mixture(), 2);
  EXPECT_GT(two, one);
  EXPECT_LT(two - 20e9, 2 * (one - 20e9));
  EXPECT_LE(StepWeightBytes(Mixture(), 10000), 220e9 + 1);
}

TEST(CostModel, AnotherNodeOverRdmaMakesATensorSplitFaster) {
  const ModelWork work = Mixture();
  double before = 0;
  for (int n : {1, 2, 4}) {
    const double speed = TokensPerSecond(
        TensorStep(work, Equal(n, work.layers), {}, CostParameters{}.rdma_collective_us), {});
    EXPECT_GT(speed, before) << n << " nodes";
    before = speed;
  }
}

TEST(CostModel, AnotherNodeOverTcpMakesAPipelineSlower) {
  const ModelWork work = Mixture();
  double before = 1e9;
  for (uint32_t n : {1, 2, 3, 4}) {
    const double speed = TokensPerSecond(
        PipelineStep(work, Equal(n, work.layers / n), {}, CostParameters{}.tcp_hop_us), {});
    EXPECT_LT(speed, before) << n << " nodes";
    before = speed;
  }
}

TEST(CostModel, ATensorSplitWaitsForItsSlowestRank) {
  std::vector<RankWork> ranks = Equal(2, 60);
  const double even = TensorStep(Mixture(), ranks, {}, 20).total_us();
  ranks[1].bandwidth /= 2;
  const double uneven = TensorStep(Mixture(), ranks, {}, 20).total_us();
  EXPECT_GT(uneven, even);
  ranks[0].weight_share = 2.0 / 3;  // the faster one takes more
  ranks[1].weight_share = 1.0 / 3;
  EXPECT_LT(TensorStep(Mixture(), ranks, {}, 20).total_us(), uneven);
}

TEST(CostModel, ALongerContextIsReadForEachSequence) {
  const StepLoad brief{1, 0}, longer{1, 32768}, two{2, 32768};
  const auto kv = [](const StepLoad& load) {
    return TensorStep(Mixture(), Equal(1, 60), load, 0).kv_us;
  };
  EXPECT_EQ(kv(brief), 0);
  EXPECT_NEAR(kv(longer),
              100e3 * 32768 / (kBandwidth * CostParameters{}.bandwidth_efficiency) * 1e6, 1);
  EXPECT_NEAR(kv(two), 2 * kv(longer), 1);
}

TEST(CostModel, LatentAttentionCostsMoreALayer) {
  ModelWork latent = Mixture();
  latent.attention = AttentionKind::kLatent;
  EXPECT_GT(TensorStep(latent, Equal(1, 60), {}, 0).overhead_us,
            TensorStep(Mixture(), Equal(1, 60), {}, 0).overhead_us);
}

}  // namespace
}  // namespace macrame::planner
