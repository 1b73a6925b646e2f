#pragma once

// Rank 0's side of the cold tier: which blocks are on disk, when to write one, and whether to read
// what a prompt lacks or to compute it. Pure.
//
// What is on rank 0's disk is taken to be on every rank's: all write the same blocks on rank 0's
// order. Each load is answered by every rank; where one can't read a block, all drop it, and it is
// computed. So nothing has to be agreed on at the start, and no file of any rank can do harm.
//
// Loads run beside steps: a prompt waits for its load, others go on. A load that has not come
// within kLoadLimit is given up. It is not begun when it would take longer than computing, by what
// loads took lately (the slowest rank counts) and by StepCost; after kCostKept without a load, one
// is tried again.
//
// Blocks are written when a request ends that had computed them, a few with each step, so that a
// step never waits for the disk; the conversation's beginning first.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "proto/monotonic_time.h"
#include "runtime/model/step/cold_orders.h"
#include "runtime/serving/cache/prefix_index.h"
#include "runtime/serving/cold/cold_event.h"

namespace macrame::runtime::engine {

inline constexpr uint32_t kColdLoadsMax = 4;          // under way
inline constexpr uint32_t kColdCandidatesMax = 8192;  // blocks that wait to be written
inline constexpr uint32_t kColdTouchesMax = 256;      // of one message
inline constexpr Duration kColdLoadLimit = std::chrono::seconds(4);
inline constexpr Duration kColdCostKept = std::chrono::seconds(60);
inline constexpr Duration kColdTouchPause = std::chrono::seconds(60);

struct ColdTraits {
  uint32_t ranks = 0;                // 0: no cold tier
  uint32_t load_blocks_max = 32;     // of one load
  uint32_t stores_per_step = 4;      // copies that a step waits for
  uint32_t stores_at_once_max = 16;  // ordered, and not yet written on rank 0
};

struct ColdTierCounts {
  uint64_t loads = 0;
  uint64_t loaded_blocks = 0;  // that prompts went on with
  uint64_t failed_loads = 0;   // a rank had less than was ordered
  uint64_t late_loads = 0;
  uint64_t slower_loads = 0;    // not begun: computing was predicted to be faster
  uint64_t dropped_stores = 0;  // not written: queues were full, or the block had given way
};

class ColdTier {
 public:
  explicit ColdTier(const ColdTraits& traits) : traits_(traits) {}

  void On(const ColdEvent& event, MonotonicTime now);
  // False once any rank has none, or its disk is full.
  bool on() const { return off_reason_.empty(); }
  const std::string& off_reason() const { return off_reason_; }
  const ColdTierCounts& counts() const { return counts_; }
  size_t blocks() const { return held_.size(); }

  // What a prompt that has not begun knows about its blocks on disk.
  struct Seeker {
    std::vector<BlockName> names{};  // of its full blocks, from the first
    uint64_t load = 0;               // under way for it
    bool is_done = false;            // the rest is computed
  };
  enum class Next : uint8_t { kCompute, kWait, kTake };
  struct Prompt {
    std::string_view salt;
    std::span<const int32_t> tokens;
    uint32_t blocks_held = 0;
    uint32_t blocks_max = 0;  // that may come from a cache
  };
  // kTake: *taken blocks behind those held are in every rank's memory; a fill is due (Take).
  // `computing`: how long so many more blocks would take to compute.
  Next Seek(Seeker& seeker, const Prompt& prompt, MonotonicTime now,
            const std::function<Duration(uint32_t)>& computing, uint32_t* taken);
  // The blocks that were given for what came; none: it is given up.
  void Take(Seeker& seeker, std::vector<BlockId> blocks);
  // The prompt is gone, or begins.
  void Leave(Seeker& seeker);

  // A block of a request that ended, `depth` blocks behind the beginning.
  void Offer(const PrefixIndex& index, BlockId block, uint32_t depth, MonotonicTime now);
  // What the ranks are told next. Blocks that have given way meanwhile are left out.
  ColdOrders TakeOrders(const PrefixIndex& index);
  bool has_orders() const { return !orders_.empty() || !candidates_.empty(); }

 private:
  struct Load {
    std::vector<BlockName> names;
    MonotonicTime ordered{};
    std::vector<bool> answered;  // by rank
    uint32_t unanswered = 0;
    uint32_t blocks = 0;  // that all who answered have
    uint32_t begin = 0;   // depth of the first
    bool is_wanted = true;
  };
  struct Candidate {
    BlockName name;
    BlockId block;
    uint32_t depth;
  };

  void NameBlocks(Seeker& seeker, const Prompt& prompt) const;
  void OnLoaded(const ColdEvent& event, MonotonicTime now);
  Next Look(Seeker& seeker, const Load& load, const Prompt& prompt, MonotonicTime now,
            uint32_t* taken);
  void OrderLoad(Seeker& seeker, const Prompt& prompt, uint32_t blocks, MonotonicTime now);
  void GiveUp(uint64_t id);
  void LearnCost(Duration took, uint32_t blocks, MonotonicTime now);

  const ColdTraits traits_;
  std::string off_reason_;
  absl::flat_hash_map<BlockName, MonotonicTime> held_;  // last told to have been used
  absl::flat_hash_set<BlockName> awaited_;              // candidates, and what is being written
  std::deque<Candidate> candidates_;
  uint32_t stores_under_way_ = 0;
  std::map<uint64_t, Load> loads_;
  absl::flat_hash_set<BlockName> loading_;
  uint64_t last_load_ = 0;
  double load_us_per_block_ = 0;  // 0: not known
  MonotonicTime cost_learned_{};
  ColdOrders orders_;
  ColdTierCounts counts_;
};

}  // namespace macrame::runtime::engine
