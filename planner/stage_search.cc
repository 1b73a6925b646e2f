#include "planner/stage_search.h"

#include <algorithm>
#include <utility>

namespace macrame::planner {
namespace {

// Sums of the same numbers in another order are equal up to this part.
constexpr double kRoundingError = 1e-9;

bool IsLess(double a, double b) {
  return b == kNever ? a < b : a < b - std::max(1e-12, b * kRoundingError);
}

}  // namespace

StageTable::StageTable(uint32_t layers, uint32_t step, uint32_t stages_max, const StageCost& cost)
    : ends_only_(stages_max < 3) {
  for (uint32_t layer = 0; layer < layers; layer += step) cuts_.push_back(layer);
  last_ = static_cast<uint32_t>(cuts_.size());
  cuts_.push_back(layers);
  costs_.assign(size_t{last_ + 1} * (last_ + 1), kNever);
  const uint32_t begins = stages_max == 1 ? 1 : last_;
  for (uint32_t begin = 0; begin < begins; ++begin) {
    const bool to_the_end = stages_max == 1 || (ends_only_ && begin > 0);
    for (uint32_t end = to_the_end ? last_ : begin + 1; end <= last_; ++end) {
      const double value = cost(cuts_[begin], cuts_[end]);
      if (value == kNever) break;
      costs_[begin * (last_ + 1) + end] = value;
    }
  }
}

uint64_t StageSearch::CountHops(const std::vector<StageGroup>& groups, uint32_t stages_max) {
  std::map<Key, uint32_t> stages;  // of each set of nodes and last group
  for (size_t group = 0; group < groups.size(); ++group) {
    if (groups[group].after == 0) stages[{groups[group].mask, group}] = 1;
  }
  uint64_t hops = 0;
  for (auto it = stages.begin(); it != stages.end(); ++it) {
    const uint32_t mask = it->first.first;
    if (it->second >= stages_max) continue;
    for (size_t next = 0; next < groups.size(); ++next) {
      if ((groups[next].mask & mask) != 0 || (groups[next].after & ~mask) != 0) continue;
      ++hops;
      stages[{mask | groups[next].mask, next}] = it->second + 1;
    }
  }
  return hops;
}

StageSearch::StageSearch(std::vector<StageGroup> groups,
                         std::vector<std::shared_ptr<const StageTable>> tables, Combine combine,
                         const Hop& hop, uint32_t stages_max, std::optional<size_t> first)
    : groups_(std::move(groups)),
      tables_(std::move(tables)),
      last_(tables_.empty() ? 0 : tables_.front()->last_),
      combine_(combine) {
  for (size_t group = 0; group < groups_.size(); ++group) {
    if (groups_[group].after != 0 || (first.has_value() && *first != group)) continue;
    const std::vector<double>& costs = tables_[group]->costs_;
    State& state = states_[{groups_[group].mask, group}];
    state.stages = 1;
    state.value.assign(costs.begin(), costs.begin() + last_ + 1);
    state.begin.assign(last_ + 1, 0);
    state.previous.assign(last_ + 1, kNone);
  }
  // Keys ascend with the set of nodes, so each set is complete when it is reached.
  for (auto it = states_.begin(); it != states_.end(); ++it) {
    const auto& [mask, last] = it->first;
    if (it->second.stages >= stages_max) continue;
    for (size_t next = 0; next < groups_.size(); ++next) {
      if ((groups_[next].mask & mask) != 0 || (groups_[next].after & ~mask) != 0) continue;
      const double cost_of_hop = hop(last, next);
      if (cost_of_hop != kNever) Extend(it->first, it->second, next, cost_of_hop);
    }
  }
}

void StageSearch::Extend(const Key& key, const State& from, size_t next, double hop) {
  State* to = nullptr;  // made when something reaches it
  const std::vector<double>& costs = tables_[next]->costs_;
  const bool to_the_end = tables_[next]->ends_only_;
  for (uint32_t begin = 1; begin < last_; ++begin) {
    if (from.value[begin] == kNever) continue;
    const double* row = &costs[begin * (last_ + 1)];
    for (uint32_t end = to_the_end ? last_ : begin + 1; end <= last_ && row[end] != kNever; ++end) {
      if (to == nullptr) {
        to = &states_[{key.first | groups_[next].mask, next}];
        if (to->value.empty()) {
          to->stages = from.stages + 1;
          to->value.assign(last_ + 1, kNever);
          to->begin.assign(last_ + 1, 0);
          to->previous.assign(last_ + 1, kNone);
        }
      }
      const double stage = hop + row[end];
      const double value = combine_ == Combine::kSum ? from.value[begin] + stage
                                                     : std::max(from.value[begin], stage);
      // Of equal chains the one whose nodes come in their own order.
      const bool same = !IsLess(to->value[end], value);
      if (!IsLess(value, to->value[end]) && (!same || key.second <= to->previous[end])) continue;
      to->value[end] = value;
      to->begin[end] = begin;
      to->previous[end] = key.second;
    }
  }
}

std::optional<StageChain> StageSearch::Best(uint32_t stages,
                                            const std::function<bool(size_t)>& may_end) const {
  StageChain best;
  Key at;
  for (const auto& [key, state] : states_) {
    if (state.stages != stages || state.value[last_] == kNever) continue;
    if (may_end && !may_end(key.second)) continue;
    const bool same = key.first == at.first && !IsLess(best.value, state.value[last_]);
    if (!same && !IsLess(state.value[last_], best.value)) continue;
    best.value = state.value[last_];
    at = key;
  }
  if (best.value == kNever) return {};
  const std::vector<uint32_t>& cuts = tables_.front()->cuts_;
  uint32_t end = last_;
  while (true) {
    const State& state = states_.at(at);
    best.stages.push_back({at.second, cuts[state.begin[end]], cuts[end]});
    const size_t previous = state.previous[end];
    if (previous == kNone) break;
    end = state.begin[end];
    at = {at.first & ~groups_[at.second].mask, previous};
  }
  std::reverse(best.stages.begin(), best.stages.end());
  return best;
}

}  // namespace macrame::planner
