#include "runtime/serving/cold/cold_tier.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macrame::runtime::engine {
namespace {

constexpr double kNewCostShare = 0.5;
// What a smaller load takes is mostly the way there and back.
constexpr uint32_t kCostBlocksMin = 8;

}  // namespace

void ColdTier::On(const ColdEvent& event, MonotonicTime now) {
  switch (event.kind) {
    case ColdEvent::Kind::kListed:
      for (const BlockName& name : event.names) held_.try_emplace(name, MonotonicTime());
      return;
    case ColdEvent::Kind::kStored:
    case ColdEvent::Kind::kRefused:
      for (const BlockName& name : event.names) {
        if (awaited_.erase(name) == 0) continue;
        --stores_under_way_;
        if (event.kind == ColdEvent::Kind::kStored) held_.insert_or_assign(name, now);
        counts_.dropped_stores += event.kind == ColdEvent::Kind::kRefused ? 1 : 0;
      }
      return;
    case ColdEvent::Kind::kRemoved:
      for (const BlockName& name : event.names) held_.erase(name);
      return;
    case ColdEvent::Kind::kLoaded:
      return OnLoaded(event, now);
    case ColdEvent::Kind::kOff:
      if (off_reason_.empty()) {
        off_reason_ = absl::StrCat("rank ", event.rank, ": ", event.text);
      }
      candidates_.clear();
      return;
  }
}

void ColdTier::OnLoaded(const ColdEvent& event, MonotonicTime now) {
  const auto found = loads_.find(event.id);
  if (found == loads_.end() || event.rank >= traits_.ranks) return;
  Load& load = found->second;
  if (load.answered[event.rank]) return;
  load.answered[event.rank] = true;
  --load.unanswered;
  load.blocks = std::min(load.blocks, event.blocks);
  if (load.unanswered > 0) return;
  const auto ordered = static_cast<uint32_t>(load.names.size());
  if (load.blocks < ordered) {
    ++counts_.failed_loads;
    held_.erase(load.names[load.blocks]);
    orders_.drops.push_back(load.names[load.blocks]);
  } else {
    const bool says_much = ordered >= std::min(kCostBlocksMin, traits_.load_blocks_max);
    if (says_much) LearnCost(now - load.ordered, ordered, now);
  }
  if (!load.is_wanted) {
    orders_.fills.push_back({event.id, {}});
    loads_.erase(found);
  }
}

void ColdTier::LearnCost(Duration took, uint32_t blocks, MonotonicTime now) {
  const double us = static_cast<double>(std::max<int64_t>(took.count(), 1)) / blocks;
  const bool is_known = load_us_per_block_ > 0 && now < cost_learned_ + kColdCostKept;
  load_us_per_block_ =
      is_known ? load_us_per_block_ + kNewCostShare * (us - load_us_per_block_) : us;
  cost_learned_ = now;
}

void ColdTier::NameBlocks(Seeker& seeker, const Prompt& prompt) const {
  if (!seeker.names.empty()) return;
  BlockName name = RootName(prompt.salt);
  for (uint32_t block = 0; block < prompt.blocks_max; ++block) {
    BlockTokens tokens;
    std::copy_n(prompt.tokens.begin() + static_cast<std::ptrdiff_t>(block * kBlockTokens),
                kBlockTokens, tokens.begin());
    name = ChildName(name, tokens);
    seeker.names.push_back(name);
  }
}

ColdTier::Next ColdTier::Seek(Seeker& seeker, const Prompt& prompt, MonotonicTime now,
                              const std::function<Duration(uint32_t)>& computing, uint32_t* taken) {
  if (seeker.is_done) return Next::kCompute;
  if (seeker.load != 0) return Look(seeker, loads_.at(seeker.load), prompt, now, taken);
  if (!on() || held_.empty() || prompt.blocks_held >= prompt.blocks_max) return Next::kCompute;
  NameBlocks(seeker, prompt);
  const std::span<const BlockName> wanted = std::span(seeker.names).subspan(prompt.blocks_held);
  const auto end = std::find_if(wanted.begin(), wanted.end(),
                                [this](const BlockName& name) { return !held_.contains(name); });
  const auto there = static_cast<uint32_t>(end - wanted.begin());
  if (there == 0) return Next::kCompute;
  // Another prompt is fetching it.
  if (loading_.contains(wanted.front())) return Next::kWait;
  if (load_us_per_block_ > 0 && now < cost_learned_ + kColdCostKept) {
    const double loading_us = load_us_per_block_ * there;
    const auto computing_us = static_cast<double>(computing(there).count());
    if (computing_us > 0 && loading_us >= computing_us) {
      ++counts_.slower_loads;
      seeker.is_done = true;
      return Next::kCompute;
    }
  }
  if (loads_.size() < kColdLoadsMax) {
    OrderLoad(seeker, prompt, std::min(there, traits_.load_blocks_max), now);
    return Next::kWait;
  }
  // Loads that nobody wants any more may be those of a rank that hangs.
  const bool is_moving = std::any_of(loads_.begin(), loads_.end(),
                                     [](const auto& load) { return load.second.is_wanted; });
  return is_moving ? Next::kWait : Next::kCompute;
}

