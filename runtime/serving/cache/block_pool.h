#pragma once

// The KV blocks of a gang by id, as rank 0 keeps them for all ranks: which are free, how many
// sequences use each, which are kept as cached prefixes. Pure.
//
// A block is free, in use (references > 0, one for each sequence's table that it stands in), or
// idle: nobody uses it, and it is kept because the prefix index knows its content. Idle blocks give
// way, the one that was used longest ago first, when no free one is left. Full blocks never change,
// so they may be shared; the last, partial block of a sequence is never offered to the index.
//
// Of models with recurrent layers (`computes_again`) a sequence may compute what is cached, because
// the layers' state behind it is not kept (state_cache.h). Its own blocks then take the place of
// idle ones with the same content: what it goes on to add hangs on blocks that it uses, and doesn't
// give way with older ones.
//
// Where attention reads a sequence's positions in place only if its blocks follow one another (on a
// GPU), the pool keeps runs. A sequence begins where there is room for all that it may come to, and
// that room is left to it as long as there are other blocks. An idle block behind its last one
// gives way to it. Elsewhere the free block of the lowest number is given.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/serving/cache/prefix_index.h"

namespace macrame::runtime::engine {

struct BlockPoolTraits {
  bool shares = true;           // else no prefix is ever found
  bool computes_again = false;  // blocks may be computed anew although they are cached
  bool keeps_runs = false;      // a sequence's blocks follow one another as far as they can
};

class BlockPool {
 public:
  explicit BlockPool(uint32_t blocks_total, BlockPoolTraits traits = {});

  uint32_t blocks_total() const { return static_cast<uint32_t>(blocks_.size()); }
  uint32_t free_blocks() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t idle_blocks() const { return idle_; }
  // What Allocate can give.
  uint32_t available() const { return free_blocks() + idle_; }
  uint32_t cached_blocks() const { return static_cast<uint32_t>(index_.blocks()); }
  uint64_t evictions() const { return evictions_; }
  const PrefixIndex& index() const { return index_; }

  // What a block is wanted for.
  struct Want {
    std::optional<BlockId> previous{};  // the sequence's last block
    uint32_t expected = 1;              // blocks that it may come to, this one counted
    bool is_first_own = false;          // those before it are another sequence's, or there are none
  };
  // A block with one reference, at the cost of an idle one if none is free; nothing when all blocks
  // are in use.
  std::optional<BlockId> Allocate(const Want& want);
  std::optional<BlockId> Allocate() { return Allocate(Want()); }
  void Retain(BlockId block);
  // Drops one reference (checked: there is one).
  void Release(BlockId block);

  // How many blocks of a prompt may come from the cache: at least one token has to be computed.
  static size_t PrefixBlocksMax(size_t tokens) {
    return tokens == 0 ? 0 : (tokens - 1) / kBlockTokens;
  }
  // The longest cached prefix of `tokens` under `salt`. Takes no references.
  std::vector<BlockId> FindPrefix(std::string_view salt, std::span<const int32_t> tokens) const;
  PrefixMiss ExplainMiss(std::string_view salt, std::span<const int32_t> tokens,
                         size_t found) const;
  // Whether it is there, and nobody uses it.
  bool IsUnused(BlockId block) const {
    return block >= 0 && static_cast<size_t>(block) < blocks_.size() && !IsUsed(block);
  }
  uint32_t CountIdle(std::span<const BlockId> blocks) const;

  // How far a sequence's full blocks have been offered to the index.
  struct Published {
    PrefixIndex::NodeId node = 0;
    uint32_t blocks = 0;
  };
  // The node of a published sequence's first `blocks` blocks, not fewer than those published, if
  // all of them are cached; else 0.
  PrefixIndex::NodeId Ahead(const Published& published, std::span<const int32_t> tokens,
                            uint32_t blocks) const;
  // Offers the first `full` blocks of a sequence, which hold the first of `tokens`; those already
  // offered are skipped. Where the same content is cached in another block, that one stays and the
  // sequence's own is not shared.
  void Publish(std::string_view salt, std::span<const int32_t> tokens,
               std::span<const BlockId> table, uint32_t full, Published& published);
  // Before a sequence's published blocks are released: its own take the place of idle ones.
  void TakeOverIdle(std::string_view salt, std::span<const int32_t> tokens,
                    std::span<const BlockId> table, const Published& published);

  // Aborts when a count, a list or the index contradicts another. `tables`: the block tables of all
  // sequences, which must account for every reference.
  void CheckInvariants(std::span<const std::span<const BlockId>> tables) const;

 private:
  static constexpr BlockId kNone = -1;
  struct Block {
    uint32_t references = 0;
    bool is_idle = false;
    BlockId older = kNone;  // neighbours among the idle ones
    BlockId newer = kNone;
  };
  Block& At(BlockId block);
  void MakeIdle(BlockId block);
  void TakeFromIdle(BlockId block);
  void Evict(BlockId block);
  bool IsUsed(BlockId block) const { return blocks_[static_cast<size_t>(block)].references > 0; }
  // Blocks [begin, end) that nobody uses.
  struct Gap {
    BlockId begin = 0;
    BlockId end = 0;
    uint32_t idle = 0;
    uint32_t size() const { return static_cast<uint32_t>(end - begin); }
  };
  // Where no sequence has been promised room, or `everywhere`.
  std::vector<Gap> Gaps(bool everywhere) const;
  std::optional<BlockId> FirstOfRun(uint32_t expected) const;
  std::optional<BlockId> Choose(const Want& want) const;
  void TakeOver(PrefixIndex::NodeId node, BlockId own);

  const BlockPoolTraits traits_;
  std::vector<Block> blocks_;
  std::set<BlockId> free_;
  // Room that sequences have been promised: from their first own block to its end.
  std::map<BlockId, BlockId> promised_;
  BlockId oldest_ = kNone;
  BlockId newest_ = kNone;
  uint32_t idle_ = 0;
  uint64_t evictions_ = 0;
  PrefixIndex index_;
};

}  // namespace macrame::runtime::engine
