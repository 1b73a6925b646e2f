#include "runtime/serving/cache/block_pool.h"

#include <algorithm>

#include "proto/check.h"

namespace macrame::runtime::engine {
namespace {

// Evicted blocks that are remembered by name, for explanations: 60 bytes or so each.
constexpr size_t kEvictedRememberedPerBlock = 4;

BlockTokens ContentAt(std::span<const int32_t> tokens, uint32_t block) {
  BlockTokens content;
  std::copy_n(tokens.begin() + static_cast<std::ptrdiff_t>(block * kBlockTokens), kBlockTokens,
              content.begin());
  return content;
}

}  // namespace

BlockPool::BlockPool(uint32_t blocks_total, BlockPoolTraits traits)
    : traits_(traits), blocks_(blocks_total), index_(kEvictedRememberedPerBlock * blocks_total) {
  MACRAME_CHECK(blocks_total > 0) << "a KV cache without blocks";
  for (uint32_t i = 0; i < blocks_total; ++i) free_.insert(static_cast<BlockId>(i));
}

BlockPool::Block& BlockPool::At(BlockId block) {
  MACRAME_CHECK(block >= 0 && static_cast<size_t>(block) < blocks_.size()) << "block " << block;
  return blocks_[static_cast<size_t>(block)];
}

std::vector<BlockPool::Gap> BlockPool::Gaps(bool everywhere) const {
  std::vector<Gap> gaps;
  BlockId promised_until = 0;
  auto next = promised_.begin();
  for (BlockId block = 0; block < static_cast<BlockId>(blocks_.size()); ++block) {
    for (; next != promised_.end() && next->first <= block; ++next) {
      promised_until = std::max(promised_until, next->second);
    }
    if (IsUsed(block) || (!everywhere && block < promised_until)) continue;
    if (gaps.empty() || gaps.back().end != block) gaps.push_back({block, block});
    gaps.back().end = block + 1;
    gaps.back().idle += blocks_[static_cast<size_t>(block)].is_idle ? 1 : 0;
  }
  return gaps;
}

// The smallest gap that holds it, of those with the fewest idle blocks; else the largest, halfway
// in, where the run before it may go on.
std::optional<BlockId> BlockPool::FirstOfRun(uint32_t expected) const {
  for (const bool everywhere : {false, true}) {
    const std::vector<Gap> gaps = Gaps(everywhere);
    if (gaps.empty()) continue;
    const auto fits = [&](const Gap& gap) { return gap.size() >= expected; };
    const auto better = [&](const Gap& a, const Gap& b) {
      if (fits(a) != fits(b)) return fits(a);
      if (!fits(a)) return a.size() > b.size();
      return std::pair(a.idle, a.size()) < std::pair(b.idle, b.size());
    };
    const Gap& best = *std::min_element(gaps.begin(), gaps.end(), better);
    if (fits(best)) return best.begin;
    if (everywhere) return best.begin + static_cast<BlockId>(best.size() / 2);
  }
  return std::nullopt;
}

std::optional<BlockId> BlockPool::Choose(const Want& want) const {
  if (available() == 0) return std::nullopt;
  if (!traits_.keeps_runs) return free_.empty() ? oldest_ : *free_.begin();
  if (want.previous.has_value()) {
    const BlockId next = *want.previous + 1;
    if (IsUnused(next)) return next;
  }
  return FirstOfRun(want.expected);
}

std::optional<BlockId> BlockPool::Allocate(const Want& want) {
  const std::optional<BlockId> block = Choose(want);
  if (!block.has_value()) return std::nullopt;
  if (At(*block).is_idle) Evict(*block);
  free_.erase(*block);
  At(*block).references = 1;
  if (traits_.keeps_runs && want.is_first_own) {
    promised_[*block] = *block + static_cast<BlockId>(want.expected);
  }
  return block;
}

void BlockPool::Retain(BlockId block) {
  Block& held = At(block);
  MACRAME_CHECK(held.references > 0 || held.is_idle) << "block " << block << " is free";
  if (held.is_idle) TakeFromIdle(block);
  ++held.references;
}

void BlockPool::Release(BlockId block) {
  Block& held = At(block);
  MACRAME_CHECK(held.references > 0) << "block " << block << " released once too often";
  if (--held.references > 0) return;
  promised_.erase(block);
  if (index_.Holds(block)) {
    MakeIdle(block);
  } else {
    free_.insert(block);
  }
}

void BlockPool::MakeIdle(BlockId block) {
  Block& idle = At(block);
  idle.is_idle = true;
  idle.older = newest_;
  idle.newer = kNone;
  (newest_ == kNone ? oldest_ : At(newest_).newer) = block;
  newest_ = block;
  ++idle_;
}

void BlockPool::TakeFromIdle(BlockId block) {
  Block& idle = At(block);
  (idle.older == kNone ? oldest_ : At(idle.older).newer) = idle.newer;
  (idle.newer == kNone ? newest_ : At(idle.newer).older) = idle.older;
  idle = Block{};
  --idle_;
}

// What hangs on an evicted block can't be found without it. Of the oldest that is nothing as a
// rule: tables are released from their end, and who holds a child holds its parent. A sequence
// whose own copy of the parent is another block is the exception: what it holds stays its own,
// uncached.
void BlockPool::Evict(BlockId evicted) {
  for (const BlockId block : index_.Remove(evicted)) {
    if (!At(block).is_idle) continue;
    TakeFromIdle(block);
    free_.insert(block);
    ++evictions_;
  }
}

std::vector<BlockId> BlockPool::FindPrefix(std::string_view salt,
                                           std::span<const int32_t> tokens) const {
  if (!traits_.shares) return {};
  return index_.Find(salt, tokens, PrefixBlocksMax(tokens.size()));
}

PrefixMiss BlockPool::ExplainMiss(std::string_view salt, std::span<const int32_t> tokens,
                                  size_t found) const {
  if (!traits_.shares) return {};
  return index_.Explain(salt, tokens, PrefixBlocksMax(tokens.size()), found);
}

uint32_t BlockPool::CountIdle(std::span<const BlockId> blocks) const {
  return static_cast<uint32_t>(std::count_if(blocks.begin(), blocks.end(), [&](BlockId block) {
    return blocks_[static_cast<size_t>(block)].is_idle;
  }));
}

PrefixIndex::NodeId BlockPool::Ahead(const Published& published, std::span<const int32_t> tokens,
                                     uint32_t blocks) const {
  PrefixIndex::NodeId node = index_.Exists(published.node) ? published.node : 0;
  for (uint32_t i = published.blocks; i < blocks && node != 0; ++i) {
    node = index_.Child(node, ContentAt(tokens, i));
  }
  return node;
}

void BlockPool::TakeOver(PrefixIndex::NodeId node, BlockId own) {
  const BlockId other = index_.BlockOf(node);
  if (!At(other).is_idle) return;
  index_.Replace(other, own);
  TakeFromIdle(other);
  free_.insert(other);
}

void BlockPool::TakeOverIdle(std::string_view salt, std::span<const int32_t> tokens,
                             std::span<const BlockId> table, const Published& published) {
  if (!traits_.computes_again || !index_.Exists(published.node)) return;
  const auto nodes = index_.FindNodes(salt, tokens, published.blocks);
  for (size_t i = 0; i < nodes.size(); ++i) TakeOver(nodes[i], table[i]);
}

void BlockPool::Publish(std::string_view salt, std::span<const int32_t> tokens,
                        std::span<const BlockId> table, uint32_t full, Published& published) {
  MACRAME_CHECK(full <= table.size() && full * kBlockTokens <= tokens.size())
      << "only full blocks are offered";
  if (published.blocks >= full || !traits_.shares) return;
  // The chain was evicted meanwhile: offered again from its beginning.
  if (published.node != 0 && !index_.Exists(published.node)) published = {};
  if (published.node == 0) published = {index_.Root(salt), 0};
  for (; published.blocks < full; ++published.blocks) {
    const BlockTokens content = ContentAt(tokens, published.blocks);
    const PrefixIndex::NodeId there = index_.Child(published.node, content);
    if (there != 0 && traits_.computes_again) TakeOver(there, table[published.blocks]);
    published.node =
        there != 0 ? there : index_.Insert(published.node, content, table[published.blocks]);
  }
}

void BlockPool::CheckInvariants(std::span<const std::span<const BlockId>> tables) const {
  std::vector<uint32_t> references(blocks_.size(), 0);
  for (const std::span<const BlockId> table : tables) {
    for (const BlockId block : table) ++references.at(static_cast<size_t>(block));
  }
  std::vector<bool> is_free(blocks_.size(), false);
  for (const BlockId block : free_) is_free.at(static_cast<size_t>(block)) = true;
  for (const auto& [first, end] : promised_) {
    MACRAME_CHECK(IsUsed(first)) << "room is promised behind block " << first
                                 << ", which is not in use";
  }
  uint32_t idle = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    const auto id = static_cast<BlockId>(i);
    MACRAME_CHECK(block.references == references[i])
        << "block " << i << " has " << block.references << " references and stands in "
        << references[i] << " tables";
    MACRAME_CHECK((block.references > 0) + block.is_idle + is_free[i] == 1)
        << "block " << i << " is lost, or counted twice";
    MACRAME_CHECK(!block.is_idle || index_.Holds(id)) << "block " << i << " is idle and unknown";
    MACRAME_CHECK(!is_free[i] || !index_.Holds(id)) << "block " << i << " is free and cached";
    idle += block.is_idle ? 1 : 0;
  }
  MACRAME_CHECK(idle == idle_) << "idle blocks counted wrongly";
  uint32_t listed = 0;
  BlockId older = kNone;
  for (BlockId at = oldest_; at != kNone; at = blocks_[static_cast<size_t>(at)].newer) {
    MACRAME_CHECK(blocks_[static_cast<size_t>(at)].is_idle) << "block " << at << " is not idle";
    MACRAME_CHECK(blocks_[static_cast<size_t>(at)].older == older) << "the idle list is torn";
    MACRAME_CHECK(++listed <= idle_) << "the idle list is a ring";
    older = at;
  }
  MACRAME_CHECK(listed == idle_ && newest_ == older) << "the idle list is torn";
  index_.CheckInvariants();
}

}  // namespace macrame::runtime::engine
