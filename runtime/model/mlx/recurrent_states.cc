#include "runtime/model/mlx/recurrent_states.h"

#include <algorithm>
#include <set>

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

mx::array RowOf(const mx::array& all, int row) {
  if (all.shape(0) == 1) return all;
  mx::Shape from(all.ndim(), 0), to = all.shape();
  from[0] = row;
  to[0] = row + 1;
  return mx::slice(all, from, to);
}

}  // namespace

MlxStates::Held MlxStates::Alone(const Held& held) {
  if (held.together == nullptr || held.together->sequences == 1) return held;
  auto alone = std::make_shared<Together>();
  alone->sequences = 1;
  for (const MlxState& layer : held.together->layers) {
    alone->layers.push_back({mx::contiguous(RowOf(layer.inputs, held.row)),
                             mx::contiguous(RowOf(layer.matrices, held.row))});
  }
  return {std::move(alone), 0};
}

MlxState MlxStates::PutTogether(std::span<const Held> held, size_t layer) {
  const Together& first = *held[0].together;
  bool as_they_are = static_cast<size_t>(first.sequences) == held.size();
  for (size_t i = 0; i < held.size(); ++i) {
    as_they_are =
        as_they_are && held[i].together.get() == &first && held[i].row == static_cast<int>(i);
  }
  if (as_they_are) return first.layers[layer];
  std::vector<mx::array> inputs, matrices;
  for (const Held& one : held) {
    const MlxState& state = one.together->layers[layer];
    inputs.push_back(RowOf(state.inputs, one.row));
    matrices.push_back(RowOf(state.matrices, one.row));
  }
  return {mx::concatenate(inputs, 0), mx::concatenate(matrices, 0)};
}

void MlxStates::Close(const ForwardStep& step, const SlotStates& slots) {
  for (const uint32_t slot : step.closed_slots) {
    // One that is not open may be closed too.
    if (slots.IsOpen(slot)) states_[static_cast<size_t>(slots.StateOf(slot))] = {};
  }
}

void MlxStates::Open(std::span<const SlotStates::Opened> opened,
                     std::span<const MlxRecurrent* const> layers) {
  if (zero_.together == nullptr) {
    auto zero = std::make_shared<Together>();
    zero->sequences = 1;
    // All layers are of one shape.
    if (!layers.empty()) zero->layers.assign(layers.size(), layers[0]->ZeroState());
    zero_ = {std::move(zero), 0};
  }
  for (const SlotStates::Opened& one : opened) {
    states_[static_cast<size_t>(one.state)] =
        one.from == kNoSnapshot ? zero_ : snapshots_[static_cast<size_t>(one.from)];
  }
}

void MlxStates::Begin(const ForwardStep& step, const SlotStates& slots,
                      std::span<const MlxRecurrent* const> layers) {
  Open(slots.opened(), layers);
  runs_.assign(layers.size(), {});
  ran_.clear();
  int row = 0;
  for (size_t i = 0; i < step.segments.size();) {
    const size_t tokens = step.segments[i].tokens.size();
    std::vector<int> places;
    std::vector<Held> held;
    for (; i < step.segments.size() && step.segments[i].tokens.size() == tokens; ++i) {
      places.push_back(slots.StateOf(step.segments[i].slot));
      held.push_back(states_[static_cast<size_t>(places.back())]);
    }
    const int sequences = static_cast<int>(places.size()), each = static_cast<int>(tokens);
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      runs_[layer].push_back({row, sequences, each, PutTogether(held, layer)});
    }
    ran_.push_back(std::move(places));
    row += sequences * each;
  }
}

void MlxStates::SeparateThoseLeft() {
  for (Held& held : states_) {
    if (held.together == nullptr) continue;
    const auto users = std::count_if(states_.begin(), states_.end(), [&](const Held& other) {
      return other.together == held.together;
    });
    if (users < held.together->sequences) held = Alone(held);
  }
}

void MlxStates::End(const SlotStates& slots) {
  for (size_t run = 0; run < ran_.size(); ++run) {
    auto together = std::make_shared<Together>();
    together->sequences = static_cast<int>(ran_[run].size());
    for (std::vector<MlxRun>& runs : runs_) together->layers.push_back(std::move(runs[run].state));
    for (int row = 0; row < together->sequences; ++row) {
      states_[static_cast<size_t>(ran_[run][static_cast<size_t>(row)])] = {together, row};
    }
  }
  runs_.clear();
  ran_.clear();
  SeparateThoseLeft();
  kept_.clear();
  for (const SlotStates::Kept& one : slots.kept()) {
    snapshots_[static_cast<size_t>(one.to)] = Alone(states_[static_cast<size_t>(one.state)]);
    kept_.push_back(one.to);
  }
}

void MlxStates::Append(std::vector<mx::array>& out) const {
  std::set<const Together*> seen;
  const auto add = [&](const Held& held) {
    if (held.together == nullptr || !seen.insert(held.together.get()).second) return;
    for (const MlxState& layer : held.together->layers) {
      out.insert(out.end(), {layer.inputs, layer.matrices});
    }
  };
  for (const Held& held : states_) add(held);
  for (const SnapshotId id : kept_) add(snapshots_[static_cast<size_t>(id)]);
}

}  // namespace macrame::runtime::engine
