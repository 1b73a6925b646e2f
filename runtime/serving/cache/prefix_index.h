#pragma once

// Which runs of tokens stand in which KV blocks: a tree whose every node is one full block of 32
// tokens behind its parent's tokens, with a root for each salt. Pure; keeps no references (that is
// BlockPool's part).
//
// A hit compares all tokens, and a child is found by its parent's identity and its own tokens, so
// no hash decides what is served: prompts made to collide can't reach another's blocks. Salts have
// roots of their own: what one tenant cached is never found, and never named in an explanation,
// under another's salt.
//
// Besides, each node has a name: SHA-256 chained over the salt and all tokens up to its end. It is
// the same in every process, so it fits a cache on disk, and it is how blocks that were evicted are
// remembered.

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "runtime/model/step/cold_orders.h"

namespace macrame::runtime::engine {

// SHA-256.
BlockName DigestOf(std::string_view bytes);
// As names and files have them: four bytes each, the lowest first.
std::string TokenBytes(const BlockTokens& tokens);

BlockName RootName(std::string_view salt);
BlockName ChildName(const BlockName& parent, const BlockTokens& tokens);
inline BlockName NameOf(const ColdBlock& block) { return ChildName(block.parent, block.tokens); }

// Why no more of a prompt was found.
struct PrefixMiss {
  enum class Kind : uint8_t {
    kNone,     // all that may be taken from the cache was there
    kEmpty,    // nothing is cached under this salt
    kDiffers,  // the nearest cached conversation has another token at `position`
    kEnds,     // what is cached of this conversation ends before `position`
    kEvicted,  // the block that begins at `position` was cached and had to give way
    kState,    // more is cached, but recurrent layers have no state behind any later block of it
  };
  Kind kind = Kind::kNone;
  uint32_t position = 0;  // index within the prompt
  bool operator==(const PrefixMiss&) const = default;
};
// "differs at token 812"; empty for kNone.
std::string DescribeMiss(const PrefixMiss& miss);

class PrefixIndex {
 public:
  using NodeId = uint64_t;  // never used twice; 0 is none
  // `evicted_max`: how many evicted blocks are remembered by name.
  explicit PrefixIndex(size_t evicted_max) : evicted_max_(evicted_max) {}

  // The longest run of full blocks that hold the first of `tokens`, at most `blocks_max`.
  std::vector<BlockId> Find(std::string_view salt, std::span<const int32_t> tokens,
                            size_t blocks_max) const;
  // The nodes of these blocks, the first one first.
  std::vector<NodeId> FindNodes(std::string_view salt, std::span<const int32_t> tokens,
                                size_t blocks_max) const;
  // Why Find found no more than `found` blocks of `blocks_max`.
  PrefixMiss Explain(std::string_view salt, std::span<const int32_t> tokens, size_t blocks_max,
                     size_t found) const;

  // Where a chain begins; lives as long as something hangs on it.
  NodeId Root(std::string_view salt);
  // None when there is no such node (any more).
  NodeId Child(NodeId parent, const BlockTokens& tokens) const;
  // `block` must be in no node yet, `parent` must exist and have no such child.
  NodeId Insert(NodeId parent, const BlockTokens& tokens, BlockId block);
  bool Exists(NodeId node) const { return nodes_.contains(node); }
  bool Holds(BlockId block) const { return by_block_.contains(block); }
  BlockId BlockOf(NodeId node) const { return nodes_.at(node).block; }
  uint32_t Children(NodeId node) const { return nodes_.at(node).children; }
  // The node of `block` is that of `other` from here on, which has the same content.
  void Replace(BlockId block, BlockId other);

  // Takes the node of `block` out, with all that hang on it; their blocks, that one first.
  std::vector<BlockId> Remove(BlockId block);

  size_t blocks() const { return by_block_.size(); }
  const BlockName& NameOf(BlockId block) const;
  // What it holds, by its parent's name and its tokens.
  ColdBlock ContentOf(BlockId block) const;
  void CheckInvariants() const;

 private:
  struct Node {
    NodeId parent = 0;
    BlockTokens tokens{};
    BlockId block = -1;  // of a root: none
    uint32_t children = 0;
    BlockName name{};
    std::string salt;  // of a root
  };
  struct ChildKey {
    NodeId parent;
    BlockTokens tokens;
    auto operator<=>(const ChildKey&) const = default;
  };
  // The deepest node of `tokens`, and how many blocks lie up to it.
  std::pair<NodeId, size_t> Walk(std::string_view salt, std::span<const int32_t> tokens,
                                 size_t blocks_max, std::vector<NodeId>* nodes) const;
  uint32_t CommonTokens(NodeId parent, const BlockTokens& tokens) const;
  void RemoveNode(NodeId node, std::vector<BlockId>& removed);
  void Remember(const BlockName& name);

  const size_t evicted_max_;
  NodeId next_ = 1;
  absl::flat_hash_map<NodeId, Node> nodes_;
  absl::btree_map<ChildKey, NodeId> children_;  // ordered, so that the nearest sibling is beside
  absl::flat_hash_map<BlockId, NodeId> by_block_;
  std::map<std::string, NodeId, std::less<>> roots_;
  absl::flat_hash_map<BlockName, uint64_t> evicted_;  // by number, which of its evictions was last
  std::deque<BlockName> evicted_order_;               // ends with number `evictions_`
  uint64_t evictions_ = 0;
};

}  // namespace macrame::runtime::engine
