#pragma once

// One step of a gang: what rank 0 orders and every rank runs. Pure values.
//
// Rank 0 alone decides. The other ranks keep no more than a table of slot -> block ids, and every
// rank runs the steps in the order in which they were given: a later step may read or write a block
// that an earlier one wrote. Within a step, slots are closed before any segment is looked at, so a
// slot may be closed and opened again in one step.
//
// A step's input is tokens: ids that rank 0 knows, or "what row r of the step before chose", which
// no host needs to have seen. A step's results are, for each segment that asks: a token that is
// chosen where the logits are computed, logits, or hidden states. So the next step can be given
// before this one's results are read.

#include <cstdint>
#include <vector>

#include "runtime/model/step/row_choice.h"

namespace macrame::runtime::engine {

// Positions that one KV block holds, on every rank and for the scheduler.
inline constexpr uint32_t kBlockTokens = 32;

// The state that recurrent layers have behind some token, kept beside the slots under an id.
using SnapshotId = int32_t;
inline constexpr SnapshotId kNoSnapshot = -1;

// A token that is not known yet: what row `row` of the step directly before chose, counted among
// that step's kChosen rows from 0 on. As a token it is a negative number. Only ranks whose steps
// choose tokens (forward_engine.h) run such steps.
constexpr int32_t TokenOfChosenRow(int32_t row) { return -1 - row; }
constexpr bool IsChosenRow(int32_t token) { return token < 0; }
constexpr int32_t ChosenRowOf(int32_t token) { return -1 - token; }

// Which positions of a segment rank 0 wants logits of; or, instead, the hidden states behind the
// final norm; or the token behind the last one, chosen as Segment::choice says.
enum class LogitRows : uint8_t {
  kNone = 0,
  kLast = 1,
  kAll = 2,
  kHiddenLast = 3,
  kHiddenAll = 4,
  kChosen = 5,
};

struct Segment {      // a run of one sequence's tokens through the layers
  uint32_t slot = 0;  // the sequence's place in the rank's table; an unused one is opened
  // Position of the first token: how many the slot holds already, but for those that were run
  // behind a draft (kAll) that was wrong; they are overwritten.
  uint32_t begin = 0;
  std::vector<int32_t> tokens{};  // ids or TokenOfChosenRow; never empty
  LogitRows logit_rows = LogitRows::kNone;
  // Appended to the slot's block table before the step runs, so that the table just covers
  // `begin` + tokens; none if it did before. For a slot that is opened also the blocks of its
  // cached prefix, which come first: they hold the positions before `begin`.
  std::vector<int32_t> new_blocks{};
  // Of models with recurrent layers; kNoSnapshot elsewhere. Where an opened slot with a cached
  // prefix takes its state from: what was kept behind the token before `begin`.
  SnapshotId state_from = kNoSnapshot;
  // Under which id the state behind the last token is kept, after the segment ran; what that id
  // held before is overwritten. Such a segment has no drafts.
  SnapshotId state_to = kNoSnapshot;
  // Of an engine that keeps what it shares by itself (the second one): only sequences of the same
  // salt share.
  uint64_t salt = 0;
  RowChoice choice{};  // kChosen only: how the token is chosen
  bool operator==(const Segment&) const = default;
};

// The content of a block in all layers, taken over by another one.
struct BlockCopy {
  int32_t from = 0;
  int32_t to = 0;
  bool operator==(const BlockCopy&) const = default;
};

struct ForwardStep {
  std::vector<uint32_t> closed_slots{};  // their tables are dropped; blocks keep their content
  std::vector<Segment> segments{};       // at most one of each slot
  // Before anything is written, one after the other. Where sequences keep runs of blocks
  // (LayerStack::keeps_runs), what another one has cached comes to stand in a new one's own run.
  std::vector<BlockCopy> copies{};
  bool operator==(const ForwardStep&) const = default;
};

// Tokens that the step chooses: one for each of its kChosen segments, in their order.
inline int32_t CountChosenRows(const ForwardStep& step) {
  int32_t rows = 0;
  for (const Segment& segment : step.segments) {
    rows += segment.logit_rows == LogitRows::kChosen ? 1 : 0;
  }
  return rows;
}

}  // namespace macrame::runtime::engine
