// Attention over blocks against plain loops in double, and against itself: cut into calls, batched
// and spread over threads in other ways, it gives the same bits.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "runtime/kernels/attention.h"

namespace macrame::runtime::kernels {
namespace {

class Numbers {
 public:
  explicit Numbers(uint32_t seed) : state_(seed) {}
  // In [-1, 1), exact in all storage types.
  float Next() {
    state_ = state_ * 1664525U + 1013904223U;
    return (static_cast<float>(state_ >> 24) - 128.0F) / 128.0F;
  }

 private:
  uint32_t state_;
};

// Sequences of random queries, keys and values, stored in one pool of blocks in disorder.
class World {
 public:
  World(KvShape shape, size_t heads, std::vector<size_t> lengths)
      : shape_(shape), heads_(heads), lengths_(std::move(lengths)) {
    size_t blocks = 0;
    for (const size_t length : lengths_) blocks += (length + kBlockTokens - 1) / kBlockTokens;
    pool_.reset(static_cast<std::byte*>(std::aligned_alloc(64, (blocks + 1) * BlockBytes(shape))));
    std::fill_n(pool_.get(), (blocks + 1) * BlockBytes(shape), std::byte{0});
    auto id = static_cast<int32_t>(blocks);  // block 0 stays unused
    Numbers numbers(7);
    for (const size_t length : lengths_) {
      Sequence& sequence = sequences_.emplace_back();
      for (size_t p = 0; p < length; p += kBlockTokens) sequence.blocks.push_back(id--);
      sequence.queries.resize(length * heads_ * shape_.head_dim);
      sequence.keys.resize(length * shape_.kv_heads * shape_.head_dim);
      sequence.values.resize(sequence.keys.size());
      for (float& number : sequence.queries) number = 4.0F * numbers.Next();
      for (float& number : sequence.keys) number = numbers.Next();
      for (float& number : sequence.values) number = numbers.Next();
      for (size_t p = 0; p < length; ++p) Store(sequence, p);
    }
  }

  struct Run {
    size_t sequence, begin, end;
  };
  // The results of these positions, run after run.
  std::vector<float> Attend(int threads, size_t window, const std::vector<Run>& runs) {
    std::vector<AttentionSegment> segments;
    std::vector<float> queries;
    const size_t width = heads_ * shape_.head_dim;
    for (const Run& run : runs) {
      const Sequence& sequence = sequences_[run.sequence];
      segments.push_back(
          {queries.size() / width, run.end - run.begin, run.begin, sequence.blocks.data()});
      const auto from = sequence.queries.begin();
      queries.insert(queries.end(), from + static_cast<int64_t>(run.begin * width),
                     from + static_cast<int64_t>(run.end * width));
    }
    std::vector<float> out(queries.size(), -7.0F);
    ThreadPool pool(threads);
    kernels::Attend(pool, {shape_, pool_.get()}, {heads_, window}, segments, queries.data(),
                    out.data(), scratch_);
    return out;
  }

  // One position's result of all heads, in double.
  std::vector<double> Exact(size_t index, size_t position, size_t window) const {
    const Sequence& sequence = sequences_[index];
    const size_t dim = shape_.head_dim, group = heads_ / shape_.kv_heads;
    const size_t lowest = window > 0 && position + 1 > window ? position + 1 - window : 0;
    std::vector<double> out(heads_ * dim);
    for (size_t head = 0; head < heads_; ++head) {
      const float* query = sequence.queries.data() + (position * heads_ + head) * dim;
      std::vector<double> scores;
      for (size_t p = lowest; p <= position; ++p) {
        double score = 0.0;
        for (size_t i = 0; i < dim; ++i) {
          score += double{query[i]} * sequence.keys[KvIndex(p, head / group) + i];
        }
        scores.push_back(score / std::sqrt(static_cast<double>(dim)));
      }
      const double largest = *std::max_element(scores.begin(), scores.end());
      double sum = 0.0;
      for (double& score : scores) sum += score = std::exp(score - largest);
      for (size_t p = lowest; p <= position; ++p) {
        for (size_t i = 0; i < dim; ++i) {
          out[head * dim + i] +=
              scores[p - lowest] / sum * double{sequence.values[KvIndex(p, head / group) + i]};
        }
      }
    }
    return out;
  }

 private:
  struct Sequence {
    std::vector<int32_t> blocks;
    std::vector<float> queries, keys, values;
  };
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  size_t KvIndex(size_t position, size_t head) const {
    return (position * shape_.kv_heads + head) * shape_.head_dim;
  }
  void Store(const Sequence& sequence, size_t p) {
    StoreKv({shape_, pool_.get()}, sequence.blocks.data(), p, sequence.keys.data() + KvIndex(p, 0),
            sequence.values.data() + KvIndex(p, 0));
  }

