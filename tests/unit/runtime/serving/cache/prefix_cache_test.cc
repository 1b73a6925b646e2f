// Blocks, who uses them, which are kept, and what is said about a miss.

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "runtime/serving/cache/block_pool.h"
#include "runtime/serving/cache/prefix_index.h"

namespace macrame::runtime::engine {
namespace {

std::vector<int32_t> Tokens(size_t count, int32_t first = 100) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

using Tables = std::vector<std::span<const BlockId>>;

// A conversation whose full blocks are offered; its table.
std::vector<BlockId> Fill(BlockPool& pool, const std::vector<int32_t>& tokens,
                          std::string_view salt = "") {
  std::vector<BlockId> table;
  for (size_t i = 0; i < tokens.size(); i += kBlockTokens) table.push_back(*pool.Allocate());
  BlockPool::Published published;
  pool.Publish(salt, tokens, table, static_cast<uint32_t>(tokens.size()) / kBlockTokens, published);
  return table;
}

void ReleaseAll(BlockPool& pool, const std::vector<BlockId>& table) {
  for (auto at = table.rbegin(); at != table.rend(); ++at) pool.Release(*at);
}

TEST(BlockPool, GivesEveryBlockOnceAndTakesItBack) {
  BlockPool pool(3);
  const BlockId a = *pool.Allocate();
  const BlockId b = *pool.Allocate();
  const BlockId c = *pool.Allocate();
  EXPECT_EQ((std::set<BlockId>{a, b, c}), (std::set<BlockId>{0, 1, 2}));
  EXPECT_FALSE(pool.Allocate().has_value());
  pool.Release(b);
  EXPECT_EQ(pool.available(), 1u);
  EXPECT_EQ(*pool.Allocate(), b);
}

TEST(BlockPool, ASharedBlockIsFreeWhenItsLastUserHasLeft) {
  BlockPool pool(2);
  const BlockId block = *pool.Allocate();
  pool.Retain(block);
  pool.Release(block);
  EXPECT_EQ(pool.available(), 1u);
  pool.Release(block);
  EXPECT_EQ(pool.available(), 2u);
}

TEST(BlockPoolDeathTest, AReferenceThatNobodyHasIsFound) {
  BlockPool pool(2);
  const BlockId block = *pool.Allocate();
  const std::vector<BlockId> table = {block};
  pool.CheckInvariants(Tables{table});
  pool.Release(block);
  EXPECT_DEATH(pool.CheckInvariants(Tables{table}), "0 references and stands in 1 tables");
  EXPECT_DEATH(pool.Release(block), "released once too often");
  EXPECT_DEATH(pool.Retain(block), "is free");
}

TEST(BlockPool, WhatWasComputedIsFoundAgainBlockByBlock) {
  BlockPool pool(8);
  const std::vector<int32_t> tokens = Tokens(100);
  const std::vector<BlockId> table = Fill(pool, tokens);
  EXPECT_EQ(pool.FindPrefix("", tokens), (std::vector<BlockId>{table[0], table[1], table[2]}));
  std::vector<int32_t> other = tokens;
  other[40] = -1;
  EXPECT_EQ(pool.FindPrefix("", other), std::vector<BlockId>{table[0]});
  other[0] = -1;
  EXPECT_TRUE(pool.FindPrefix("", other).empty());
}

TEST(BlockPool, OneTokenOfAPromptIsAlwaysLeftToCompute) {
  BlockPool pool(8);
  const std::vector<int32_t> tokens = Tokens(64);
  Fill(pool, tokens);
  EXPECT_EQ(pool.FindPrefix("", tokens).size(), 1u);
  EXPECT_EQ(pool.FindPrefix("", Tokens(65)).size(), 2u);
}

TEST(BlockPool, TheSameBlockBehindAnotherBeginningIsNotTheSame) {
  BlockPool pool(8);
  std::vector<int32_t> tokens = Tokens(65);
  Fill(pool, tokens);
  std::vector<int32_t> moved(tokens.begin() + 32, tokens.end());
  EXPECT_TRUE(pool.FindPrefix("", moved).empty());
}

TEST(BlockPool, ATenantNeverFindsAnothersBlocks) {
  BlockPool pool(8);
  const std::vector<int32_t> tokens = Tokens(65);
  Fill(pool, tokens, "tenant a");
  EXPECT_EQ(pool.FindPrefix("tenant a", tokens).size(), 2u);
  EXPECT_TRUE(pool.FindPrefix("tenant b", tokens).empty());
  EXPECT_TRUE(pool.FindPrefix("", tokens).empty());
  // Nor learns that they are there.
  EXPECT_EQ(pool.ExplainMiss("tenant b", tokens, 0).kind, PrefixMiss::Kind::kEmpty);
}

// Whatever of its prompts another tenant has cached, had cached or asks now: cached whole, a longer
// one, one that differs, one that gave way.
TEST(BlockPool, WhatIsSaidOfAMissIsTheSameWhateverOthersAsked) {
  const std::vector<int32_t> asked = Tokens(129);
  std::vector<int32_t> differs = asked;
  differs[70] = -1;
  const std::vector<std::vector<int32_t>> of_others = {asked, Tokens(33), Tokens(193), differs};
  for (const bool has_own : {false, true}) {
    for (const bool gives_way : {false, true}) {
      const auto told = [&](const std::vector<int32_t>* others) {
        BlockPool pool(64);
        // Its own: the first two blocks.
        if (has_own) Fill(pool, Tokens(64), "tenant b");
        if (others != nullptr) {
          const std::vector<BlockId> table = Fill(pool, *others, "tenant a");
          if (gives_way) {
            ReleaseAll(pool, table);
            while (pool.Allocate().has_value()) continue;
          }
        }
        const size_t found = pool.FindPrefix("tenant b", asked).size();
        return std::pair(found, pool.ExplainMiss("tenant b", asked, found));
      };
      const auto alone = told(nullptr);
      for (const std::vector<int32_t>& others : of_others) {
        const auto beside = told(&others);
        EXPECT_EQ(beside.first, alone.first);
        EXPECT_EQ(beside.second, alone.second) << DescribeMiss(beside.second);
      }
    }
  }
}

TEST(BlockPool, TheLongestUnusedGivesWayItsEndFirst) {
  BlockPool pool(4);
  const std::vector<int32_t> older = Tokens(65, 0);
  const std::vector<int32_t> newer = Tokens(33, 5000);
  const std::vector<BlockId> a = Fill(pool, older);  // three blocks, two of them full
  const std::vector<BlockId> b = {*pool.Allocate()};
  BlockPool::Published published;
  pool.Publish("", newer, b, 1, published);
  ReleaseAll(pool, a);
  ReleaseAll(pool, b);
  EXPECT_EQ(pool.available(), 4u);
  EXPECT_EQ(pool.idle_blocks(), 3u);
  pool.Allocate();  // the free one
  pool.Allocate();
  EXPECT_EQ(pool.FindPrefix("", older).size(), 1u) << "the older one's end";
  pool.Allocate();
  EXPECT_TRUE(pool.FindPrefix("", older).empty());
  EXPECT_EQ(pool.FindPrefix("", newer).size(), 1u);
  EXPECT_EQ(pool.evictions(), 2u);
}

TEST(BlockPool, ABlockInUseNeverGivesWay) {
  BlockPool pool(2);
  const std::vector<int32_t> tokens = Tokens(33);
  const std::vector<BlockId> table = Fill(pool, tokens);
  EXPECT_FALSE(pool.Allocate().has_value());
  EXPECT_EQ(pool.FindPrefix("", tokens).size(), 1u);
}

TEST(BlockPool, TheSameContentComputedTwiceIsCachedOnce) {
  BlockPool pool(8);
  const std::vector<int32_t> tokens = Tokens(65);
  const std::vector<BlockId> first = Fill(pool, tokens);
  const std::vector<BlockId> second = Fill(pool, tokens);
  EXPECT_EQ(pool.cached_blocks(), 2u);
  EXPECT_EQ(pool.FindPrefix("", tokens)[0], first[0]);
  ReleaseAll(pool, second);
  EXPECT_EQ(pool.idle_blocks(), 0u);
  pool.CheckInvariants(Tables{first});
}

// The second one's own copies are not cached, but what it adds is, behind the first one's.
TEST(BlockPool, WhatHangsOnAnEvictedBlockIsNotFoundAndNotLost) {
  BlockPool pool(4);
  const std::vector<int32_t> tokens = Tokens(65);
  const std::vector<BlockId> first = {*pool.Allocate()};
  BlockPool::Published of_first;
  pool.Publish("", tokens, first, 1, of_first);
  const std::vector<BlockId> second = {*pool.Allocate(), *pool.Allocate()};
  BlockPool::Published of_second;
  pool.Publish("", tokens, second, 2, of_second);
  EXPECT_EQ(pool.FindPrefix("", tokens), (std::vector<BlockId>{first[0], second[1]}));
  ReleaseAll(pool, first);
  const std::vector<BlockId> filling = {*pool.Allocate(), *pool.Allocate()};
  EXPECT_TRUE(pool.FindPrefix("", tokens).empty());
  pool.CheckInvariants(Tables{second, filling});
  // Offered again, from the beginning.
  std::vector<int32_t> longer = Tokens(97);
  std::vector<BlockId> table = second;
  table.push_back(filling[0]);
  pool.Publish("", longer, table, 3, of_second);
  EXPECT_EQ(pool.FindPrefix("", longer), table);
}

// Of a model with recurrent layers: who computes again what is cached frees the older copy.
TEST(BlockPool, OwnBlocksTakeThePlaceOfIdleOnes) {
  BlockPool pool(8, {.computes_again = true});
  const std::vector<int32_t> tokens = Tokens(96);
  const std::vector<BlockId> first = Fill(pool, Tokens(64));
  BlockPool::Published published;
  std::vector<BlockId> second = {*pool.Allocate(), *pool.Allocate(), *pool.Allocate()};
  pool.Publish("", tokens, second, 1, published);
  EXPECT_EQ(pool.FindPrefix("", tokens)[0], first[0]) << "in use";
  ReleaseAll(pool, first);
  pool.Publish("", tokens, second, 3, published);
  EXPECT_EQ(pool.idle_blocks(), 1u);
  pool.TakeOverIdle("", tokens, second, published);
  EXPECT_EQ(pool.idle_blocks(), 0u);
  EXPECT_EQ(pool.index().Find("", tokens, 3), second);
  pool.CheckInvariants(Tables{second});
}

TEST(Explanation, NamesTheFirstTokenThatDiffersFromTheNearestConversation) {
  BlockPool pool(64);
  const std::vector<int32_t> tokens = Tokens(900);
  Fill(pool, tokens);
  std::vector<int32_t> other = tokens;
  other[830] = -5;
  Fill(pool, other);
  std::vector<int32_t> asked = tokens;
  asked[812] = -7;
  const size_t found = pool.FindPrefix("", asked).size();
  EXPECT_EQ(found, 812u / kBlockTokens);
  EXPECT_EQ(DescribeMiss(pool.ExplainMiss("", asked, found)), "differs at token 812");
}

TEST(Explanation, TheNearestOfManyIsFound) {
  BlockPool pool(64);
  std::vector<int32_t> asked = Tokens(64);
  for (size_t differs = 0; differs < 20; ++differs) {
    for (const int32_t by : {-1000, 1000}) {
      std::vector<int32_t> cached = asked;
      cached[differs] += by;
      Fill(pool, cached);
    }
    ASSERT_EQ(pool.ExplainMiss("", asked, 0),
              (PrefixMiss{PrefixMiss::Kind::kDiffers, static_cast<uint32_t>(differs)}));
    if (differs == 13) break;  // 56 blocks
  }
}

TEST(Explanation, TellsAnEndAnEvictionAndAnEmptyCacheApart) {
  BlockPool pool(3);
  const std::vector<int32_t> tokens = Tokens(97);
  EXPECT_EQ(DescribeMiss(pool.ExplainMiss("", tokens, 0)), "nothing is cached yet");
  const std::vector<BlockId> table = Fill(pool, Tokens(64));
  EXPECT_EQ(DescribeMiss(pool.ExplainMiss("", tokens, 2)), "cached up to token 64");
  ReleaseAll(pool, table);
  pool.Allocate();
  pool.Allocate();
  EXPECT_EQ(pool.FindPrefix("", tokens).size(), 1u);
  EXPECT_EQ(DescribeMiss(pool.ExplainMiss("", tokens, 1)), "evicted from token 32");
  EXPECT_EQ(DescribeMiss(pool.ExplainMiss("", Tokens(64), 1)), "");
}

TEST(BlockName, IsFixedByTheSaltAndAllTokensUpToItsEnd) {
  BlockTokens tokens;
  std::iota(tokens.begin(), tokens.end(), 0);
  const BlockName name = ChildName(RootName("a"), tokens);
  EXPECT_EQ(name, ChildName(RootName("a"), tokens));
  EXPECT_NE(name, ChildName(RootName("b"), tokens));
  EXPECT_NE(ChildName(name, tokens), name);
  ++tokens[31];
  EXPECT_NE(name, ChildName(RootName("a"), tokens));

  BlockPool pool(4);
  const std::vector<BlockId> table = Fill(pool, Tokens(32));
  const BlockName& cached = pool.index().NameOf(table[0]);
  const std::string bytes(cached.begin(), cached.end());
  // As another program computes it: a cache on disk has to be read by later versions.
  EXPECT_EQ(absl::BytesToHexString(bytes),
            "37e9f7e6e9de6f177477eebb4f92e1207acc7d8cf337c1fa79a5cb0fde649151");
}

}  // namespace
}  // namespace macrame::runtime::engine
