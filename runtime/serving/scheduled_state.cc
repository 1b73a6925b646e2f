// The BatchScheduler's part that has to do with the states of recurrent layers.

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/serving/scheduled_sequence.h"

namespace macrame::runtime::engine {

std::vector<StateCache::NodeId> BatchScheduler::CachedPath(const Sequence& sequence) const {
  return pool_.index().FindNodes(sequence.spec.salt, sequence.tokens,
                                 BlockPool::PrefixBlocksMax(sequence.tokens.size()));
}

BatchScheduler::Cached BatchScheduler::FindCached(const Sequence& sequence) const {
  if (!sequence.TakesCache()) return {};
  if (!states_.is_on()) return {pool_.FindPrefix(sequence.spec.salt, sequence.tokens)};
  Cached cached;
  std::vector<StateCache::NodeId> path = CachedPath(sequence);
  path.resize(states_.Usable(path));
  for (const StateCache::NodeId node : path) cached.blocks.push_back(pool_.index().BlockOf(node));
  if (!path.empty()) cached.state = path.back();
  return cached;
}

// So many blocks that `other` has or will have `sequence` could take from the cache.
uint32_t BatchScheduler::CommonBlocks(const Sequence& other, const Sequence& sequence) {
  if (other.spec.salt != sequence.spec.salt) return 0;
  const auto common = std::mismatch(other.tokens.begin(), other.tokens.end(),
                                    sequence.tokens.begin(), sequence.tokens.end());
  const auto tokens = static_cast<size_t>(common.first - other.tokens.begin());
  return static_cast<uint32_t>(
      std::min(tokens / kBlockTokens, BlockPool::PrefixBlocksMax(sequence.tokens.size())));
}

void BatchScheduler::AskForStates(Sequence& sequence) {
  if (std::exchange(sequence.state.has_asked, true)) return;  // who opens later looks for it
  const auto held = static_cast<uint32_t>(sequence.blocks.size());
  for (Sequence* other : running_) {
    if (!other->slot.has_value() || other->IsAnswering()) continue;
    states_.AskFor(other->state, other->fed, held, CommonBlocks(*other, sequence));
  }
}

void BatchScheduler::PlanCuts(Sequence& sequence) {
  const uint32_t held = sequence.fed / kBlockTokens;
  states_.PlanCuts(sequence.state, pool_.index(), CachedPath(sequence), held,
                   static_cast<uint32_t>(BlockPool::PrefixBlocksMax(sequence.tokens.size())));
  for (const Sequence* other : running_) {
    if (other == &sequence || other->slot.has_value()) continue;
    states_.AskFor(sequence.state, sequence.fed, std::max(held, other->fed / kBlockTokens),
                   CommonBlocks(sequence, *other));
  }
}

SnapshotId BatchScheduler::KeepState(Sequence& sequence, uint32_t end, SnapshotId opened) {
  if (!states_.is_on() || end % kBlockTokens != 0 || sequence.unknown > 0) return kNoSnapshot;
  sequence.state.opened = opened;
  const uint32_t blocks = end / kBlockTokens;
  return states_.Keep(sequence.state, pool_.index(),
                      pool_.Ahead(sequence.published, sequence.tokens, blocks), blocks,
                      end == sequence.tokens.size());
}

bool BatchScheduler::AwaitsState(const Sequence& sequence) const {
  const auto held = static_cast<uint32_t>(sequence.blocks.size());
  return std::any_of(running_.begin(), running_.end(), [&](const Sequence* other) {
    return other->slot.has_value() &&
           StateCache::WillKeep(other->state, other->fed, held,
                                std::numeric_limits<uint32_t>::max()) &&
           StateCache::WillKeep(other->state, other->fed, held, CommonBlocks(*other, sequence));
  });
}

SnapshotId BatchScheduler::OpenState(Sequence& sequence) {
  if (!states_.is_on()) return kNoSnapshot;
  return states_.Open(sequence.state, pool_.index(), CachedPath(sequence),
                      sequence.fed / kBlockTokens,
                      static_cast<uint32_t>(BlockPool::PrefixBlocksMax(sequence.tokens.size())));
}

PrefixMiss BatchScheduler::ExplainMiss(const Sequence& sequence) const {
  const size_t found = sequence.fed / kBlockTokens;
  if (states_.is_on() && CachedPath(sequence).size() > found) {
    return {PrefixMiss::Kind::kState, sequence.fed};
  }
  return pool_.ExplainMiss(sequence.spec.salt, sequence.tokens, found);
}

}  // namespace macrame::runtime::engine
