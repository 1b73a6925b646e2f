#include "planner/memory_model.h"

#include <gtest/gtest.h>

#include "planner/saturating.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

TEST(MemoryModel, WeightsAreWhatTheFilesSay) {
  v1::ModelDescription model = SmallModel();
  model.set_layer_bytes(2, 1'000'000);
  model.set_layer_divisible_bytes(2, 900'000);
  EXPECT_EQ(LayerWeightBytes(model, 2, {1, 1}), 1'000'000u);
  EXPECT_EQ(LayerWeightBytes(model, 2, {1, 2}), 100'000u + 450'000u);
  EXPECT_EQ(LayerWeightBytes(model, 2, {1, 7}), 100'000u + 128'572u) << "a share is rounded up";
  const MemoryModel memory(model, {1024, 1});
  EXPECT_EQ(memory.Need(ComputeKind::kGpu, 1, 4, false, false).weights_bytes(), 1'900'000u);
}

TEST(MemoryModel, KeysAndValuesByHand) {
  // 2 x 4 heads x 32 x 2 bytes x 1024 positions.
  EXPECT_EQ(LayerKvBytes(SmallModel(), 0, {1, 1}, {1024, 1}, ComputeKind::kGpu), 524'288u);
  EXPECT_EQ(LayerKvBytes(SmallModel(), 0, {1, 4}, {1024, 1}, ComputeKind::kGpu), 131'072u);
  EXPECT_EQ(LayerKvBytes(SmallModel(), 0, {1, 1}, {1024, 3}, ComputeKind::kGpu), 3 * 524'288u);
  EXPECT_EQ(LayerKvBytes(SmallModel(), 0, {1, 1}, {1024, 1}, ComputeKind::kCpu), 2 * 524'288u)
      << "a CPU computes in float32";
  EXPECT_EQ(LayerKvBytes(SmallModel(), 0, {1, 1}, {1, 1}, ComputeKind::kGpu), 131'072u)
      << "the cache grows in steps of 256";
}

TEST(MemoryModel, ASlidingWindowBoundsTheCache) {
  v1::ModelDescription model = SmallModel();
  model.set_sliding_window(256);
  const uint64_t windowed = LayerKvBytes(model, 0, {1, 1}, {1024, 1}, ComputeKind::kGpu);
  EXPECT_EQ(windowed, 262'144u) << "the window and one chunk";
  EXPECT_EQ(LayerKvBytes(model, 0, {1, 1}, {100'000, 1}, ComputeKind::kGpu), windowed);
}

TEST(MemoryModel, ATiedHeadCostsOnlyWhereTheEmbeddingIsNot) {
  const v1::ModelDescription model = SmallModel();
  EXPECT_EQ(HeadBytes(model, true), model.final_norm_bytes());
  EXPECT_EQ(HeadBytes(model, false), model.embedding_bytes() + model.final_norm_bytes());
}

TEST(MemoryModel, TotalIsTheSumOfTheItems) {
  const MemoryModel memory(SmallModel(), {1024, 2}, {1, 2});
  const v1::MemoryNeed need = memory.Need(ComputeKind::kCpu, 0, 6, true, true);
  EXPECT_EQ(need.total_bytes(), need.weights_bytes() + need.embedding_bytes() + need.head_bytes() +
                                    need.kv_cache_bytes() + need.activation_bytes() +
                                    need.runtime_bytes() + need.headroom_bytes());
  EXPECT_GE(need.headroom_bytes(), kHeadroomBytesMin);
  EXPECT_EQ(need.runtime_bytes(), kRuntimeBytes);
}

TEST(MemoryModel, FiguresThatOverflowStayHuge) {
  v1::ModelDescription model = SmallModel();
  model.set_head_dim(0xffffff);
  model.set_kv_heads(0xffffff);
  const MemoryModel memory(model, {0xffffffff, 4096});
  EXPECT_EQ(memory.NeedBytes(ComputeKind::kCpu, 0, 6, true, true), kBytesMax);
}

}  // namespace
}  // namespace macrame::planner
