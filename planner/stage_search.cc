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

StageSearch::StageSearch(std::vector<StageGroup> groups, uint32_t layers, uint32_t step,
                         Combine combine, const Cost& cost, const Hop& hop, uint32_t stages_max)
    : groups_(std::move(groups)), combine_(combine) {
  for (uint32_t layer = 0; layer < layers; layer += step) cuts_.push_back(layer);
  last_ = static_cast<uint32_t>(cuts_.size());
  cuts_.push_back(layers);
  costs_.resize(groups_.size());
  for (size_t group = 0; group < groups_.size(); ++group) {
    std::vector<double>& costs = costs_[group];
    costs.assign(size_t{last_ + 1} * (last_ + 1), kNever);
    for (uint32_t begin = 0; begin < last_; ++begin) {
      for (uint32_t end = begin + 1; end <= last_; ++end) {
        const double value = cost(group, cuts_[begin], cuts_[end]);
        if (value == kNever) break;
        costs[begin * (last_ + 1) + end] = value;
      }
    }
    State& first = states_[{groups_[group].mask, group}];
    first.stages = 1;
    first.value.assign(costs.begin(), costs.begin() + last_ + 1);
    first.begin.assign(last_ + 1, 0);
    first.previous.assign(last_ + 1, kNone);
  }
  // Keys ascend with the set of nodes, so each set is complete when it is reached.
  for (auto it = states_.begin(); it != states_.end(); ++it) {
    const auto& [mask, last] = it->first;
    if (it->second.stages >= stages_max) continue;
    for (size_t next = 0; next < groups_.size(); ++next) {
      if ((groups_[next].mask & mask) != 0) continue;
      const double cost_of_hop = hop(last, next);
      if (cost_of_hop != kNever) Extend(it->first, it->second, next, cost_of_hop);
    }
  }
}

void StageSearch::Extend(const Key& key, const State& from, size_t next, double hop) {
  State* to = nullptr;  // made when something reaches it
  const std::vector<double>& costs = costs_[next];
  for (uint32_t begin = 1; begin < last_; ++begin) {
    if (from.value[begin] == kNever) continue;
    const double* row = &costs[begin * (last_ + 1)];
    for (uint32_t end = begin + 1; end <= last_ && row[end] != kNever; ++end) {
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

std::optional<StageChain> StageSearch::Best(uint32_t stages) const {
  StageChain best;
  Key at;
  for (const auto& [key, state] : states_) {
    if (state.stages != stages || state.value[last_] == kNever) continue;
    const bool same = key.first == at.first && !IsLess(best.value, state.value[last_]);
    if (!same && !IsLess(state.value[last_], best.value)) continue;
    best.value = state.value[last_];
    at = key;
  }
  if (best.value == kNever) return {};
  uint32_t end = last_;
  while (true) {
    const State& state = states_.at(at);
    best.stages.push_back({at.second, cuts_[state.begin[end]], cuts_[end]});
    const size_t previous = state.previous[end];
    if (previous == kNone) break;
    end = state.begin[end];
    at = {at.first & ~groups_[at.second].mask, previous};
  }
  std::reverse(best.stages.begin(), best.stages.end());
  return best;
}

}  // namespace macrame::planner
