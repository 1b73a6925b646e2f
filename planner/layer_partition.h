#pragma once

// Contiguous layer ranges for the stages of a pipeline, on nodes of unequal memory.
//
// Largest node first is tried before anything else. Where that order fails and there are at most
// kExactNodesMax (planner.h) candidates, the answer is exact: for every set of nodes the ends that
// a prefix of the layers can have are known, whatever the nodes' order. In the order so found, the
// ranges minimise the fullest node's fill, and among equals the sum of squared fills.

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/memory_model.h"

namespace macrame::planner {

struct StageNode {
  uint64_t budget_bytes = 0;
  ComputeKind kind = ComputeKind::kGpu;
};

struct StageRange {
  size_t node = 0;  // index into the candidates
  uint32_t begin = 0;
  uint32_t end = 0;
};

class LayerPartition {
 public:
  // `candidates` best first: of two sets of nodes that both hold the model, the one with the
  // earlier nodes is taken. `memory` must outlive this and have a tensor degree of 1.
  LayerPartition(const MemoryModel& memory, std::vector<StageNode> candidates);

  // Stages in order, each with at least one layer; nothing when no `stages` nodes can hold the
  // model.
  std::optional<std::vector<StageRange>> Split(uint32_t stages);

 private:
  using NodeSet = uint32_t;  // one bit a candidate
  // [end] is true when the layers [0, end) can lie on exactly these nodes, one range each.
  using PrefixEnds = std::vector<bool>;

  bool IsHopeless(uint32_t stages) const;
  void SearchAllSets();
  void ExtendSet(NodeSet set, size_t node);
  std::optional<std::vector<size_t>> FeasibleOrder(uint32_t stages) const;
  std::vector<size_t> OrderOf(NodeSet set, size_t last, uint32_t last_begin) const;
  bool Holds(size_t node, uint32_t begin, uint32_t end, bool first, bool last) const;
  std::optional<std::vector<StageRange>> BalanceInOrder(const std::vector<size_t>& order) const;

  const MemoryModel& memory_;
  const std::vector<StageNode> candidates_;
  std::vector<PrefixEnds> ends_;  // by NodeSet; empty until searched
};

}  // namespace macrame::planner
