// A KV block as bytes, for the cold tier: what is read from one block and written to another gives
// attention the same keys and values, and touches no other block.

#include <gtest/gtest.h>

#include <vector>

#include "runtime/model/cpu/kv_blocks.h"
#include "runtime/model/mlx/kv_blocks.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

constexpr int kHeads = 2, kWidth = 8, kBlocks = 5, kLayers = 3;

mx::array Numbers(int count, float first) {
  return mx::reshape(mx::arange(first, first + static_cast<float>(count * kHeads * kWidth), 1.0F),
                     {1, kHeads, count, kWidth});
}

std::vector<float> Values(const mx::array& x) {
  mx::array plain = mx::contiguous(mx::astype(x, mx::float32));
  plain.eval();
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

class MlxKvBlocksTest : public ::testing::TestWithParam<mx::Dtype::Val> {};

TEST_P(MlxKvBlocksTest, ABlocksBytesAreItsContent) {
  const mx::Dtype type = GetParam() == mx::Dtype::Val::float32 ? mx::float32 : mx::bfloat16;
  MlxKvBlocks blocks(kLayers, kBlocks);
  const std::vector<int32_t> table = {4, 1}, moved = {0, 1};
  const int count = 40;
  std::vector<std::vector<float>> before;
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto seen =
        blocks.Append(layer, table, 0, mx::astype(Numbers(count, static_cast<float>(layer)), type),
                      mx::astype(Numbers(count, static_cast<float>(100 + layer)), type));
    before.push_back(Values(seen.keys));
    before.push_back(Values(seen.values));
  }
  const size_t scalar = type == mx::float32 ? 4 : 2;
  ASSERT_EQ(blocks.block_bytes(), size_t{kLayers * 2 * 32 * kHeads * kWidth} * scalar);
  std::vector<std::byte> bytes(blocks.block_bytes()), again(blocks.block_bytes());
  blocks.Read(4, bytes);
  blocks.Write(0, bytes);
  blocks.Read(0, again);
  EXPECT_EQ(bytes, again);
  // The sequence goes on behind the moved block with one more position.
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto seen = blocks.Append(layer, moved, count, mx::astype(Numbers(1, 7.0F), type),
                                    mx::astype(Numbers(1, 9.0F), type));
    for (const auto& [all, kept] :
         {std::pair(seen.keys, before[static_cast<size_t>(2 * layer)]),
          std::pair(seen.values, before[static_cast<size_t>(2 * layer + 1)])}) {
      EXPECT_EQ(Values(mx::slice(all, {0, 0, 0, 0}, {1, kHeads, count, kWidth})), kept);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MlxKvBlocksTest,
                         ::testing::Values(mx::Dtype::Val::float32, mx::Dtype::Val::bfloat16));

class CpuKvBlocksTest : public ::testing::TestWithParam<kernels::KvType> {};
INSTANTIATE_TEST_SUITE_P(Types, CpuKvBlocksTest,
                         ::testing::Values(kernels::KvType::kFloat16, kernels::KvType::kInt8));

TEST_P(CpuKvBlocksTest, ABlocksBytesAreItsContentInAllLayers) {
  const kernels::KvShape shape{2, 8, GetParam()};
  const CpuKvBlocks blocks(kBlocks, std::vector(kLayers, shape));
  const size_t bytes = kernels::BlockBytes(shape);
  ASSERT_EQ(blocks.block_bytes(), bytes * kLayers);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (size_t i = 0; i < bytes * kBlocks; ++i) {
      blocks.Layer(layer).data[i] = static_cast<std::byte>(i * 7 + static_cast<size_t>(layer));
    }
  }
  std::vector<std::byte> read(bytes * kLayers);
  blocks.Read(3, read);
  blocks.Write(1, read);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (size_t i = 0; i < bytes * kBlocks; ++i) {
      const size_t from = i / bytes == 1 ? i + 2 * bytes : i;
      ASSERT_EQ(blocks.Layer(layer).data[i],
                static_cast<std::byte>(from * 7 + static_cast<size_t>(layer)))
          << "layer " << layer << ", byte " << i;
    }
  }
}

TEST_P(CpuKvBlocksTest, LayersMayHaveHeadsOfTheirOwn) {
  const std::vector<kernels::KvShape> shapes = {
      {2, 8, GetParam()}, {0, 16, GetParam()}, {1, 16, GetParam()}};
  const CpuKvBlocks blocks(kBlocks, shapes);
  const size_t first = kernels::BlockBytes(shapes[0]), last = kernels::BlockBytes(shapes[2]);
  ASSERT_EQ(blocks.block_bytes(), first + last);
  for (size_t i = 0; i < first; ++i) blocks.Layer(0).data[3 * first + i] = std::byte{1};
  for (size_t i = 0; i < last; ++i) blocks.Layer(2).data[3 * last + i] = std::byte{2};
  std::vector<std::byte> read(first + last);
  blocks.Read(3, read);
  EXPECT_EQ(read[first - 1], std::byte{1});
  EXPECT_EQ(read[first], std::byte{2});
  blocks.Write(1, read);
  EXPECT_EQ(blocks.Layer(0).data[2 * first - 1], std::byte{1});
  EXPECT_EQ(blocks.Layer(2).data[2 * last - 1], std::byte{2});
  EXPECT_EQ(blocks.Layer(2).data[2 * last], std::byte{0}) << "of the next block";
}

}  // namespace
}  // namespace macrame::runtime::engine