  const KvShape shape_;
  const size_t heads_;
  const std::vector<size_t> lengths_;
  std::unique_ptr<std::byte[], Free> pool_;
  std::vector<Sequence> sequences_;
  AttentionScratch scratch_;
};

struct Case {
  size_t kv_heads, group, head_dim, window;
};

class AttentionTest : public ::testing::TestWithParam<std::tuple<Case, KvType>> {
 protected:
  static World Make(std::vector<size_t> lengths) {
    const auto [c, type] = GetParam();
    return World({c.kv_heads, c.head_dim, type}, c.kv_heads * c.group, std::move(lengths));
  }
  static size_t window() { return std::get<0>(GetParam()).window; }
};

TEST_P(AttentionTest, MatchesPlainLoops) {
  constexpr size_t kLength = 1100;
  World world = Make({kLength});
  const auto out = world.Attend(1, window(), {{0, 0, kLength}});
  const size_t width = out.size() / kLength;
  for (const size_t p : {0, 1, 31, 32, 100, 127, 128, 400, 511, 512, 1099}) {
    const auto exact = world.Exact(0, p, window());
    for (size_t i = 0; i < width; ++i) {
      ASSERT_NEAR(out[p * width + i], exact[i], 2e-6) << "position " << p << ", element " << i;
    }
  }
}

TEST_P(AttentionTest, ChunksThreadsAndCompanyChangeNoBit) {
  constexpr size_t kLength = 1100;
  World world = Make({kLength, 40});
  const auto whole = world.Attend(1, window(), {{0, 0, kLength}});
  const size_t width = whole.size() / kLength;
  const auto expect_part = [&](const std::vector<float>& part, size_t begin, size_t end) {
    const auto from = whole.begin() + static_cast<int64_t>(begin * width);
    EXPECT_TRUE(
        std::equal(part.begin(), part.begin() + static_cast<int64_t>((end - begin) * width), from))
        << "positions [" << begin << ", " << end << ")";
  };
  for (const int threads : {1, 2, 3}) {
    for (const auto& [begin, end] : std::vector<std::pair<size_t, size_t>>{
             {0, 1}, {0, 7}, {7, 60}, {60, 317}, {500, 530}, {1000, 1100}, {1099, 1100}}) {
      expect_part(world.Attend(threads, window(), {{0, begin, end}}), begin, end);
      expect_part(world.Attend(threads, window(), {{0, begin, end}, {1, 39, 40}, {1, 0, 40}}),
                  begin, end);
    }
    expect_part(world.Attend(threads, window(), {{0, 0, kLength}}), 0, kLength);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, AttentionTest,
    ::testing::Combine(::testing::Values(Case{2, 4, 64, 0}, Case{2, 1, 80, 0}, Case{1, 7, 128, 0},
                                         Case{2, 4, 64, 150}, Case{1, 7, 16, 5},
                                         Case{1, 3, 18, 600}, Case{1, 70, 32, 0}),
                       ::testing::Values(KvType::kFloat32, KvType::kFloat16, KvType::kBfloat16)));

TEST(StoreKvTest, RoundsToTheNearestAndKeepsWithinTheType) {
  const std::vector<float> values = {1.0F + 0x1p-11F + 0x1p-20F, 1e6F, -1e6F, 1.0F + 0x1p-9F};
  const std::vector<float> keys(4, 1.0F);
  const int32_t block = 0;
  const auto stored = [&](KvType type) {
    const KvShape shape{1, 4, type};
    std::vector<std::byte> pool(BlockBytes(shape));
    StoreKv({shape, pool.data()}, &block, 0, keys.data(), values.data());
    std::vector<float> out(4), query(4, 0.0F);
    ThreadPool threads(1);
    AttentionScratch scratch;
    const AttentionSegment segment{0, 1, 0, &block};
    Attend(threads, {shape, pool.data()}, {1, 0}, {&segment, 1}, query.data(), out.data(), scratch);
    return out;
  };
  EXPECT_EQ(stored(KvType::kFloat32), values);
  EXPECT_EQ(stored(KvType::kFloat16),
            (std::vector<float>{1.0F + 0x1p-10F, 65504.0F, -65504.0F, 1.0F + 0x1p-9F}));
  EXPECT_EQ(stored(KvType::kBfloat16), (std::vector<float>{1.0F, 999424.0F, -999424.0F, 1.0F}));
}

}  // namespace
}  // namespace macrame::runtime::kernels
