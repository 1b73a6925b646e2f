#pragma once

// Which states of recurrent layers are kept for reuse, under which snapshot ids, and which of them
// gives way. Pure; a part of the BatchScheduler, for models that have such layers.
//
// KV blocks alone don't let a sequence go on behind a cached prefix: it needs what the recurrent
// layers have become behind the prefix's last token, too. Such a state is tens of MB, however long
// the prefix, so there are few places. Each is free or holds the state behind a full block, a node
// of the prefix index; a cached prefix is usable up to its deepest block whose state is kept.
//
// What a request keeps, each behind a full block:
//  - the end of its prompt: for a next turn whose template leaves things out of the past answer
//    (reasoning), and for the same prompt again;
//  - its answer, as far as it is: each block that it fills replaces the one before;
//  - a common beginning (system prompt, tools): where cached blocks match further than a state is
//    kept and the conversations part there, and where a prompt that waits for this one will part
//    from it. A chunk of the prompt ends there.
//
// Who gives way for it: places that are free; then states that are superseded (their conversation
// went on behind them, and nobody else began there); then the state that the request itself began
// from, if it is the only one that did; then spare ones (prompt and answer of one request are both
// kept: that of the two which next turns take up less often, as far as was seen). If there are none
// of these, the first state of a request displaces the one used longest ago, and so does a common
// beginning that a third conversation has or that somebody waits for; states that were shared give
// way last, as long as they have no more than half of the places. The second state of a request
// displaces nobody: where next turns mostly take up the answer it replaces the request's own
// prompt, else it is not kept. So however many answers run, each takes one place from others at
// most, and up to as many chats as there are places all find what they had.
//
// Order. Every rank runs the steps in order. Whatever a step's slots are opened from has been read
// when the step is done, so a later step may write there, also while both are in flight. Within a
// step nothing is ordered but a segment's own begin and end: it may be opened from a place and
// leave its state there; no place is read by one segment and written by another, nor written by
// two. A state can be found from the step on that follows the one in which it is written. What a
// sequence is to be opened from is held for it until then.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/model/step/forward_step.h"
#include "runtime/serving/cache/prefix_index.h"

namespace macrame::runtime::engine {

// A common beginning has to save as many blocks to be kept.
inline constexpr uint32_t kCommonBlocksMin = 2;
// Of these in one prompt, beside its end.
inline constexpr size_t kCommonBeginningsMax = 2;

class StateCache {
 public:
  using NodeId = PrefixIndex::NodeId;
  using KeptId = uint64_t;  // of a state, whichever place it is in; never used twice; 0: none
  enum class Kind : uint8_t { kPrompt, kAnswer, kCommon };

  // Where a chunk of a prompt ends so that the state there is kept.
  struct Cut {
    uint32_t blocks = 0;
    bool is_common = false;
    bool may_displace = true;
  };
  // What a sequence knows of its states.
  struct Member {
    SnapshotId from = kNoSnapshot;     // held, until its slot is opened
    std::vector<Cut> cuts{};           // ascending
    bool has_asked = false;            // those that run for a state where it parts from them
    SnapshotId opened = kNoSnapshot;   // where the segment in planning begins from
    SnapshotId pending = kNoSnapshot;  // where the step in planning leaves its state
    Kind pending_kind = Kind::kPrompt;
    KeptId opened_from = 0;
    KeptId prompt = 0;
    NodeId prompt_node = 0;  // where that is, or would be
    KeptId answer = 0;
    bool has_displaced = false;
  };

  // `snapshots`: places; none: the model has no recurrent layers, and this is off.
  explicit StateCache(std::optional<uint32_t> snapshots);
  bool is_on() const { return is_on_; }
  uint32_t snapshots() const { return static_cast<uint32_t>(places_.size()); }
  uint32_t kept() const;  // places in use
  uint64_t displaced() const { return displaced_; }

  // How many of the first blocks of a cached prefix, given by its nodes, can be used.
  size_t Usable(std::span<const NodeId> path) const;
  // `sequence` is to be opened behind `node`, whose state is kept; 0: from the beginning.
  void Hold(Member& sequence, NodeId node);
  // It is not going on: preempted, or over.
  void Leave(Member& sequence);

