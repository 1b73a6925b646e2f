#include "tests/sim/fake_gang.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace macrame::runtime::engine {

namespace {

uint64_t Hash(std::span<const int32_t> tokens) {
  uint64_t hash = 0x9E3779B97F4A7C15u;
  for (const int32_t token : tokens) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0xBF58476D1CE4E5B9u;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

int32_t FakeNextToken(std::span<const int32_t> tokens, const FakeModel& model) {
  const uint64_t of_all = Hash(tokens);
  const bool repeats = model.repeats && of_all % 5 != 0;
  const uint64_t hash = repeats ? Hash(tokens.last(1)) : of_all / 5;
  return static_cast<int32_t>(hash % static_cast<uint64_t>(model.vocabulary));
}

FakeGang::FakeGang(uint32_t blocks, uint32_t slots, const FakeModel& model,
                   std::optional<uint32_t> snapshots)
    : slots_(slots),
      model_(model),
      blocks_(blocks),
      has_state_(snapshots.has_value()),
      snapshots_(snapshots.value_or(0)) {}

void FakeGang::Fault(const std::string& what) {
  faults_.push_back(absl::StrCat("step ", step_, ": ", what));
}

std::vector<int32_t> FakeGang::TokensOf(uint32_t slot, uint32_t count) const {
  std::vector<int32_t> tokens;
  const std::vector<BlockId>& table = tables_.at(slot);
  for (uint32_t i = 0; i < count && i / kBlockTokens < table.size(); ++i) {
    tokens.push_back(
        blocks_[static_cast<size_t>(table[i / kBlockTokens])].tokens[i % kBlockTokens]);
  }
  return tokens;
}

bool FakeGang::IsSnapshot(SnapshotId id, const char* what) {
  if (has_state_ && id >= 0 && static_cast<size_t>(id) < snapshots_.size()) return true;
  Fault(absl::StrCat("there is no snapshot ", id, " to ", what));
  return false;
}

// Before anything of the step ran.
void FakeGang::OpenState(const Segment& segment, bool opened) {
  if (!has_state_) {
    if (segment.state_from != kNoSnapshot || segment.state_to != kNoSnapshot) {
      Fault("a state where there is none");
    }
    return;
  }
  std::vector<int32_t>& state = states_[segment.slot];
  if (!opened && segment.state_from != kNoSnapshot) Fault("a state for a slot that is open");
  if (opened) {
    state.clear();
    if ((segment.begin > 0) != (segment.state_from != kNoSnapshot)) {
      Fault(absl::StrCat("slot ", segment.slot, " is opened at ", segment.begin, " from snapshot ",
                         segment.state_from));
    } else if (segment.begin > 0 && IsSnapshot(segment.state_from, "read")) {
      const auto& kept = snapshots_[static_cast<size_t>(segment.state_from)];
      if (!kept.has_value()) Fault(absl::StrCat("snapshot ", segment.state_from, " is empty"));
      state = kept.value_or(std::vector<int32_t>());
      ++states_read_;
      // Another reader than a writer, if there is one.
      const auto [at, added] = read_in_step_.emplace(segment.state_from, segment.slot);
      if (!added) at->second = slots_;
    }
  }
  if (state != TokensOf(segment.slot, segment.begin)) {
    Fault(absl::StrCat("the state of slot ", segment.slot, " is not that of the ", segment.begin,
                       " tokens before it"));
  }
}

void FakeGang::KeepStates(const ForwardStep& step) {
  std::set<SnapshotId> written;
  for (const Segment& segment : step.segments) {
    if (!has_state_) return;
    std::vector<int32_t>& state = states_[segment.slot];
    state.insert(state.end(), segment.tokens.begin(), segment.tokens.end());
    if (segment.logit_rows == LogitRows::kAll && segment.tokens.size() > 1) Fault("drafts");
    if (segment.state_to == kNoSnapshot || !IsSnapshot(segment.state_to, "write")) continue;
    if (!written.insert(segment.state_to).second) Fault("two states under one id in one step");
    const auto read = read_in_step_.find(segment.state_to);
    if (read != read_in_step_.end() && read->second != segment.slot) {
      Fault("a state that another segment of the step reads is overwritten");
    }
    snapshots_[static_cast<size_t>(segment.state_to)] = state;
    ++states_written_;
  }
  read_in_step_.clear();
}

void FakeGang::Copy(const BlockCopy& copy) {
  for (const BlockId block : {copy.from, copy.to}) {
    if (block >= 0 && static_cast<size_t>(block) < blocks_.size()) continue;
    return Fault(absl::StrCat("there is no block ", block, " for a copy"));
  }
  const Block& from = blocks_[static_cast<size_t>(copy.from)];
  if (from.filled != kBlockTokens) Fault(absl::StrCat("a copy of block ", copy.from, ", not full"));
  if (users_[copy.to].size() > 0) Fault(absl::StrCat("a copy into block ", copy.to, " of a slot"));
  const uint64_t written_in = from.written_in;
  blocks_[static_cast<size_t>(copy.to)] = from;
  blocks_[static_cast<size_t>(copy.to)].written_in = written_in;
}

// The table of the segment's slot, with what was already there held against `begin`.
bool FakeGang::Extend(const Segment& segment) {
  const uint32_t slot = segment.slot;
  if (slot >= slots_) Fault(absl::StrCat("there is no slot ", slot));
  if (segment.tokens.empty()) Fault(absl::StrCat("no tokens for slot ", slot));
  const bool opened = !tables_.contains(slot);
  std::vector<BlockId>& table = tables_[slot];
  for (const BlockId block : segment.new_blocks) {
    if (block < 0 || static_cast<size_t>(block) >= blocks_.size()) {
      Fault(absl::StrCat("there is no block ", block));
      return false;
    }
    table.push_back(block);
    users_[block].insert(slot);
  }
  if (opened) {
    held_[slot] = sure_[slot] = segment.begin;
    if (segment.begin % kBlockTokens != 0) Fault("a cached prefix that ends within a block");
    for (uint32_t i = 0; i < segment.begin / kBlockTokens && i < table.size(); ++i) {
      const Block& cached = blocks_[static_cast<size_t>(table[i])];
      if (cached.filled != kBlockTokens) Fault(absl::StrCat("block ", table[i], " is not full"));
      if (cached.written_in >= step_) Fault("a cached block that this very step writes");
    }
  } else if (segment.begin < sure_[slot] || segment.begin > held_[slot]) {
    Fault(absl::StrCat("slot ", slot, " holds ", sure_[slot], " to ", held_[slot],
                       " tokens, begin is ", segment.begin));
  }
  const size_t end = segment.begin + segment.tokens.size();
  const size_t needed = (end + kBlockTokens - 1) / kBlockTokens;
  const size_t wanted = std::max(needed, table.size() - segment.new_blocks.size());
  if (table.size() == wanted) return true;
  Fault(absl::StrCat("slot ", slot, " has ", table.size(), " blocks for ", end, " tokens"));
  return table.size() > wanted;
}

void FakeGang::Write(const Segment& segment) {
  const std::vector<BlockId>& table = tables_[segment.slot];
  for (uint32_t i = 0; i < segment.tokens.size(); ++i) {
    const uint32_t position = segment.begin + i;
    const BlockId id = table[position / kBlockTokens];
    Block& block = blocks_[static_cast<size_t>(id)];
    const uint32_t offset = position % kBlockTokens;
    if (users_[id].size() != 1) Fault(absl::StrCat("block ", id, " is written and shared"));
    if (offset == 0) block.filled = 0;  // its former content had been given up
    const bool is_overwritten = position < held_[segment.slot] && block.filled > offset;
    if (block.filled != offset && !is_overwritten) {
      Fault(absl::StrCat("block ", id, " is written out of order"));
    }
    block.tokens[offset] = segment.tokens[i];
    block.filled = offset + 1;
    block.written_in = step_;
  }
  held_[segment.slot] = segment.begin + static_cast<uint32_t>(segment.tokens.size());
  sure_[segment.slot] =
      segment.logit_rows == LogitRows::kAll ? segment.begin + 1 : held_[segment.slot];
}

BlockTokens FakeGang::ReadBlock(BlockId block) {
  const Block& read = blocks_.at(static_cast<size_t>(block));
  if (read.filled != kBlockTokens) Fault(absl::StrCat("block ", block, " is stored half full"));
  return read.tokens;
}

void FakeGang::WriteBlock(BlockId block, const BlockTokens& tokens) {
  filled_.push_back(block);  // whose slot may be closed by the next step only
  blocks_.at(static_cast<size_t>(block)) = {tokens, kBlockTokens, step_};
}

ForwardStep FakeGang::WithTokens(const ForwardStep& step) {
  ForwardStep known = step;
  for (Segment& segment : known.segments) {
    for (int32_t& token : segment.tokens) {
      if (!IsChosenRow(token)) continue;
      const auto row = static_cast<size_t>(ChosenRowOf(token));
      if (row >= chosen_.size()) Fault(absl::StrCat("row ", row, " of ", chosen_.size()));
      token = row < chosen_.size() ? chosen_[row] : 0;
    }
  }
  return known;
}

std::vector<int32_t> FakeGang::Run(const ForwardStep& given) {
  ++step_;
  const ForwardStep step = WithTokens(given);
  for (const uint32_t slot : step.closed_slots) {
    if (!tables_.contains(slot)) Fault(absl::StrCat("slot ", slot, " is closed and was not open"));
    for (const BlockId block : tables_[slot]) {
      users_[block].erase(users_[block].find(slot));
    }
    tables_.erase(slot);
    held_.erase(slot);
    sure_.erase(slot);
    states_.erase(slot);
  }
  for (const BlockCopy& copy : step.copies) Copy(copy);
  for (const BlockId block : filled_) {
    if (!users_[block].empty()) Fault(absl::StrCat("block ", block, " is filled and in use"));
  }
  filled_.clear();
  if (step.segments.empty()) Fault("a step without segments");
  // All of a step's tokens go through the layers together: nothing may rest on their order.
  std::set<uint32_t> seen;
  std::vector<const Segment*> runnable;
  for (const Segment& segment : step.segments) {
    if (!seen.insert(segment.slot).second) Fault(absl::StrCat("slot ", segment.slot, " twice"));
    const bool opened = !tables_.contains(segment.slot);
    if (!Extend(segment)) continue;
    runnable.push_back(&segment);
    OpenState(segment, opened);
  }
  for (const Segment* segment : runnable) Write(*segment);
  KeepStates(step);
  std::vector<int32_t> rows;
  chosen_.clear();
  for (const Segment& segment : step.segments) {
    const bool is_chosen = segment.logit_rows == LogitRows::kChosen;
    if (!is_chosen && segment.logit_rows != LogitRows::kLast &&
        segment.logit_rows != LogitRows::kAll) {
      continue;
    }
    const std::vector<int32_t> tokens = TokensOf(segment.slot, held_[segment.slot]);
    const size_t first = segment.logit_rows == LogitRows::kAll ? segment.begin + 1 : tokens.size();
    for (size_t count = first; count <= tokens.size(); ++count) {
      rows.push_back(FakeNextToken(std::span(tokens).first(count), model_));
    }
    if (is_chosen) chosen_.push_back(rows.back());
  }
  return rows;
}

}  // namespace macrame::runtime::engine
