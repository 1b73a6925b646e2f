// A pool that keeps runs: each of several sequences that grow in turn has blocks that follow one
// another, for as long as there is room for what they may come to.

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "runtime/serving/cache/block_pool.h"

namespace macrame::runtime::engine {
namespace {

using Blocks = std::vector<BlockId>;

class BlockRunsTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kBlocks = 64;
  BlockRunsTest() : pool_(kBlocks, {.keeps_runs = true}) {}

  // One more block of a sequence that may come to `whole`; `shared`: its first ones are another's.
  bool Grow(Blocks& own, uint32_t whole, size_t shared = 0) {
    BlockPool::Want want;
    if (!own.empty()) want.previous = own.back();
    want.expected = whole - static_cast<uint32_t>(own.size());
    want.is_first_own = own.size() == shared;
    const auto block = pool_.Allocate(want);
    if (block.has_value()) own.push_back(*block);
    return block.has_value();
  }
  void Release(Blocks& own) {
    for (auto at = own.rbegin(); at != own.rend(); ++at) pool_.Release(*at);
    own.clear();
  }
  static bool IsRun(const Blocks& own) {
    for (size_t i = 1; i < own.size(); ++i) {
      if (own[i] != own[0] + static_cast<BlockId>(i)) return false;
    }
    return true;
  }
  // Of a prompt of its own.
  static std::vector<int32_t> Tokens(size_t blocks, int32_t seed) {
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < blocks * kBlockTokens; ++i) {
      tokens.push_back(seed * 10'000 + static_cast<int32_t>(i));
    }
    return tokens;
  }
  void Publish(const std::vector<int32_t>& tokens, const Blocks& table) {
    BlockPool::Published published;
    pool_.Publish("", tokens, table, static_cast<uint32_t>(tokens.size() / kBlockTokens),
                  published);
  }

  BlockPool pool_;
};

TEST_F(BlockRunsTest, SequencesThatGrowInTurnEachHaveARun) {
  std::vector<Blocks> sequences(8);
  for (int round = 0; round < 8; ++round) {
    for (Blocks& own : sequences) ASSERT_TRUE(Grow(own, 8));
  }
  for (const Blocks& own : sequences) EXPECT_TRUE(IsRun(own));
  Blocks late;
  EXPECT_FALSE(Grow(late, 1));
}

TEST_F(BlockRunsTest, AnEndedSequencesRoomIsTakenAgain) {
  Blocks a, b, c, d;
  for (int i = 0; i < 20; ++i) {
    Grow(a, 20);
    Grow(b, 20);
    Grow(c, 20);
  }
  Release(b);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(Grow(d, 20));
  EXPECT_TRUE(IsRun(d));
  EXPECT_EQ(d.front(), 20);
}

TEST_F(BlockRunsTest, ALaterTurnGoesOnBehindItsOwnPrefix) {
  const std::vector<int32_t> tokens = Tokens(4, 1);
  Blocks first, other;
  for (int i = 0; i < 4; ++i) {
    Grow(first, 10);
    Grow(other, 10);
  }
  Publish(tokens, first);
  Release(first);
  std::vector<int32_t> longer = tokens;
  longer.resize(tokens.size() + 40, 7);
  Blocks next = pool_.FindPrefix("", longer);
  ASSERT_EQ(next.size(), 4u);
  for (const BlockId block : next) pool_.Retain(block);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Grow(next, 9, 4));
  EXPECT_TRUE(IsRun(next));
}

// An idle block in the way gives way, although another one was used longer ago.
TEST_F(BlockRunsTest, AnIdleBlockBehindTheLastOneGivesWay) {
  Blocks own, cached;
  ASSERT_TRUE(Grow(own, 1));
  for (int i = 0; i < 2; ++i) Grow(cached, 2);
  ASSERT_EQ(cached.front(), own.back() + 1);
  Publish(Tokens(2, 3), cached);
  Release(cached);
  ASSERT_EQ(pool_.idle_blocks(), 2u);
  ASSERT_TRUE(Grow(own, 3));
  EXPECT_TRUE(IsRun(own));
  EXPECT_EQ(pool_.idle_blocks(), 0u) << "what hung on it can't be found without it";
}

// Whatever was promised, a block is given for as long as there is one.
TEST_F(BlockRunsTest, EveryBlockCanBeHad) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<Blocks> sequences(1 + random() % 9);
    uint32_t given = 0;
    for (uint32_t tried = 0; given < kBlocks && tried < 10'000; ++tried) {
      Blocks& own = sequences[random() % sequences.size()];
      given += Grow(own, static_cast<uint32_t>(own.size()) + 1 + random() % 30) ? 1 : 0;
    }
    EXPECT_EQ(given, kBlocks);
    std::vector<std::span<const BlockId>> tables(sequences.begin(), sequences.end());
    pool_.CheckInvariants(tables);
    for (Blocks& own : sequences) Release(own);
  }
  EXPECT_EQ(pool_.free_blocks(), kBlocks);
}

}  // namespace
}  // namespace macrame::runtime::engine
