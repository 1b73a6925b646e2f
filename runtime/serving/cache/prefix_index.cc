#include "runtime/serving/cache/prefix_index.h"

#include <openssl/sha.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/check.h"

namespace macrame::runtime::engine {
namespace {

constexpr const char* kNameLabel = "macrame KV block, 32 tokens, 1";

BlockTokens BlockAt(std::span<const int32_t> tokens, size_t block) {
  BlockTokens taken;
  std::copy_n(tokens.begin() + static_cast<std::ptrdiff_t>(block * kBlockTokens), kBlockTokens,
              taken.begin());
  return taken;
}

}  // namespace

BlockName DigestOf(std::string_view bytes) {
  BlockName digest;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return digest;
}

std::string TokenBytes(const BlockTokens& tokens) {
  std::string bytes;
  bytes.reserve(4 * tokens.size());
  for (const int32_t token : tokens) {
    const auto bits = static_cast<uint32_t>(token);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift & 0xFF);
  }
  return bytes;
}

BlockName RootName(std::string_view salt) {
  return DigestOf(absl::StrCat(kNameLabel, ",", salt.size(), ":", std::string(salt)));
}

BlockName ChildName(const BlockName& parent, const BlockTokens& tokens) {
  return DigestOf(std::string(parent.begin(), parent.end()) + TokenBytes(tokens));
}

std::string DescribeMiss(const PrefixMiss& miss) {
  switch (miss.kind) {
    case PrefixMiss::Kind::kNone:
      return "";
    case PrefixMiss::Kind::kEmpty:
      return "nothing is cached yet";
    case PrefixMiss::Kind::kDiffers:
      return absl::StrCat("differs at token ", miss.position);
    case PrefixMiss::Kind::kEnds:
      return absl::StrCat("cached up to token ", miss.position);
    case PrefixMiss::Kind::kEvicted:
      return absl::StrCat("evicted from token ", miss.position);
    case PrefixMiss::Kind::kState:
      return miss.position == 0
                 ? "cached, but without its recurrent state"
                 : absl::StrCat("cached, but its recurrent state only up to token ", miss.position);
  }
  return "";
}

std::pair<PrefixIndex::NodeId, size_t> PrefixIndex::Walk(std::string_view salt,
                                                         std::span<const int32_t> tokens,
                                                         size_t blocks_max,
                                                         std::vector<NodeId>* nodes) const {
  MACRAME_CHECK(blocks_max * kBlockTokens <= tokens.size()) << "a lookup beyond the prompt";
  const auto root = roots_.find(salt);
  if (root == roots_.end()) return {0, 0};
  NodeId node = root->second;
  size_t depth = 0;
  for (; depth < blocks_max; ++depth) {
    const NodeId child = Child(node, BlockAt(tokens, depth));
    if (child == 0) break;
    node = child;
    if (nodes != nullptr) nodes->push_back(node);
  }
  return {node, depth};
}

std::vector<BlockId> PrefixIndex::Find(std::string_view salt, std::span<const int32_t> tokens,
                                       size_t blocks_max) const {
  std::vector<BlockId> blocks;
  for (const NodeId node : FindNodes(salt, tokens, blocks_max)) blocks.push_back(BlockOf(node));
  return blocks;
}

std::vector<PrefixIndex::NodeId> PrefixIndex::FindNodes(std::string_view salt,
                                                        std::span<const int32_t> tokens,
                                                        size_t blocks_max) const {
  std::vector<NodeId> nodes;
  Walk(salt, tokens, blocks_max, &nodes);
  return nodes;
}

PrefixMiss PrefixIndex::Explain(std::string_view salt, std::span<const int32_t> tokens,
                                size_t blocks_max, size_t found) const {
  if (found >= blocks_max) return {};
  const auto [node, depth] = Walk(salt, tokens, found, nullptr);
  const auto position = static_cast<uint32_t>(depth * kBlockTokens);
  const BlockTokens next = BlockAt(tokens, depth);
  const BlockName name = ChildName(node == 0 ? RootName(salt) : nodes_.at(node).name, next);
  if (evicted_.contains(name)) return {PrefixMiss::Kind::kEvicted, position};
  if (node == 0) return {PrefixMiss::Kind::kEmpty, 0};
  if (nodes_.at(node).children == 0) return {PrefixMiss::Kind::kEnds, position};
  return {PrefixMiss::Kind::kDiffers, position + CommonTokens(node, next)};
}

// The sibling with the longest common beginning stands next to where `tokens` would.
uint32_t PrefixIndex::CommonTokens(NodeId parent, const BlockTokens& tokens) const {
  const auto common = [&](const ChildKey& key) {
    if (key.parent != parent) return 0u;
    const auto at = std::mismatch(tokens.begin(), tokens.end(), key.tokens.begin()).first;
    return static_cast<uint32_t>(at - tokens.begin());
  };
  const auto after = children_.lower_bound(ChildKey{parent, tokens});
  uint32_t longest = after == children_.end() ? 0 : common(after->first);
  if (after != children_.begin()) longest = std::max(longest, common(std::prev(after)->first));
  return longest;
}

PrefixIndex::NodeId PrefixIndex::Root(std::string_view salt) {
  const auto found = roots_.find(salt);
  if (found != roots_.end()) return found->second;
  const NodeId id = next_++;
  Node& node = nodes_[id];
  node.name = RootName(salt);
  node.salt = std::string(salt);
  roots_.emplace(node.salt, id);
  return id;
}

