#include "planner/layer_partition.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "planner/planner.h"
#include "planner/saturating.h"

namespace macrame::planner {

LayerPartition::LayerPartition(const MemoryModel& memory, std::vector<StageNode> candidates)
    : memory_(memory), candidates_(std::move(candidates)) {}

bool LayerPartition::Holds(size_t node, uint32_t begin, uint32_t end, bool first, bool last) const {
  return memory_.NeedBytes(candidates_[node].kind, begin, end, first, last) <=
         candidates_[node].budget_bytes;
}

// No division can hold the model when the nodes together can't hold what every division holds.
bool LayerPartition::IsHopeless(uint32_t stages) const {
  const v1::MemoryNeed least =
      memory_.Need(ComputeKind::kGpu, 0, memory_.layer_count(), true, true);
  uint64_t needed = SaturatingMultiply(stages, least.runtime_bytes());
  for (uint64_t item : {least.weights_bytes(), least.embedding_bytes(), least.head_bytes(),
                        least.kv_cache_bytes()}) {
    needed = SaturatingAdd(needed, item);
  }
  uint64_t given = 0;
  for (uint32_t i = 0; i < stages; ++i) given = SaturatingAdd(given, candidates_[i].budget_bytes);
  return needed > given;
}

std::optional<std::vector<StageRange>> LayerPartition::Split(uint32_t stages) {
  if (stages == 0 || stages > candidates_.size() || stages > memory_.layer_count()) return {};
  if (IsHopeless(stages)) return {};
  std::vector<size_t> largest_first(stages);
  std::iota(largest_first.begin(), largest_first.end(), size_t{0});
  auto ranges = BalanceInOrder(largest_first);
  if (ranges.has_value() || candidates_.size() > static_cast<size_t>(kExactNodesMax)) return ranges;
  if (ends_.empty()) SearchAllSets();
  const auto order = FeasibleOrder(stages);
  if (!order.has_value()) return {};
  return BalanceInOrder(*order);
}

void LayerPartition::SearchAllSets() {
  ends_.assign(size_t{1} << candidates_.size(), PrefixEnds(memory_.layer_count() + 1, false));
  ends_[0][0] = true;
  for (NodeSet set = 0; set < ends_.size(); ++set) {
    for (size_t node = 0; node < candidates_.size(); ++node) {
      if ((set >> node & 1) == 0) ExtendSet(set, node);
    }
  }
}

// Adds to the ends of set + node what follows from the ends of set. How far a node reaches never
// falls as its range begins later, so one pass with two fingers sees all.
void LayerPartition::ExtendSet(NodeSet set, size_t node) {
  const uint32_t layers = memory_.layer_count();
  PrefixEnds& out = ends_[set | NodeSet{1} << node];
  uint32_t reach = 0;
  uint32_t marked = 0;  // ends up to here are marked already
  for (uint32_t begin = 0; begin < layers; ++begin) {
    if (!ends_[set][begin]) continue;
    reach = std::max(reach, begin);
    while (reach < layers && Holds(node, begin, reach + 1, set == 0, false)) ++reach;
    for (uint32_t end = std::max(begin, marked) + 1; end <= reach; ++end) out[end] = true;
    marked = std::max(marked, reach);
  }
}

std::optional<std::vector<size_t>> LayerPartition::FeasibleOrder(uint32_t stages) const {
  const uint32_t layers = memory_.layer_count();
  for (NodeSet set = 1; set < ends_.size(); ++set) {
    if (std::popcount(set) != static_cast<int>(stages)) continue;
    // The smallest node last, when it can: larger ones have more to give to the first stage's
    // queue.
    for (size_t back = candidates_.size(); back-- > 0;) {
      if ((set >> back & 1) == 0) continue;
      const PrefixEnds& before = ends_[set & ~(NodeSet{1} << back)];
      for (uint32_t begin = layers; begin-- > 0;) {
        if (!before[begin]) continue;
        if (Holds(back, begin, layers, stages == 1, true)) return OrderOf(set, back, begin);
        break;  // an earlier begin needs more
      }
    }
  }
  return {};
}

std::vector<size_t> LayerPartition::OrderOf(NodeSet set, size_t last, uint32_t last_begin) const {
  std::vector<size_t> backwards = {last};
  set &= ~(NodeSet{1} << last);
  uint32_t end = last_begin;
  while (set != 0) {
    const size_t before = backwards.size();
    for (size_t node = candidates_.size(); node-- > 0 && backwards.size() == before;) {
      if ((set >> node & 1) == 0) continue;
      const NodeSet rest = set & ~(NodeSet{1} << node);
      for (uint32_t begin = 0; begin < end; ++begin) {
        if (!ends_[rest][begin] || !Holds(node, begin, end, rest == 0, false)) continue;
        backwards.push_back(node);
        set = rest;
        end = begin;
        break;
      }
    }
    if (backwards.size() == before) break;  // not reached: every end has a way to it
  }
  std::reverse(backwards.begin(), backwards.end());
  return backwards;
}

namespace {

// How full the fullest node is, then how uneven all are.
struct Fill {
  double worst = std::numeric_limits<double>::infinity();
  double squares = std::numeric_limits<double>::infinity();
  uint32_t begin = 0;  // of the last range
  bool operator<(const Fill& other) const {
    return std::pair(worst, squares) < std::pair(other.worst, other.squares);
  }
};

}  // namespace

std::optional<std::vector<StageRange>> LayerPartition::BalanceInOrder(
    const std::vector<size_t>& order) const {
  const uint32_t layers = memory_.layer_count();
  const uint32_t stages = static_cast<uint32_t>(order.size());
  std::vector<std::vector<Fill>> best(stages, std::vector<Fill>(layers + 1));
  for (uint32_t stage = 0; stage < stages; ++stage) {
    const StageNode& node = candidates_[order[stage]];
    const bool last = stage + 1 == stages;
    for (uint32_t end = last ? layers : stage + 1; end + (stages - stage - 1) <= layers; ++end) {
      // From the shortest range to the longest, which only gets fuller.
      for (uint32_t begin = end; begin-- > stage;) {
        if (stage == 0) begin = 0;
        const uint64_t need = memory_.NeedBytes(node.kind, begin, end, stage == 0, last);
        if (need > node.budget_bytes) break;
        const double fill = static_cast<double>(need) / static_cast<double>(node.budget_bytes);
        const Fill before = stage == 0 ? Fill{0, 0, 0} : best[stage - 1][begin];
        const Fill here{std::max(before.worst, fill), before.squares + fill * fill, begin};
        if (here < best[stage][end]) best[stage][end] = here;
      }
    }
  }
  if (best[stages - 1][layers].worst > 1) return {};
  std::vector<StageRange> ranges(stages);
  uint32_t end = layers;
  for (uint32_t stage = stages; stage-- > 0;) {
    ranges[stage] = {order[stage], best[stage][end].begin, end};
    end = ranges[stage].begin;
  }
  return ranges;
}

}  // namespace macrame::planner