void ColdTier::OrderLoad(Seeker& seeker, const Prompt& prompt, uint32_t blocks, MonotonicTime now) {
  const uint32_t begin = prompt.blocks_held;
  ColdLoad order;
  order.id = ++last_load_;
  order.parent = begin == 0 ? RootName(prompt.salt) : seeker.names[begin - 1];
  order.depth = begin;
  const auto tokens = prompt.tokens.subspan(size_t{begin} * kBlockTokens, blocks * kBlockTokens);
  order.tokens.assign(tokens.begin(), tokens.end());
  Load load;
  load.names.assign(seeker.names.begin() + begin, seeker.names.begin() + begin + blocks);
  load.ordered = now;
  load.answered.assign(traits_.ranks, false);
  load.unanswered = traits_.ranks;
  load.blocks = blocks;
  load.begin = begin;
  loading_.insert(load.names.begin(), load.names.end());
  orders_.loads.push_back(std::move(order));
  loads_.emplace(last_load_, std::move(load));
  seeker.load = last_load_;
  ++counts_.loads;
}

ColdTier::Next ColdTier::Look(Seeker& seeker, const Load& load, const Prompt& prompt,
                              MonotonicTime now, uint32_t* taken) {
  if (load.unanswered > 0) {
    if (now < load.ordered + kColdLoadLimit) return Next::kWait;
    ++counts_.late_loads;
    LearnCost(now - load.ordered, static_cast<uint32_t>(load.names.size()), now);
    GiveUp(std::exchange(seeker.load, 0));
    seeker.is_done = true;
    return Next::kCompute;
  }
  // The rest is computed where a rank could not go on.
  if (load.blocks < load.names.size()) seeker.is_done = true;
  // Somebody else computed the same meanwhile, or there is nothing.
  if (load.blocks == 0 || load.begin != prompt.blocks_held) {
    GiveUp(std::exchange(seeker.load, 0));
    return Next::kCompute;
  }
  *taken = load.blocks;
  return Next::kTake;
}

void ColdTier::Take(Seeker& seeker, std::vector<BlockId> blocks) {
  const auto found = loads_.find(std::exchange(seeker.load, 0));
  counts_.loaded_blocks += blocks.size();
  if (blocks.size() < found->second.blocks) seeker.is_done = true;
  for (const BlockName& name : found->second.names) loading_.erase(name);
  orders_.fills.push_back({found->first, std::move(blocks)});
  loads_.erase(found);
}

// What still comes is told to be forgotten when it is there.
void ColdTier::GiveUp(uint64_t id) {
  const auto found = loads_.find(id);
  for (const BlockName& name : found->second.names) loading_.erase(name);
  if (found->second.unanswered > 0) {
    found->second.is_wanted = false;
    return;
  }
  orders_.fills.push_back({id, {}});
  loads_.erase(found);
}

void ColdTier::Leave(Seeker& seeker) {
  if (seeker.load != 0) GiveUp(seeker.load);
  seeker = {};
}

void ColdTier::Offer(const PrefixIndex& index, BlockId block, uint32_t depth, MonotonicTime now) {
  if (!on()) return;
  const BlockName& name = index.NameOf(block);
  if (const auto held = held_.find(name); held != held_.end()) {
    if (now < held->second + kColdTouchPause && held->second != MonotonicTime()) return;
    if (orders_.touches.size() >= kColdTouchesMax) return;
    held->second = now;
    orders_.touches.push_back(name);
    return;
  }
  if (awaited_.contains(name)) return;
  if (candidates_.size() >= kColdCandidatesMax) {
    ++counts_.dropped_stores;
    return;
  }
  awaited_.insert(name);
  candidates_.push_back({name, block, depth});
}

ColdOrders ColdTier::TakeOrders(const PrefixIndex& index) {
  while (!candidates_.empty() && orders_.stores.size() < traits_.stores_per_step &&
         stores_under_way_ < traits_.stores_at_once_max) {
    const Candidate next = candidates_.front();
    candidates_.pop_front();
    if (!index.Holds(next.block) || index.NameOf(next.block) != next.name) {
      awaited_.erase(next.name);
      ++counts_.dropped_stores;
      continue;
    }
    ColdBlock content = index.ContentOf(next.block);
    content.depth = next.depth;
    orders_.stores.push_back({next.block, content});
    ++stores_under_way_;
  }
  return std::exchange(orders_, {});
}

}  // namespace macrame::runtime::engine
