#pragma once

// A gang that has no model: it runs the scheduler's steps as the ranks would, from the steps alone.
// Its KV cache holds token ids, and the token that it answers with is a hash of all tokens that it
// reads back from the blocks of a slot. So an answer is right only if every block held what it
// should have. Of a model with recurrent layers it keeps, for each slot and snapshot, the very
// tokens that its state stands for, and holds a slot's state against the tokens before each
// segment. Collects what is wrong with a step instead of stopping at it.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "runtime/model/step/forward_step.h"
#include "runtime/serving/cache/prefix_index.h"

namespace macrame::runtime::engine {

// What stands in for the model.
struct FakeModel {
  int32_t vocabulary = 0;
  // Mostly the last token alone says what comes next, so that answers repeat themselves; each fifth
  // token or so still depends on all of them.
  bool repeats = false;
};
// The next token after `tokens`.
int32_t FakeNextToken(std::span<const int32_t> tokens, const FakeModel& model);

class FakeGang {
 public:
  // `snapshots`: of a model with recurrent layers.
  FakeGang(uint32_t blocks, uint32_t slots, const FakeModel& model,
           std::optional<uint32_t> snapshots = std::nullopt);

  // The token of each row that the step asks for, or chooses itself.
  std::vector<int32_t> Run(const ForwardStep& step);

  // For the cold tier: what a full block holds, and a block from disk.
  BlockTokens ReadBlock(BlockId block);
  void WriteBlock(BlockId block, const BlockTokens& tokens);

  const std::map<uint32_t, std::vector<BlockId>>& tables() const { return tables_; }
  const std::vector<std::string>& faults() const { return faults_; }
  // Tokens that were run for each slot, with those behind wrong drafts.
  const std::map<uint32_t, uint32_t>& held() const { return held_; }
  uint64_t states_read() const { return states_read_; }
  uint64_t states_written() const { return states_written_; }

 private:
  struct Block {
    std::array<int32_t, kBlockTokens> tokens{};
    uint32_t filled = 0;
    uint64_t written_in = 0;  // step
  };
  void Fault(const std::string& what);
  // With what the step before chose in its place.
  ForwardStep WithTokens(const ForwardStep& step);
  void Copy(const BlockCopy& copy);
  bool Extend(const Segment& segment);
  void Write(const Segment& segment);
  std::vector<int32_t> TokensOf(uint32_t slot, uint32_t count) const;
  void OpenState(const Segment& segment, bool opened);
  // States that the step keeps: after all of it ran.
  void KeepStates(const ForwardStep& step);
  bool IsSnapshot(SnapshotId id, const char* what);

  const uint32_t slots_;
  const FakeModel model_;
  uint64_t step_ = 0;
  std::vector<Block> blocks_;
  std::map<uint32_t, std::vector<BlockId>> tables_;
  std::map<uint32_t, uint32_t> held_;                 // tokens of each slot
  std::map<uint32_t, uint32_t> sure_;                 // of these, those that rest on no draft
  std::map<BlockId, std::multiset<uint32_t>> users_;  // slots whose table has the block
  std::vector<BlockId> filled_;                       // since the last step
  // What states stand for.
  const bool has_state_;
  std::map<uint32_t, std::vector<int32_t>> states_;  // by slot
  std::vector<std::optional<std::vector<int32_t>>> snapshots_;
  std::map<SnapshotId, uint32_t> read_in_step_;  // by which slot, the last
  std::vector<int32_t> chosen_;                  // by the step before
  uint64_t states_read_ = 0;
  uint64_t states_written_ = 0;
  std::vector<std::string> faults_;
};

}  // namespace macrame::runtime::engine
