// Attention over blocks against plain loops in double, and against itself: cut into calls, batched
// and spread over threads in other ways, it gives the same bits.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "runtime/kernels/attention.h"
#include "tests/unit/runtime/kernels/attention_world.h"
#include "tests/unit/runtime/kernels/targets.h"

namespace macrame::runtime::kernels {
namespace {

struct Case {
  size_t kv_heads, group, head_dim, window, latent_dim = 0;
  bool sinks = false;
};

class AttentionTest : public ::testing::TestWithParam<std::tuple<Case, KvType>> {
 protected:
  static World Make(std::vector<size_t> lengths) {
    const auto [c, type] = GetParam();
    return World({c.kv_heads, c.head_dim, type, c.latent_dim}, c.kv_heads * c.group,
                 std::move(lengths), c.sinks);
  }
  static size_t window() { return std::get<0>(GetParam()).window; }
};

TEST_P(AttentionTest, MatchesPlainLoops) {
  constexpr size_t kLength = 1100;
  std::map<size_t, std::vector<double>> exact_of;
  for (const size_t p : {0, 1, 31, 32, 100, 127, 128, 400, 511, 512, 1099}) {
    exact_of[p] = Make({kLength}).Exact(0, p, window());
  }
  for (const int64_t target : Targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const OnlyTarget only(target);
    World world = Make({kLength});
    const auto out = world.Attend(1, window(), {{0, 0, kLength}});
    const size_t width = out.size() / kLength;
    for (const auto& [p, exact] : exact_of) {
      // For few rows 16 bits are read as they are stored, else widened.
      const auto alone = world.Attend(1, window(), {{0, p, p + 1}});
      for (size_t i = 0; i < width; ++i) {
        ASSERT_NEAR(out[p * width + i], exact[i], 2e-6) << "position " << p << ", element " << i;
        ASSERT_NEAR(alone[i], exact[i], 2e-6) << "position " << p << " alone, element " << i;
      }
    }
  }
}

TEST_P(AttentionTest, ChunksThreadsAndCompanyChangeNoBit) {
  constexpr size_t kLength = 1100;
  const std::vector<int64_t> targets = Targets();
  for (const int64_t target : targets) {
    SCOPED_TRACE(hwy::TargetName(target));
    const OnlyTarget only(target);
    // Work is cut in the same way on all; the best one, which comes first, is tried at length.
    const bool at_length = target == targets[0];
    const auto numbers_of_threads = at_length ? std::vector<int>{1, 2, 3} : std::vector<int>{3};
    std::vector<std::pair<size_t, size_t>> parts = {{7, 60}, {500, 530}, {1099, 1100}};
    if (at_length) parts.insert(parts.end(), {{0, 1}, {0, 7}, {60, 317}, {1000, 1100}});
    World world = Make({kLength, 40});
    const auto whole = world.Attend(1, window(), {{0, 0, kLength}});
    const size_t width = whole.size() / kLength;
    const auto expect_part = [&](const std::vector<float>& part, size_t begin, size_t end) {
      const auto from = whole.begin() + static_cast<int64_t>(begin * width);
      EXPECT_TRUE(std::equal(part.begin(),
                             part.begin() + static_cast<int64_t>((end - begin) * width), from))
          << "positions [" << begin << ", " << end << ")";
    };
    for (const int threads : numbers_of_threads) {
      for (const auto& [begin, end] : parts) {
        expect_part(world.Attend(threads, window(), {{0, begin, end}}), begin, end);
        expect_part(world.Attend(threads, window(), {{0, begin, end}, {1, 39, 40}, {1, 0, 40}}),
                    begin, end);
      }
      if (at_length) expect_part(world.Attend(threads, window(), {{0, 0, kLength}}), 0, kLength);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, AttentionTest,
    ::testing::Combine(
        ::testing::Values(Case{2, 4, 64, 0}, Case{2, 1, 80, 0}, Case{1, 7, 128, 0},
                          Case{2, 4, 64, 150}, Case{1, 7, 16, 5}, Case{1, 3, 18, 600},
                          Case{1, 70, 32, 0}, Case{1, 20, 58, 0, 40}, Case{1, 3, 176, 0, 128},
                          Case{2, 8, 64, 128, 0, true}, Case{1, 3, 64, 0, 0, true}),
        ::testing::Values(KvType::kFloat32, KvType::kFloat16, KvType::kBfloat16, KvType::kInt8)));

// What attention reads back of one position's values.
std::vector<float> Stored(KvType type, const std::vector<float>& values) {
  const KvShape shape{1, values.size(), type};
  const std::vector<float> keys(values.size(), 1.0F);
  const int32_t block = 0;
  std::vector<std::byte> pool(BlockBytes(shape));
  StoreKv({shape, pool.data()}, &block, 0, keys.data(), values.data());
  std::vector<float> out(values.size()), query(values.size(), 0.0F);
  ThreadPool threads(1);
  AttentionScratch scratch;
  const AttentionSegment segment{0, 1, 0, &block};
  Attend(threads, {shape, pool.data()}, {1, 0}, {&segment, 1}, query.data(), out.data(), scratch);
  return out;
}

TEST(StoreKvTest, RoundsToTheNearestAndKeepsWithinTheType) {
  const std::vector<float> values = {1.0F + 0x1p-11F + 0x1p-20F, 1e6F, -1e6F, 1.0F + 0x1p-9F};
  EXPECT_EQ(Stored(KvType::kFloat32, values), values);
  EXPECT_EQ(Stored(KvType::kFloat16, values),
            (std::vector<float>{1.0F + 0x1p-10F, 65504.0F, -65504.0F, 1.0F + 0x1p-9F}));
  EXPECT_EQ(Stored(KvType::kBfloat16, values),
            (std::vector<float>{1.0F, 999424.0F, -999424.0F, 1.0F}));
}

TEST(StoreKvTest, EightBitsAreOffByAPartOfTheLargestOfTheirGroup) {
  std::vector<float> values(96);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<float>(i)) * (i < 32 ? 1.0F : i < 64 ? 1e-20F : 1e20F);
  }
  values[5] = 40.0F;  // one dimension of the first group is much larger than the others
  for (const int64_t target : Targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const OnlyTarget only(target);
    const auto stored = Stored(KvType::kInt8, values);
    EXPECT_EQ(stored, Quantized(values, values.size()));
    for (size_t begin = 0; begin < values.size(); begin += kKvGroupDims) {
      float largest = 0.0F;
      for (size_t i = 0; i < kKvGroupDims; ++i) {
        largest = std::max(largest, std::fabs(values[begin + i]));
      }
      for (size_t i = begin; i < begin + kKvGroupDims; ++i) {
        EXPECT_LE(std::fabs(stored[i] - values[i]), largest / 253.0F) << i;
      }
    }
  }
}

TEST(StoreKvTest, EightBitsOfNothingOrTooMuchAreNumbers) {
  const float infinite = std::numeric_limits<float>::infinity();
  for (const int64_t target : Targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const OnlyTarget only(target);
    EXPECT_EQ(Stored(KvType::kInt8, std::vector<float>(18, 0.0F)), std::vector<float>(18, 0.0F));
    EXPECT_EQ(Stored(KvType::kInt8, std::vector<float>(18, 1e-38F)), std::vector<float>(18, 0.0F));
    const auto large = Stored(KvType::kInt8, {infinite, -infinite, 1.0F, 0.0F});
    EXPECT_GT(large[0], 3.38e38F);
    EXPECT_LT(large[0], infinite);
    EXPECT_EQ(large[1], -large[0]);
    EXPECT_EQ(large[2], 0.0F);
  }
}

TEST(StoreKvTest, ALatentCacheHoldsAPositionOnce) {
  const KvShape shape{1, 576, KvType::kFloat16, 512};
  EXPECT_EQ(BlockBytes(shape), kBlockTokens * 576 * 2);
  EXPECT_EQ(BlockBytes({1, 576, KvType::kInt8, 512}), kBlockTokens * 576 * 17 / 16);
  EXPECT_EQ(BlockBytes({1, 576, KvType::kFloat16, 512, 128}), kBlockTokens * 704 * 2);
}

// Behind a latent key stands the indexer's; a key alone can be copied to a sequence of its own.
TEST(StoreKvTest, AnIndexStandsBehindALatentKey) {
  for (const KvType type : {KvType::kFloat32, KvType::kFloat16, KvType::kBfloat16, KvType::kInt8}) {
    const KvShape shape{1, 48, type, 32, 16};
    KvShape alone = shape;
    alone.index_dim = 0;
    std::vector<std::byte> memory(3 * BlockBytes(shape)), copy(2 * BlockBytes(alone)),
        direct(2 * BlockBytes(alone));
    const KvView view{shape, memory.data()}, to{alone, copy.data()}, same{alone, direct.data()};
    const std::vector<int32_t> blocks{2, 0}, in_order{0, 1};
    const auto number = [](size_t position, size_t i) {
      return static_cast<float>(position * 7 + i * 3 % 11) - 90.0F;
    };
    for (size_t position = 0; position < 40; ++position) {
      std::vector<float> row;
      for (size_t i = 0; i < shape.row_dim(); ++i) row.push_back(number(position, i));
      StoreKv(view, blocks.data(), position, row.data(), nullptr);
    }
    std::vector<float> index(5 * 16);
    ReadIndex(view, blocks.data(), 30, 5, index.data());
    for (size_t i = 0; i < index.size(); ++i) {
      EXPECT_NEAR(index[i], number(30 + i / 16, 48 + i % 16), type == KvType::kInt8 ? 2 : 0.51);
    }
    // Groups of 32 numbers share a scale, so rows are alike only where a key's groups are its own.
    if (type == KvType::kInt8) continue;
    size_t at = 0;
    for (const size_t position : {3U, 31U, 32U, 39U}) {
      CopyLatent(view, blocks.data(), position, to, at);
      std::vector<float> key;
      for (size_t i = 0; i < 48; ++i) key.push_back(number(position, i));
      StoreKv(same, in_order.data(), at++, key.data(), nullptr);
    }
    EXPECT_EQ(copy, direct);
  }
}

}  // namespace
}  // namespace macrame::runtime::kernels
