#include "planner/layer_partition.h"

#include <gtest/gtest.h>

#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

std::vector<StageNode> Nodes(const std::vector<uint64_t>& budgets) {
  std::vector<StageNode> nodes;
  for (uint64_t budget : budgets) nodes.push_back({budget, ComputeKind::kGpu});
  return nodes;
}

std::vector<uint32_t> Sizes(const std::optional<std::vector<StageRange>>& ranges) {
  std::vector<uint32_t> sizes;
  if (!ranges.has_value()) return sizes;
  for (const StageRange& range : *ranges) sizes.push_back(range.end - range.begin);
  return sizes;
}

TEST(LayerPartition, EqualNodesGetEqualRanges) {
  const v1::ModelDescription model = SmallModel();
  const MemoryModel memory(model, {1024, 1}, 1);
  LayerPartition partition(memory, Nodes({kGiB, kGiB, kGiB}));
  EXPECT_EQ(Sizes(partition.Split(3)), (std::vector<uint32_t>{2, 2, 2}));
  EXPECT_EQ(Sizes(partition.Split(2)), (std::vector<uint32_t>{3, 3}));
  EXPECT_EQ(Sizes(partition.Split(1)), (std::vector<uint32_t>{6}));
}

TEST(LayerPartition, RangesFollowMemory) {
  const v1::ModelDescription model = LargeModel("m", 120 * kGiB, 60);
  const MemoryModel memory(model, {4096, 1}, 1);
  LayerPartition partition(memory, Nodes({100 * kGiB, 50 * kGiB}));
  const auto sizes = Sizes(partition.Split(2));
  ASSERT_EQ(sizes.size(), 2u);
  EXPECT_NEAR(sizes[0], 40, 1);
  EXPECT_NEAR(sizes[1], 20, 1);
}

TEST(LayerPartition, FindsTheOnlyOrderThatFits) {
  // The last two layers are far larger than the rest, so the largest node has to come last, after
  // both small ones.
  v1::ModelDescription model = LargeModel("m", 10 * kGiB, 10);
  model.set_layer_bytes(8, 20 * kGiB);
  model.set_layer_bytes(9, 20 * kGiB);
  const MemoryModel memory(model, {256, 1}, 1);
  LayerPartition partition(memory, Nodes({48 * kGiB, 6 * kGiB, 6 * kGiB}));
  const auto ranges = partition.Split(3);
  ASSERT_TRUE(ranges.has_value());
  EXPECT_EQ(ranges->back().node, 0u);
  EXPECT_EQ(ranges->back().end, 10u);
}

TEST(LayerPartition, MoreStagesThanLayersOrNodesDoNotFit) {
  const v1::ModelDescription model = SmallModel();
  const MemoryModel memory(model, {1024, 1}, 1);
  LayerPartition partition(memory, Nodes(std::vector<uint64_t>(8, kGiB)));
  EXPECT_FALSE(partition.Split(7).has_value());
  EXPECT_FALSE(partition.Split(9).has_value());
  EXPECT_FALSE(partition.Split(0).has_value());
  EXPECT_TRUE(partition.Split(6).has_value());
}

TEST(LayerPartition, ManyNodesAndLayersAreDividedToo) {
  const v1::ModelDescription model = LargeModel("m", 600 * kGiB, 128);
  const MemoryModel memory(model, {4096, 1}, 1);
  LayerPartition partition(memory, Nodes(std::vector<uint64_t>(40, 28 * kGiB)));
  const auto sizes = Sizes(partition.Split(32));
  ASSERT_EQ(sizes.size(), 32u);
  for (uint32_t size : sizes) EXPECT_NEAR(size, 4, 1);
}

}  // namespace
}  // namespace macrame::planner
