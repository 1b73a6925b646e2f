// A KV block as bytes, for the cold tier: what is read from one block and written to another gives
// attention the same keys and values, and touches no other block.

#include <gtest/gtest.h>

#include <vector>

#include "runtime/model/cpu/kv_blocks.h"
#include "runtime/model/mlx/kv_pools.h"

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

class KvPoolsTest : public ::testing::TestWithParam<mx::Dtype::Val> {
 protected:
  KvPoolsTest()
      : type_(GetParam() == mx::Dtype::Val::float32 ? mx::float32 : mx::bfloat16),
        pools_(kLayers, kBlocks) {}

  // Positions [begin, end) of a pool.
  static std::vector<float> Seen(const mx::array& pool, int begin, int end) {
    return Values(mx::slice(pool, {0, 0, begin, 0}, {1, kHeads, end, kWidth}));
  }
  // Positions [first, first + count) of all entries.
  void Fill(int first, int count) {
    for (int layer = 0; layer < kLayers; ++layer) {
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        const mx::array rows =
            mx::astype(Numbers(count, static_cast<float>(layer + 100 * int(side))), type_);
        pools_.Write(layer, side, rows, {first, std::nullopt});
      }
    }
    std::vector<mx::array> written;
    pools_.AppendPools(written);
    EXPECT_EQ(written.size(), size_t{2 * kLayers});
    mx::eval(written);
  }
  mx::array One(int layer, KvSide side, int at) {
    return pools_.Write(layer, side, mx::astype(Numbers(1, 7.0F), type_), {at, std::nullopt})
        .numbers;
  }

  void ReadOne(int32_t block, std::span<std::byte> out) { pools_.Read({&block, 1}, {&out, 1}); }
  void WriteOne(int32_t block, std::span<const std::byte> bytes) {
    pools_.Write({&block, 1}, {&bytes, 1});
  }

  const mx::Dtype type_;
  KvPools pools_;
};

TEST_P(KvPoolsTest, ABlocksBytesAreItsContent) {
  Fill(4 * 32, 32);
  const size_t scalar = type_ == mx::float32 ? 4 : 2;
  ASSERT_EQ(pools_.block_bytes(), size_t{kLayers * 2 * 32 * kHeads * kWidth} * scalar);
  std::vector<std::byte> bytes(pools_.block_bytes()), again(pools_.block_bytes());
  ReadOne(4, bytes);
  WriteOne(0, bytes);
  ReadOne(0, again);
  EXPECT_EQ(bytes, again);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const mx::array pool = One(layer, side, 32);
      EXPECT_EQ(Seen(pool, 0, 32), Seen(pool, 4 * 32, 5 * 32)) << "layer " << layer;
      EXPECT_EQ(Seen(pool, 32, 33), Values(mx::astype(Numbers(1, 7.0F), type_)));
    }
  }
}

// In runs and apart, as if they were read and written one by one.
TEST_P(KvPoolsTest, SeveralBlocksAreReadAndWrittenAtOnce) {
  Fill(0, 5 * 32);
  const std::vector<int32_t> from = {3, 0, 1, 2};
  std::vector<std::vector<std::byte>> contents(4, std::vector<std::byte>(pools_.block_bytes()));
  const std::vector<std::span<std::byte>> out(contents.begin(), contents.end());
  pools_.Read(from, out);
  std::vector<std::byte> one(pools_.block_bytes());
  for (size_t i = 0; i < from.size(); ++i) {
    ReadOne(from[i], one);
    EXPECT_EQ(contents[i], one) << "block " << from[i];
  }
  const std::vector<int32_t> to = {1, 2, 4, 3};
  const std::vector<std::span<const std::byte>> bytes(contents.begin(), contents.end());
  pools_.Write(to, bytes);
  for (size_t i = 0; i < to.size(); ++i) {
    ReadOne(to[i], one);
    EXPECT_EQ(contents[i], one) << "block " << to[i];
  }
}

TEST_P(KvPoolsTest, CopiesAreMadeInTheirOrderInAllEntries) {
  Fill(0, 64);
  const std::vector<BlockCopy> copies = {{0, 2}, {1, 3}, {1, 0}};
  pools_.Copy(copies);
  for (int layer = 0; layer < kLayers; ++layer) {
    const mx::array pool = One(layer, KvSide::kKeys, 4 * 32);
    const std::vector<float> whole =
        Values(mx::astype(Numbers(64, static_cast<float>(layer)), type_));
    const mx::array all =
        mx::reshape(mx::array(whole.data(), {1, kHeads, 64, kWidth}), {1, kHeads, 64, kWidth});
    EXPECT_EQ(Seen(pool, 2 * 32, 4 * 32), whole);
    EXPECT_EQ(Seen(pool, 0, 32), Seen(all, 32, 64));
  }
}

// A write goes into the buffer: whatever still holds what an earlier step gave, no pool is copied.
TEST_P(KvPoolsTest, WritesLeaveThePoolWhereItIs) {
  Fill(0, 1);
  std::vector<mx::array> held;
  pools_.AppendPools(held);
  std::vector<const void*> before;
  for (const mx::array& pool : held) before.push_back(pool.buffer().ptr());
  const std::vector<int32_t> places = {40, 3};
  const mx::array each(places.data(), {2}, mx::int32);
  const mx::array rows = mx::zeros({2, kHeads, 1, kWidth}, type_);
  std::vector<mx::array> written;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      written.push_back(pools_.Write(layer, side, rows, {std::nullopt, each}).numbers);
    }
  }
  const size_t active = mx::get_active_memory();
  mx::reset_peak_memory();
  mx::eval(written);
  for (size_t i = 0; i < written.size(); ++i) {
    EXPECT_EQ(written[i].buffer().ptr(), before[i]) << "pool " << i;
  }
  const size_t pool_bytes = written[0].nbytes();
  EXPECT_LT(mx::get_peak_memory(), active + pool_bytes);
}

INSTANTIATE_TEST_SUITE_P(Types, KvPoolsTest,
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
