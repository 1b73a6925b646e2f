// Keys and values in 8 bits, as MLX keeps them: what attention gives is what it gives over the same
// ones unpacked, and what is kept is near what came.

#include "runtime/model/mlx/narrow_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

constexpr int kHeads = 6, kKvHeads = 2, kBlocks = 6;

std::vector<float> Values(const mx::array& x) {
  mx::array plain = mx::contiguous(mx::astype(x, mx::float32));
  plain.eval();
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

void ExpectNear(const mx::array& got, const mx::array& expected, float bound) {
  ASSERT_EQ(got.shape(), expected.shape());
  const std::vector<float> one = Values(got), other = Values(expected);
  for (size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(one[i], other[i], bound) << i;
}

mx::array Random(mx::Shape shape) { return mx::random::normal(std::move(shape)); }

// A sequence that holds `held` positions, and of whose next step `count` rows are asked for.
struct Kept {
  Kept(int width, int held, int count, int bits = 8)
      : pools(1, kBlocks, bits), tables(kBlocks, kBlocks * 32) {
    ForwardStep step;
    step.segments.push_back({0, 0, std::vector<int32_t>(static_cast<size_t>(held + count), 1)});
    for (int block = 0; block < BlocksFor(held + count); ++block) {
      step.segments[0].new_blocks.push_back(block);
    }
    EXPECT_TRUE(tables.Apply(step, 2).ok());
    keys = Random({1, kKvHeads, held + count, width});
    values = Random({1, kKvHeads, held + count, width});
    const StepRows all(step, tables);
    written.push_back(pools.Write(0, KvSide::kKeys, *keys, all.written()));
    written.push_back(pools.Write(0, KvSide::kValues, *values, all.written()));
    ForwardStep last;
    last.segments.push_back(
        {0, static_cast<uint32_t>(held), std::vector<int32_t>(static_cast<size_t>(count), 1)});
    EXPECT_TRUE(tables.Apply(last, 2).ok());
    rows.emplace(last, tables);
  }
  KvPools pools;
  SlotTables tables;
  std::optional<mx::array> keys, values;
  std::vector<KvRowsKept> written;
  std::optional<StepRows> rows;
};

class NarrowAttention : public ::testing::Test {
 protected:
  NarrowAttention() {
    mx::set_default_device(mx::Device::cpu);
    mx::random::seed(5);
  }
};

TEST_F(NarrowAttention, GivesWhatUnpackedKeysAndValuesGive) {
  for (const auto& [width, bits] : {std::pair{32, 8}, {64, 8}, {96, 8}, {128, 8}, {64, 4}}) {
    for (const int count : {1, 2, 5, kNarrowRowsMax}) {
      for (const int window : {0, 40}) {
        for (const bool with_sinks : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << width << " wide in " << bits << " bits, " << count << " rows, window "
                       << window << (with_sinks ? ", sinks" : ""));
          const Kept kept(width, 100, count, bits);
          const StepRows::Sequence& sequence = kept.rows->sequences()[0];
          const StepRows::Sight sight = kept.rows->SightOf(sequence, window);
          const KvRowsKept keys = kept.rows->SeenAsKept(kept.written[0], sequence, sight.from);
          const KvRowsKept values = kept.rows->SeenAsKept(kept.written[1], sequence, sight.from);
          ASSERT_TRUE(AttendsToNarrow(keys, values, count));
          const float scale = 1.0F / std::sqrt(static_cast<float>(width));
          const mx::array queries =
              mx::multiply(Random({1, kHeads, count, width}), mx::array(scale));
          std::optional<mx::array> sinks;
          if (with_sinks) sinks = Random({kHeads});
          ExpectNear(AttendNarrow(queries, keys, values, sight, sinks),
                     mx::fast::scaled_dot_product_attention(queries, keys.Whole(), values.Whole(),
                                                            1.0F, sight.mode, sight.mask, sinks),
                     2e-5F);
        }
      }
    }
  }
}

TEST_F(NarrowAttention, LongerRunsOfRowsAreUnpackedFor) {
  const Kept kept(64, 10, 3);
  EXPECT_TRUE(AttendsToNarrow(kept.written[0], kept.written[1], kNarrowRowsMax));
  EXPECT_FALSE(AttendsToNarrow(kept.written[0], kept.written[1], kNarrowRowsMax + 1));
}

// Half a step of 255 between a group's least and largest.
TEST_F(NarrowAttention, KeepsNumbersToAStepOfTheirGroup) {
  const Kept kept(64, 60, 4);
  const StepRows::Sequence& sequence = kept.rows->sequences()[0];
  const std::vector<float> came = Values(*kept.keys);
  const std::vector<float> seen = Values(kept.rows->Seen(kept.written[0], sequence));
  ASSERT_EQ(came.size(), seen.size());
  double worst = 0;
  for (size_t i = 0; i < came.size(); ++i) {
    worst = std::max(worst, std::abs(double{came[i]} - double{seen[i]}));
  }
  EXPECT_GT(worst, 0);
  EXPECT_LT(worst, 8.0 / 255) << "numbers here are within 4 of zero";
}

TEST_F(NarrowAttention, ABlockTakesEightAndAHalfBitsANumberAndIsItsBytes) {
  Kept kept(64, 60, 4);
  std::vector<mx::array> held;
  kept.pools.AppendPools(held);
  EXPECT_EQ(held.size(), 6u) << "numbers, scales and biases of keys and of values";
  mx::eval(held);
  // Scales and biases are as wide as what came: 32 bits here, 16 in most models.
  EXPECT_EQ(kept.pools.block_bytes(), size_t{2 * kKvHeads * 32} * (64 + 2 * 4));
  std::vector<std::byte> bytes(kept.pools.block_bytes()), again(kept.pools.block_bytes());
  const auto read = [&](int32_t block, std::span<std::byte> out) {
    kept.pools.Read({&block, 1}, {&out, 1});
  };
  read(0, bytes);
  const int32_t to = 4;
  const std::span<const std::byte> content(bytes);
  kept.pools.Write({&to, 1}, {&content, 1});
  read(4, again);
  EXPECT_EQ(bytes, again);
  const BlockCopy copy{1, 5};
  kept.pools.Copy({&copy, 1});
  read(1, bytes);
  read(5, again);
  EXPECT_EQ(bytes, again);
  EXPECT_NE(kept.pools.layout().find("8 bits"), std::string::npos) << kept.pools.layout();
}

// MLX shares the buffers of small arrays where it is asked for a copy.
TEST_F(NarrowAttention, BlocksOfOneHeadAreCopiedInSmallPools) {
  KvPools pools(1, 40, 8);
  const mx::array rows = Random({1, 1, 64, 64});
  mx::eval(pools.Write(0, KvSide::kKeys, rows, {0, std::nullopt}).numbers,
           pools.Write(0, KvSide::kValues, rows, {0, std::nullopt}).numbers);
  const std::vector<BlockCopy> copies = {{0, 4}, {1, 5}};
  pools.Copy(copies);
  std::vector<std::byte> from(pools.block_bytes()), to(pools.block_bytes());
  for (const BlockCopy& copy : copies) {
    const std::span<std::byte> out[] = {from, to};
    const int32_t blocks[] = {copy.from, copy.to};
    pools.Read(blocks, out);
    EXPECT_EQ(from, to) << "block " << copy.to;
  }
}

TEST_F(NarrowAttention, HeadsThatNoGroupDividesAreKeptAsTheyCome) {
  EXPECT_EQ(KvGroupOf(128), 64);
  EXPECT_EQ(KvGroupOf(96), 32);
  EXPECT_EQ(KvGroupOf(80), 0);
  const Kept kept(80, 20, 1);
  EXPECT_FALSE(AttendsToNarrow(kept.written[0], kept.written[1], 1));
  const StepRows::Sequence& sequence = kept.rows->sequences()[0];
  EXPECT_EQ(Values(kept.rows->Seen(kept.written[1], sequence)), Values(*kept.values));
}

}  // namespace
}  // namespace macrame::runtime::engine