  // What a sequence is told that is about to be opened. `path`: what is cached of it; it has the
  // first `held` blocks and may come to have `blocks_max` from the cache.
  void PlanCuts(Member& sequence, const PrefixIndex& index, std::span<const NodeId> path,
                uint32_t held, uint32_t blocks_max) const;
  // Another prompt has its first `common` blocks in common with `sequence`, which has run `fed`
  // tokens, and lacks those from `held` on: whether their state is worth a cut, or has one.
  void AskFor(Member& sequence, uint32_t fed, uint32_t held, uint32_t common,
              bool may_displace = true) const;
  // Whether the state behind one of the blocks from `held` + 1 to `common` will be kept.
  static bool WillKeep(const Member& sequence, uint32_t fed, uint32_t held, uint32_t common);
  // How many of the next `tokens` behind `fed` may be run in one segment.
  static uint32_t ToNextCut(const Member& sequence, uint32_t fed, uint32_t tokens);

  // Its slot is opened, in the step in planning: where from. `path` as above.
  SnapshotId Open(Member& sequence, const PrefixIndex& index, std::span<const NodeId> path,
                  uint32_t held, uint32_t blocks_max);
  // The segment in planning, which begins from `sequence.opened`, ends behind full block number
  // `blocks`, which is cached as `node` if that is not 0. `is_answer`: behind its last token a
  // token is chosen. Where the state is left, if it is kept.
  SnapshotId Keep(Member& sequence, const PrefixIndex& index, NodeId node, uint32_t blocks,
                  bool is_answer);
  // What Keep announced stands behind `node`.
  void Attach(Member& sequence, NodeId node);
  // The step in planning is ordered; or there is none.
  void EndStep();

  // Aborts when something contradicts another thing; between steps. `members`: of all sequences.
  void CheckInvariants(std::span<const Member* const> members) const;

 private:
  struct Place {
    NodeId node = 0;  // 0: free, or what it held has given way
    KeptId kept = 0;
    Kind kind = Kind::kPrompt;
    uint64_t used = 0;       // when it was last
    uint32_t holders = 0;    // sequences that are to be opened from it
    uint32_t opened = 0;     // how many were
    KeptId partner = 0;      // the same request's other state
    NodeId prompt_node = 0;  // of an answer
    bool has_told = false;   // of an answer: whether it is taken up
    bool is_superseded = false;
    uint32_t reads_in_step = 0;
    bool is_written_in_step = false;

    bool IsShared() const { return kind == Kind::kCommon || opened > 1; }
  };
  enum class Rank : uint8_t { kFree, kSuperseded, kOwn, kSpare, kPrivate, kShared, kNever };

  static SnapshotId IdOf(size_t at) { return static_cast<SnapshotId>(at); }
  Place& At(SnapshotId id) { return places_.at(static_cast<size_t>(id)); }
  const Place& At(SnapshotId id) const { return places_.at(static_cast<size_t>(id)); }
  SnapshotId IdAt(NodeId node) const;
  SnapshotId IdOfKept(KeptId kept) const;
  void Sweep(const PrefixIndex& index);
  bool MayBeWritten(SnapshotId id, const Member& sequence) const;
  bool PrefersAnswers() const { return answers_taken_up_ >= 0.5; }
  bool IsSpare(const Place& place) const;
  Rank RankOf(const Place& place, const Member& sequence, Kind kind, bool is_sharing_much) const;
  SnapshotId Choose(Member& sequence, Kind kind, bool may_displace);
  SnapshotId ChooseForAnswer(Member& sequence);
  // Whether it is its state alone, nobody has begun there, and it may be replaced.
  bool MayReplace(SnapshotId id, const Member& sequence) const;
  void Supersede(SnapshotId id);
  // Whether what goes on along `path` does so behind answers, or behind their prompts alone.
  void LearnFrom(std::span<const NodeId> path, uint32_t blocks_max);

  const bool is_on_;
  std::vector<Place> places_;
  KeptId last_kept_ = 0;
  uint64_t uses_ = 0;
  uint64_t displaced_ = 0;
  double answers_taken_up_ = 0.5;  // how often a next turn went on behind the answer
};

}  // namespace macrame::runtime::engine
