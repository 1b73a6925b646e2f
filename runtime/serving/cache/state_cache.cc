#include "runtime/serving/cache/state_cache.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "proto/check.h"

namespace macrame::runtime::engine {
namespace {

// What one next turn counts for in what is known of them.
constexpr double kTurnWeight = 0.25;

uint32_t TokensOf(uint32_t blocks) { return blocks * kBlockTokens; }

}  // namespace

StateCache::StateCache(std::optional<uint32_t> snapshots)
    : is_on_(snapshots.has_value()), places_(snapshots.value_or(0)) {}

uint32_t StateCache::kept() const {
  return static_cast<uint32_t>(std::count_if(places_.begin(), places_.end(),
                                             [](const Place& place) { return place.node != 0; }));
}

SnapshotId StateCache::IdAt(NodeId node) const {
  for (size_t i = 0; node != 0 && i < places_.size(); ++i) {
    if (places_[i].node == node) return IdOf(i);
  }
  return kNoSnapshot;
}

SnapshotId StateCache::IdOfKept(KeptId kept) const {
  for (size_t i = 0; kept != 0 && i < places_.size(); ++i) {
    if (places_[i].kept == kept && places_[i].node != 0) return IdOf(i);
  }
  return kNoSnapshot;
}

size_t StateCache::Usable(std::span<const NodeId> path) const {
  size_t usable = 0;
  for (const Place& place : places_) {
    if (place.node == 0) continue;
    const auto at = std::find(path.rbegin(), path.rend(), place.node);
    usable = std::max(usable, static_cast<size_t>(path.rend() - at));
  }
  return usable;
}

void StateCache::Hold(Member& sequence, NodeId node) {
  if (sequence.from != kNoSnapshot) --At(sequence.from).holders;
  sequence.from = IdAt(node);
  if (sequence.from != kNoSnapshot) ++At(sequence.from).holders;
}

void StateCache::Leave(Member& sequence) {
  Hold(sequence, 0);
  MACRAME_CHECK(sequence.pending == kNoSnapshot) << "a sequence leaves the step in planning";
  sequence.cuts.clear();
  sequence.has_asked = false;
  sequence.opened_from = 0;
}

void StateCache::PlanCuts(Member& sequence, const PrefixIndex& index, std::span<const NodeId> path,
                          uint32_t held, uint32_t blocks_max) const {
  sequence.cuts.clear();
  if (places_.empty()) return;
  if (blocks_max > held) sequence.cuts.push_back({blocks_max, false});
  // Where what is cached ends without a branch, it is this conversation that goes on.
  const uint32_t others = path.size() > held ? index.Children(path.back()) : 0;
  if (others > 0) {
    AskFor(sequence, TokensOf(held), held, static_cast<uint32_t>(path.size()), others > 1);
  }
}

void StateCache::AskFor(Member& sequence, uint32_t fed, uint32_t held, uint32_t common,
                        bool may_displace) const {
  if (places_.empty() || TokensOf(common) <= fed) return;
  Cut* last = nullptr;  // that serves for it
  size_t beginnings = 0;
  for (Cut& cut : sequence.cuts) {
    beginnings += cut.is_common ? 1 : 0;
    if (cut.blocks > held && cut.blocks <= common && TokensOf(cut.blocks) > fed) last = &cut;
  }
  const uint32_t saved_from = last == nullptr ? held : last->blocks;
  if (common < saved_from + kCommonBlocksMin || beginnings >= kCommonBeginningsMax) {
    if (last != nullptr) last->may_displace = last->may_displace || may_displace;
    return;
  }
  const auto behind = std::find_if(sequence.cuts.begin(), sequence.cuts.end(),
                                   [&](const Cut& cut) { return cut.blocks > common; });
  sequence.cuts.insert(behind, {common, true, may_displace});
}

bool StateCache::WillKeep(const Member& sequence, uint32_t fed, uint32_t held, uint32_t common) {
  return std::any_of(sequence.cuts.begin(), sequence.cuts.end(), [&](const Cut& cut) {
    const bool is_ahead = TokensOf(cut.blocks) > fed ||
                          (TokensOf(cut.blocks) == fed && sequence.pending != kNoSnapshot);
    return is_ahead && cut.blocks > held && cut.blocks <= common;
  });
}

uint32_t StateCache::ToNextCut(const Member& sequence, uint32_t fed, uint32_t tokens) {
  for (const Cut& cut : sequence.cuts) {
    if (TokensOf(cut.blocks) > fed) return std::min(tokens, TokensOf(cut.blocks) - fed);
  }
  return tokens;
}

void StateCache::LearnFrom(std::span<const NodeId> path, uint32_t blocks_max) {
  const auto depth = [&](NodeId node) {
    const auto at = std::find(path.begin(), path.end(), node);
    return node == 0 || at == path.end() ? 0 : static_cast<uint32_t>(at - path.begin() + 1);
  };
  for (Place& answer : places_) {
    if (answer.node == 0 || answer.kind != Kind::kAnswer || answer.has_told) continue;
    const uint32_t prompt = depth(answer.prompt_node);
    if (prompt == 0 || prompt >= blocks_max) continue;  // another prompt, or no more than that
    answer.has_told = true;
    const double told = depth(answer.node) > 0 ? 1.0 : 0.0;
    answers_taken_up_ += (told - answers_taken_up_) * kTurnWeight;
  }
}

void StateCache::Supersede(SnapshotId id) {
  if (id != kNoSnapshot && !At(id).IsShared()) At(id).is_superseded = true;
}

SnapshotId StateCache::Open(Member& sequence, const PrefixIndex& index,
                            std::span<const NodeId> path, uint32_t held, uint32_t blocks_max) {
  const SnapshotId from = sequence.from;
  MACRAME_CHECK((from == kNoSnapshot) == (held == 0))
      << "a cached prefix of " << held << " blocks and snapshot " << from;
  Sweep(index);
  LearnFrom(path, blocks_max);
  if (from == kNoSnapshot) return from;
  Place& place = At(from);
  --place.holders;
  sequence.from = kNoSnapshot;
  ++place.reads_in_step;
  ++place.opened;
  place.used = ++uses_;
  place.is_superseded = false;
  // The conversation went another way than the answer that was kept, and past what lies before.
  if (place.kind == Kind::kPrompt && blocks_max > held && !place.IsShared()) {
    Supersede(IdOfKept(place.partner));
  }
  const std::span<const NodeId> before = path.first(std::min<size_t>(path.size(), held - 1));
  for (const NodeId node : before) Supersede(IdAt(node));
  sequence.opened_from = place.kept;
  if (held == blocks_max) {  // the end of its prompt is there already
    sequence.prompt = place.kept;
    sequence.prompt_node = place.node;
  }
  return from;
}

void StateCache::Sweep(const PrefixIndex& index) {
  for (Place& place : places_) {
    if (place.node != 0 && place.holders == 0 && !index.Exists(place.node)) place.node = 0;
  }
}

bool StateCache::MayBeWritten(SnapshotId id, const Member& sequence) const {
  const Place& place = At(id);
  if (place.holders > 0 || place.is_written_in_step) return false;
  // The one read may be the very segment's.
  return place.reads_in_step == 0 || (place.reads_in_step == 1 && id == sequence.opened);
}

bool StateCache::IsSpare(const Place& place) const {
  if (place.IsShared() || IdOfKept(place.partner) == kNoSnapshot) return false;
  return place.kind == (PrefersAnswers() ? Kind::kPrompt : Kind::kAnswer);
}

StateCache::Rank StateCache::RankOf(const Place& place, const Member& sequence, Kind kind,
                                    bool is_sharing_much) const {
  if (place.node == 0) return Rank::kFree;
  if (place.is_superseded) return Rank::kSuperseded;
  if (place.IsShared()) return is_sharing_much ? Rank::kPrivate : Rank::kShared;
  if (kind == Kind::kPrompt && place.kept == sequence.opened_from) return Rank::kOwn;
  return IsSpare(place) ? Rank::kSpare : Rank::kPrivate;
}

// Given by Choose, the place is written by the step in planning.
SnapshotId StateCache::Choose(Member& sequence, Kind kind, bool may_displace) {
  const auto shared = std::count_if(places_.begin(), places_.end(), [](const Place& place) {
    return place.node != 0 && place.IsShared();
  });
  const bool is_sharing_much = 2 * static_cast<size_t>(shared) > places_.size();
  SnapshotId chosen = kNoSnapshot;
  std::tuple<Rank, uint64_t> best{Rank::kNever, 0};
  for (size_t i = 0; i < places_.size(); ++i) {
    if (!MayBeWritten(IdOf(i), sequence)) continue;
    const std::tuple<Rank, uint64_t> order{RankOf(places_[i], sequence, kind, is_sharing_much),
                                           places_[i].used};
    if (std::get<0>(order) >= Rank::kPrivate && !may_displace) continue;
    if (order < best) {
      best = order;
      chosen = IdOf(i);
    }
  }
  if (chosen != kNoSnapshot && std::get<0>(best) >= Rank::kPrivate) {
    ++displaced_;
    if (kind != Kind::kCommon) sequence.has_displaced = true;
  }
  return chosen;
}

bool StateCache::MayReplace(SnapshotId id, const Member& sequence) const {
  if (id == kNoSnapshot || At(id).IsShared() || !MayBeWritten(id, sequence)) return false;
  return At(id).opened == 0 || At(id).kept == sequence.opened_from;
}

SnapshotId StateCache::ChooseForAnswer(Member& sequence) {
  const SnapshotId before = IdOfKept(sequence.answer);
  if (MayReplace(before, sequence)) return before;
  const SnapshotId chosen =
      Choose(sequence, Kind::kAnswer, !sequence.has_displaced && sequence.prompt == 0);
  if (chosen != kNoSnapshot || !PrefersAnswers()) return chosen;
  const SnapshotId prompt = IdOfKept(sequence.prompt);
  return MayReplace(prompt, sequence) ? prompt : kNoSnapshot;
}

SnapshotId StateCache::Keep(Member& sequence, const PrefixIndex& index, NodeId node,
                            uint32_t blocks, bool is_answer) {
  const auto cut = std::find_if(sequence.cuts.begin(), sequence.cuts.end(),
                                [&](const Cut& at) { return at.blocks == blocks; });
  const bool is_cut = cut != sequence.cuts.end();
  if (places_.empty() || (!is_cut && !is_answer)) return kNoSnapshot;
  const Kind kind = !is_cut ? Kind::kAnswer : cut->is_common ? Kind::kCommon : Kind::kPrompt;
  Sweep(index);
  if (const SnapshotId there = IdAt(node); there != kNoSnapshot) {
    Place& place = At(there);
    place.used = ++uses_;
    if (kind == Kind::kCommon) place.kind = kind;
    if (kind == Kind::kPrompt) sequence.prompt_node = node;
    return kNoSnapshot;
  }
  const SnapshotId id =
      kind == Kind::kAnswer
          ? ChooseForAnswer(sequence)
          : Choose(sequence, kind, cut->is_common ? cut->may_displace : !sequence.has_displaced);
  if (id == kNoSnapshot) return id;
  Place& place = At(id);
  const uint32_t reads = place.reads_in_step;
  place = {};
  place.reads_in_step = reads;
  place.is_written_in_step = true;
  sequence.pending = id;
  sequence.pending_kind = kind;
  return id;
}

void StateCache::Attach(Member& sequence, NodeId node) {
  const SnapshotId id = std::exchange(sequence.pending, kNoSnapshot);
  if (id == kNoSnapshot) return;
  if (sequence.pending_kind == Kind::kPrompt) sequence.prompt_node = node;
  // Two that ran the same tokens: one is enough.
  if (IdAt(node) != kNoSnapshot) return;
  Place& place = At(id);
  place.node = node;
  place.kept = ++last_kept_;
  place.kind = sequence.pending_kind;
  place.used = ++uses_;
  if (place.kind == Kind::kPrompt) {
    sequence.prompt = place.kept;
    Supersede(IdOfKept(sequence.opened_from));
  } else if (place.kind == Kind::kAnswer) {
    sequence.answer = place.kept;
    place.partner = sequence.prompt;
    place.prompt_node = sequence.prompt_node;
    const SnapshotId prompt = IdOfKept(sequence.prompt);
    if (prompt != kNoSnapshot) At(prompt).partner = place.kept;
  }
}

void StateCache::EndStep() {
  for (Place& place : places_) {
    place.reads_in_step = 0;
    place.is_written_in_step = false;
  }
}

void StateCache::CheckInvariants(std::span<const Member* const> members) const {
  std::vector<uint32_t> holders(places_.size(), 0);
  for (const Member* member : members) {
    MACRAME_CHECK(member->pending == kNoSnapshot) << "a state that was left nowhere";
    if (member->from != kNoSnapshot) ++holders.at(static_cast<size_t>(member->from));
    MACRAME_CHECK(std::is_sorted(member->cuts.begin(), member->cuts.end(),
                                 [](const Cut& a, const Cut& b) { return a.blocks < b.blocks; }))
        << "cuts out of order";
  }
  for (size_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    MACRAME_CHECK(place.holders == holders[i])
        << "snapshot " << i << " is held by " << holders[i] << ", counted " << place.holders;
    MACRAME_CHECK(place.holders == 0 || place.node != 0) << "snapshot " << i << " held and free";
    MACRAME_CHECK(place.reads_in_step == 0 && !place.is_written_in_step) << "a step not ended";
    if (place.node == 0) continue;
    MACRAME_CHECK(IdAt(place.node) == IdOf(i)) << "a block with two states";
    MACRAME_CHECK(place.kept > 0 && IdOfKept(place.kept) == IdOf(i))
        << "snapshot " << i << " twice";
  }
}

}  // namespace macrame::runtime::engine
