// The prefix cache against a plain model of it: a list of what was cached, and what each block of
// memory was last filled with.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "runtime/serving/cache/block_pool.h"
#include "runtime/serving/cache/prefix_index.h"

namespace macrame::runtime::engine {
namespace {

using Random = std::mt19937_64;
// A chain of blocks, by the kind of each: what it holds is fixed by that.
using Chain = std::vector<int>;
constexpr int kKinds = 3;
const std::vector<std::string> kSalts = {"", "a", "b"};

// Kinds have a beginning in common, of a length of their own.
BlockTokens TokensOfKind(int kind) {
  BlockTokens tokens;
  tokens.fill(7);
  tokens[static_cast<size_t>(5 * kind + 3)] = 100 + kind;
  return tokens;
}

uint32_t CommonTokens(int kind, int other) {
  const BlockTokens a = TokensOfKind(kind), b = TokensOfKind(other);
  return static_cast<uint32_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
}

std::vector<int32_t> TokensOfChain(const Chain& chain) {
  std::vector<int32_t> tokens;
  for (const int kind : chain) {
    const BlockTokens block = TokensOfKind(kind);
    tokens.insert(tokens.end(), block.begin(), block.end());
  }
  return tokens;
}

Chain RandomChain(Random& random, size_t most) {
  Chain chain(1 + random() % most);
  for (int& kind : chain) kind = static_cast<int>(random() % kKinds);
  return chain;
}

// What an index ought to know.
class PlainIndex {
 public:
  using Key = std::pair<std::string, Chain>;
  explicit PlainIndex(size_t evicted_max) : evicted_max_(evicted_max) {}

  void Insert(const Key& key, BlockId block) { cached[key] = block; }
  // Of one block and all that hang on it.
  std::set<BlockId> Remove(const Key& key) {
    std::set<BlockId> removed;
    for (auto at = cached.begin(); at != cached.end();) {
      const Chain& chain = at->first.second;
      const bool hangs = at->first.first == key.first && chain.size() >= key.second.size() &&
                         std::equal(key.second.begin(), key.second.end(), chain.begin());
      if (!hangs) {
        ++at;
        continue;
      }
      removed.insert(at->second);
      gone_.push_back(at->first);
      at = cached.erase(at);
    }
    return removed;
  }
  size_t Found(const std::string& salt, const Chain& chain) const {
    for (size_t depth = 0; depth < chain.size(); ++depth) {
      const Chain part(chain.begin(), chain.begin() + static_cast<std::ptrdiff_t>(depth) + 1);
      if (!cached.contains({salt, part})) return depth;
    }
    return chain.size();
  }
  PrefixMiss Explained(const std::string& salt, const Chain& chain) const {
    const size_t depth = Found(salt, chain);
    if (depth == chain.size()) return {};
    const auto position = static_cast<uint32_t>(depth * kBlockTokens);
    const Chain known(chain.begin(), chain.begin() + static_cast<std::ptrdiff_t>(depth));
    Chain next = known;
    next.push_back(chain[depth]);
    if (IsRemembered({salt, next})) return {PrefixMiss::Kind::kEvicted, position};
    uint32_t common = 0;
    bool has_salt = false, has_children = false;
    for (const auto& [key, block] : cached) {
      if (key.first != salt) continue;
      has_salt = true;
      const bool is_child = key.second.size() == depth + 1 &&
                            std::equal(known.begin(), known.end(), key.second.begin());
      if (!is_child) continue;
      has_children = true;
      common = std::max(common, CommonTokens(chain[depth], key.second.back()));
    }
    if (!has_salt) return {PrefixMiss::Kind::kEmpty, 0};
    if (!has_children) return {PrefixMiss::Kind::kEnds, position};
    return {PrefixMiss::Kind::kDiffers, position + common};
  }
  bool IsRemembered(const Key& key) const {
    if (cached.contains(key)) return false;
    const size_t first = gone_.size() - std::min(gone_.size(), evicted_max_);
    return std::find(gone_.begin() + static_cast<std::ptrdiff_t>(first), gone_.end(), key) !=
           gone_.end();
  }

  std::map<Key, BlockId> cached;

