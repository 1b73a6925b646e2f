// Which blocks a sequence has: part of batch_scheduler.h.

#include <algorithm>

#include "proto/check.h"
#include "runtime/serving/batch_scheduler.h"
#include "runtime/serving/scheduled_sequence.h"

namespace macrame::runtime::engine {

std::optional<BlockId> BatchScheduler::Allocate(Sequence& sequence) {
  const auto held = static_cast<uint32_t>(sequence.blocks.size());
  BlockPool::Want want;
  if (held > 0) want.previous = sequence.blocks.back();
  want.expected = std::max(sequence.BlocksMax(), held + 1) - held;
  want.is_first_own = held == sequence.shared_blocks;
  return pool_.Allocate(want);
}

// Whether it may have `cached` themselves and go on in a run: they are one, and what comes behind
// them is not in use.
bool BatchScheduler::GoesOnBehind(const Sequence& sequence, std::span<const BlockId> cached) const {
  if (!traits_.keeps_runs || cached.empty()) return true;
  if (sequence.shared_blocks < sequence.blocks.size()) return false;  // copies, or its own
  BlockId last = sequence.blocks.empty() ? cached.front() - 1 : sequence.blocks.back();
  for (const BlockId block : cached) {
    if (block != last + 1) return false;
    last = block;
  }
  return pool_.IsUnused(last + 1);
}

void BatchScheduler::TakeCached(Sequence& sequence, std::span<const BlockId> cached,
                                uint32_t room) {
  const auto count = static_cast<uint32_t>(cached.size());
  // Copies take blocks of their own, beside the idle ones that they are made of.
  const uint32_t needed = count + pool_.CountIdle(cached) + 1;
  const bool is_shared = GoesOnBehind(sequence, cached) || needed > room;
  for (const BlockId block : cached) pool_.Retain(block);
  for (const BlockId block : cached) {
    if (is_shared) {
      sequence.shared_blocks += sequence.shared_blocks == sequence.blocks.size() ? 1 : 0;
      sequence.blocks.push_back(block);
      continue;
    }
    const std::optional<BlockId> own = Allocate(sequence);
    MACRAME_CHECK(own.has_value()) << "no block for a copy, of " << pool_.available();
    sequence.copies.push_back({block, *own});
    sequence.blocks.push_back(*own);
  }
}

// Blocks that were cached since the sequence was started; it has had no step yet.
void BatchScheduler::TakeMoreOfCache(Sequence& sequence) {
  const auto [cached, state] = FindCached(sequence);
  const size_t held = sequence.blocks.size();
  if (cached.size() <= held) return;
  for (size_t i = 0, copied = 0; i < held; ++i) {
    const bool is_copy =
        copied < sequence.copies.size() && sequence.copies[copied].to == sequence.blocks[i];
    const BlockId source = is_copy ? sequence.copies[copied++].from : sequence.blocks[i];
    if (source != cached[i]) return;
  }
  const uint32_t promised = PromisedBlocks();
  TakeCached(sequence, std::span(cached).subspan(held),
             pool_.available() - std::min(pool_.available(), promised));
  states_.Hold(sequence.state, state);
  sequence.fed = static_cast<uint32_t>(sequence.blocks.size()) * kBlockTokens;
}

void BatchScheduler::OrderCopies(Plan& plan, Sequence& sequence) {
  for (const BlockCopy& copy : sequence.copies) {
    plan.step.copies.push_back(copy);
    pool_.Release(copy.from);
  }
  sequence.copies.clear();
}

}  // namespace macrame::runtime::engine