PrefixIndex::NodeId PrefixIndex::Child(NodeId parent, const BlockTokens& tokens) const {
  const auto found = children_.find(ChildKey{parent, tokens});
  return found == children_.end() ? 0 : found->second;
}

PrefixIndex::NodeId PrefixIndex::Insert(NodeId parent, const BlockTokens& tokens, BlockId block) {
  const auto above = nodes_.find(parent);
  MACRAME_CHECK(above != nodes_.end()) << "block " << block << " hung on a node that is gone";
  MACRAME_CHECK(!by_block_.contains(block)) << "block " << block << " cached twice";
  const NodeId id = next_++;
  const bool added = children_.emplace(ChildKey{parent, tokens}, id).second;
  MACRAME_CHECK(added) << "the content of block " << block << " is cached already";
  ++above->second.children;
  Node node;
  node.parent = parent;
  node.tokens = tokens;
  node.block = block;
  node.name = ChildName(above->second.name, tokens);
  evicted_.erase(node.name);
  nodes_.emplace(id, std::move(node));
  by_block_.emplace(block, id);
  return id;
}

void PrefixIndex::Replace(BlockId block, BlockId other) {
  const auto found = by_block_.find(block);
  MACRAME_CHECK(found != by_block_.end()) << "block " << block << " is not cached";
  const NodeId node = found->second;
  by_block_.erase(found);
  const bool added = by_block_.emplace(other, node).second;
  MACRAME_CHECK(added) << "block " << other << " cached twice";
  nodes_.at(node).block = other;
}

std::vector<BlockId> PrefixIndex::Remove(BlockId block) {
  const auto found = by_block_.find(block);
  MACRAME_CHECK(found != by_block_.end()) << "block " << block << " is not cached";
  const NodeId node = found->second;
  const NodeId parent = nodes_.at(node).parent;
  std::vector<BlockId> removed;
  RemoveNode(node, removed);
  Node& above = nodes_.at(parent);
  --above.children;
  if (above.block < 0 && above.children == 0) {
    roots_.erase(above.salt);
    nodes_.erase(parent);
  }
  return removed;
}

// Without recursion: a conversation may be a thousand blocks deep.
void PrefixIndex::RemoveNode(NodeId node, std::vector<BlockId>& removed) {
  std::vector<NodeId> pending = {node};
  while (!pending.empty()) {
    const NodeId id = pending.back();
    pending.pop_back();
    constexpr int32_t kLowest = std::numeric_limits<int32_t>::min();
    BlockTokens first;
    first.fill(kLowest);
    for (auto at = children_.lower_bound(ChildKey{id, first});
         at != children_.end() && at->first.parent == id; ++at) {
      pending.push_back(at->second);
    }
    const Node& gone = nodes_.at(id);
    children_.erase(ChildKey{gone.parent, gone.tokens});
    by_block_.erase(gone.block);
    removed.push_back(gone.block);
    Remember(gone.name);
    nodes_.erase(id);
  }
}

void PrefixIndex::Remember(const BlockName& name) {
  if (evicted_max_ == 0) return;
  evicted_.insert_or_assign(name, ++evictions_);
  evicted_order_.push_back(name);
  while (evicted_order_.size() > evicted_max_) {
    const auto oldest = evicted_.find(evicted_order_.front());
    // A name that was cached again meanwhile has left evicted_, or went once more.
    const bool is_last =
        oldest != evicted_.end() && oldest->second == evictions_ - evicted_order_.size() + 1;
    if (is_last) evicted_.erase(oldest);
    evicted_order_.pop_front();
  }
}

const BlockName& PrefixIndex::NameOf(BlockId block) const {
  return nodes_.at(by_block_.at(block)).name;
}

ColdBlock PrefixIndex::ContentOf(BlockId block) const {
  const Node& node = nodes_.at(by_block_.at(block));
  return {nodes_.at(node.parent).name, node.tokens, 0};
}

void PrefixIndex::CheckInvariants() const {
  MACRAME_CHECK(nodes_.size() == by_block_.size() + roots_.size()) << "nodes without a block";
  MACRAME_CHECK(children_.size() == by_block_.size()) << "blocks that hang on nothing";
  absl::flat_hash_map<NodeId, uint32_t> counted;
  for (const auto& [key, id] : children_) {
    const auto node = nodes_.find(id);
    MACRAME_CHECK(node != nodes_.end()) << "a child that is gone";
    MACRAME_CHECK(node->second.parent == key.parent && node->second.tokens == key.tokens)
        << "a child under another key";
    const auto held = by_block_.find(node->second.block);
    MACRAME_CHECK(held != by_block_.end() && held->second == id) << "a block of two nodes";
    const auto parent = nodes_.find(key.parent);
    MACRAME_CHECK(parent != nodes_.end()) << "a child without its parent";
    ++counted[key.parent];
  }
  for (const auto& [id, node] : nodes_) {
    const auto seen = counted.find(id);
    MACRAME_CHECK(node.children == (seen == counted.end() ? 0 : seen->second))
        << "children counted wrongly";
  }
  MACRAME_CHECK(evicted_order_.size() <= evicted_max_) << "too many evicted blocks remembered";
}

}  // namespace macrame::runtime::engine