 private:
  const size_t evicted_max_;
  std::vector<Key> gone_;  // in the order in which they went
};

// The order in which the blocks of one Remove are forgotten is not told; few evictions at once keep
// what is remembered the same.
TEST(PrefixIndexProperty, FindsExplainsAndForgetsAsAPlainListDoes) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    constexpr size_t kEvictedMax = 1000;
    PrefixIndex index(kEvictedMax);
    PlainIndex plain(kEvictedMax);
    BlockId next_block = 0;
    for (int step = 0; step < 600; ++step) {
      const std::string& salt = kSalts[random() % kSalts.size()];
      const Chain chain = RandomChain(random, 4);
      if (random() % 3 != 0) {
        PrefixIndex::NodeId node = index.Root(salt);
        Chain part;
        for (const int kind : chain) {
          part.push_back(kind);
          PrefixIndex::NodeId child = index.Child(node, TokensOfKind(kind));
          if (child == 0) {
            child = index.Insert(node, TokensOfKind(kind), next_block);
            plain.Insert({salt, part}, next_block++);
          }
          node = child;
        }
      } else if (plain.Found(salt, chain) == chain.size()) {
        const BlockId block = plain.cached.at({salt, chain});
        const std::vector<BlockId> removed = index.Remove(block);
        EXPECT_EQ(removed.front(), block);
        EXPECT_EQ(std::set<BlockId>(removed.begin(), removed.end()), plain.Remove({salt, chain}));
      }
      index.CheckInvariants();
      ASSERT_EQ(index.blocks(), plain.cached.size());
      const Chain asked = RandomChain(random, 5);
      const std::string& asking = kSalts[random() % kSalts.size()];
      const std::vector<int32_t> tokens = TokensOfChain(asked);
      const std::vector<BlockId> found = index.Find(asking, tokens, asked.size());
      ASSERT_EQ(found.size(), plain.Found(asking, asked));
      for (size_t depth = 0; depth < found.size(); ++depth) {
        const Chain part(asked.begin(), asked.begin() + static_cast<std::ptrdiff_t>(depth) + 1);
        EXPECT_EQ(found[depth], plain.cached.at({asking, part}));
      }
      const PrefixMiss miss = index.Explain(asking, tokens, asked.size(), found.size());
      EXPECT_EQ(miss, plain.Explained(asking, asked))
          << DescribeMiss(miss) << " / " << DescribeMiss(plain.Explained(asking, asked));
    }
  }
}

// The last evicted blocks are remembered, those too that were cached again between.
TEST(PrefixIndexProperty, RemembersTheLastOnesThatWent) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    constexpr size_t kEvictedMax = 5;
    PrefixIndex index(kEvictedMax);
    PlainIndex plain(kEvictedMax);
    std::map<std::string, BlockId> blocks;  // one for each name below the root
    for (int step = 0; step < 500; ++step) {
      const std::string salt = "s" + std::to_string(random() % 9);
      const auto held = blocks.find(salt);
      if (held == blocks.end()) {
        index.Insert(index.Root(salt), TokensOfKind(0), step);
        plain.Insert({salt, {0}}, step);
        blocks[salt] = step;
      } else {
        index.Remove(held->second);
        plain.Remove({salt, {0}});
        blocks.erase(held);
      }
      for (int i = 0; i < 9; ++i) {
        const std::string asked = "s" + std::to_string(i);
        if (blocks.contains(asked)) continue;
        const PrefixMiss miss = index.Explain(asked, TokensOfChain({0}), 1, 0);
        EXPECT_EQ(miss.kind, plain.IsRemembered({asked, {0}}) ? PrefixMiss::Kind::kEvicted
                                                              : PrefixMiss::Kind::kEmpty)
            << asked << " at step " << step << ", seed " << seed;
      }
      if (HasFailure()) return;
    }
  }
}

TEST(PrefixIndexProperty, WhatWasRememberedStaysSoWhenItWasCachedBetween) {
  PrefixIndex index(3);
  const auto cache_and_evict = [&index](const std::string& salt, BlockId block) {
    index.Insert(index.Root(salt), TokensOfKind(0), block);
    index.Remove(block);
  };
  cache_and_evict("again", 1);
  cache_and_evict("again", 2);
  cache_and_evict("x", 3);
  cache_and_evict("y", 4);  // the first eviction of "again" is forgotten now, not the second
  const std::vector<int32_t> tokens = TokensOfChain({0});
  EXPECT_EQ(index.Explain("again", tokens, 1, 0).kind, PrefixMiss::Kind::kEvicted);
  cache_and_evict("z", 5);
  EXPECT_EQ(index.Explain("again", tokens, 1, 0).kind, PrefixMiss::Kind::kEmpty);
}

// Sequences over one pool, as the scheduler runs them. What a block of memory holds is what the
// sequence that it was given to has computed there.
class PoolRun {
 public:
  PoolRun(uint64_t seed, bool computes_again)
      : random_(seed),
        computes_again_(computes_again),
        pool_(kBlocks, {true, computes_again}),
        holds_(kBlocks) {}

  void Step() {
    const size_t what = random_() % 8;
    if (what < 3) Begin();
    if (what >= 3 && what < 6 && !running_.empty()) Grow(running_[random_() % running_.size()]);
    if (what >= 6 && !running_.empty()) End(random_() % running_.size());
    Check();
  }

  uint64_t shared() const { return shared_; }
  uint64_t evictions() const { return pool_.evictions(); }

 private:
  static constexpr uint32_t kBlocks = 12;
  struct Sequence {
    std::string salt;
    std::vector<int32_t> tokens;
    std::vector<BlockId> table;
    BlockPool::Published published;
  };

