#pragma once

// Which sequences of a rank have a state besides keys and values, how far each has come, and which
// snapshots are kept: what the steps of rank 0 add up to, for models with recurrent layers. Pure;
// whoever holds the states' numbers copies them as this says.
//
// A state can't go back, so a segment begins just where its slot's state stands.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "runtime/model/step/forward_step.h"

namespace macrame::runtime::engine {

class SlotStates {
 public:
  // At most `sequences_max` slots are open; snapshots have ids [0, snapshots).
  SlotStates(int sequences_max, int snapshots);

  // INTERNAL, and nothing changed, when the step can't be run: a slot too many, an unknown
  // snapshot, one that was not kept where the segment begins, or a segment that begins elsewhere
  // than its state.
  absl::Status Check(const ForwardStep& step) const;
  // Of a step that Check found good.
  void Apply(const ForwardStep& step);

  // Of the step that was applied last. A state is a place in [0, sequences_max).
  struct Opened {
    int state = 0;
    SnapshotId from = kNoSnapshot;  // else from zero
  };
  std::span<const Opened> opened() const { return opened_; }  // before its segments run
  struct Kept {
    int state = 0;
    SnapshotId to = 0;
  };
  std::span<const Kept> kept() const { return kept_; }  // after they ran
  bool IsOpen(uint32_t slot) const { return slots_.contains(slot); }
  int StateOf(uint32_t slot) const { return slots_.at(slot).state; }

 private:
  struct Slot {
    int state = 0;
    uint64_t position = 0;  // tokens that the state has taken in
  };
  absl::Status CheckSnapshots(const Segment& segment) const;
  int FreeState() const;

  const int sequences_max_;
  std::vector<std::optional<uint64_t>> snapshots_;  // behind how many tokens; unset: not kept
  std::map<uint32_t, Slot> slots_;
  std::vector<Opened> opened_;
  std::vector<Kept> kept_;
};

}  // namespace macrame::runtime::engine
