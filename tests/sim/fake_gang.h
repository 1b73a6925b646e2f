#pragma once

// A gang that has no model: it runs the scheduler's steps as the ranks would, from the steps alone.
// Its KV cache holds token ids, and the token that it answers with is a hash of all tokens that it
// reads back from the blocks of a slot. So an answer is right only if every block held what it
// should have. Collects what is wrong with a step instead of stopping at it.

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "runtime/model/forward_step.h"
#include "runtime/serving/prefix_index.h"

namespace macrame::runtime::engine {

// The next token after `tokens`, below `vocabulary`.
int32_t FakeNextToken(std::span<const int32_t> tokens, int32_t vocabulary);

class FakeGang {
 public:
  FakeGang(uint32_t blocks, uint32_t slots, int32_t vocabulary);

  // The token of each row that the step asks for.
  std::vector<int32_t> Run(const ForwardStep& step);

  const std::map<uint32_t, std::vector<BlockId>>& tables() const { return tables_; }
  const std::vector<std::string>& faults() const { return faults_; }

 private:
  struct Block {
    std::array<int32_t, kBlockTokens> tokens{};
    uint32_t filled = 0;
    uint64_t written_in = 0;  // step
  };
  void Fault(const std::string& what);
  bool Extend(const Segment& segment);
  void Write(const Segment& segment);

  const uint32_t slots_;
  const int32_t vocabulary_;
  uint64_t step_ = 0;
  std::vector<Block> blocks_;
  std::map<uint32_t, std::vector<BlockId>> tables_;
  std::map<uint32_t, uint32_t> held_;                 // tokens of each slot
  std::map<BlockId, std::multiset<uint32_t>> users_;  // slots whose table has the block
  std::vector<std::string> faults_;
};

}  // namespace macrame::runtime::engine