  void Begin() {
    Sequence sequence;
    sequence.salt = kSalts[random_() % kSalts.size()];
    sequence.tokens = TokensOfChain(RandomChain(random_, 4));
    sequence.tokens.resize(sequence.tokens.size() - random_() % 20);
    std::vector<BlockId> found = pool_.FindPrefix(sequence.salt, sequence.tokens);
    ASSERT_LT(found.size() * kBlockTokens, sequence.tokens.size()) << "a token is left to compute";
    for (size_t i = 0; i < found.size(); ++i) {
      const std::vector<int32_t> up_to(
          sequence.tokens.begin(),
          sequence.tokens.begin() + static_cast<std::ptrdiff_t>((i + 1) * kBlockTokens));
      ASSERT_EQ(holds_[static_cast<size_t>(found[i])], std::pair(sequence.salt, up_to))
          << "another's keys and values were found";
    }
    // A recurrent layer's state may be kept for a part of it alone.
    if (computes_again_) found.resize(random_() % (found.size() + 1));
    for (const BlockId block : found) pool_.Retain(block);
    shared_ += found.size();
    sequence.table = found;
    Compute(sequence);
    running_.push_back(std::move(sequence));
  }

  // Gives blocks to what has none; a sequence that finds no memory goes on with fewer tokens.
  void Compute(Sequence& sequence) {
    while (sequence.table.size() * kBlockTokens < sequence.tokens.size()) {
      const uint32_t available = pool_.available();
      const std::optional<BlockId> block = pool_.Allocate();
      ASSERT_EQ(block.has_value(), available > 0);
      if (!block.has_value()) {
        sequence.tokens.resize(sequence.table.size() * kBlockTokens);
        break;
      }
      for (const Sequence& other : running_) {
        ASSERT_EQ(std::count(other.table.begin(), other.table.end(), *block), 0)
            << "a block in use was given away";
      }
      ASSERT_EQ(std::count(sequence.table.begin(), sequence.table.end(), *block), 0);
      sequence.table.push_back(*block);
      holds_[static_cast<size_t>(*block)] = {};
    }
    for (size_t i = 0; (i + 1) * kBlockTokens <= sequence.tokens.size(); ++i) {
      holds_[static_cast<size_t>(sequence.table[i])] = {
          sequence.salt,
          {sequence.tokens.begin(),
           sequence.tokens.begin() + static_cast<std::ptrdiff_t>((i + 1) * kBlockTokens)}};
    }
    const auto full = static_cast<uint32_t>(sequence.tokens.size() / kBlockTokens);
    pool_.Publish(sequence.salt, sequence.tokens, sequence.table, full, sequence.published);
  }

  void Grow(Sequence& sequence) {
    const std::vector<int32_t> more = TokensOfChain(RandomChain(random_, 2));
    // The block that is filled in part is filled as its kind goes on.
    const size_t within = sequence.tokens.size() % kBlockTokens;
    if (within > 0) {
      const BlockTokens rest = TokensOfKind(static_cast<int>(random_() % kKinds));
      sequence.tokens.insert(sequence.tokens.end(),
                             rest.begin() + static_cast<std::ptrdiff_t>(within), rest.end());
    } else {
      sequence.tokens.insert(sequence.tokens.end(), more.begin(), more.end());
    }
    Compute(sequence);
  }

  void End(size_t which) {
    Sequence& sequence = running_[which];
    pool_.TakeOverIdle(sequence.salt, sequence.tokens, sequence.table, sequence.published);
    for (auto at = sequence.table.rbegin(); at != sequence.table.rend(); ++at) pool_.Release(*at);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  void Check() {
    std::vector<std::span<const BlockId>> tables;
    std::set<BlockId> used;
    for (const Sequence& sequence : running_) {
      tables.emplace_back(sequence.table);
      used.insert(sequence.table.begin(), sequence.table.end());
    }
    pool_.CheckInvariants(tables);
    ASSERT_EQ(pool_.available() + used.size(), kBlocks) << "memory was lost";
  }

  Random random_;
  const bool computes_again_;
  BlockPool pool_;
  std::vector<std::pair<std::string, std::vector<int32_t>>> holds_;
  std::vector<Sequence> running_;
  uint64_t shared_ = 0;
};

TEST(BlockPoolProperty, NobodyFindsWhatIsNotTheirsAndNoMemoryIsLost) {
  for (const bool computes_again : {false, true}) {
    for (uint64_t seed = 0; seed < 30; ++seed) {
      PoolRun run(seed, computes_again);
      for (int step = 0; step < 400 && !::testing::Test::HasFatalFailure(); ++step) run.Step();
      ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "seed " << seed << computes_again;
      EXPECT_GT(run.shared(), 0u) << "seed " << seed;
      EXPECT_GT(run.evictions(), 0u) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
