#pragma once

// The best chain of stages: which groups of nodes, in which order, with which layers. Exact, by
// dynamic programming over the sets of nodes used so far, the last group and where its layers end.
// Small inputs only: 2^nodes × groups² × layers² / 2 steps at the most; nodes that are alike
// (StageGroup.after) make it far fewer.
//
// What is minimised is either the sum of all stages and hops (one sequence goes through them one
// after the other) or the largest of them (with many sequences in flight the slowest stage paces
// all; the fullest node paces a spread of memory).

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace macrame::planner {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// Nodes that compute one stage together. `nodes` are indices below 32.
struct StageGroup {
  std::vector<size_t> nodes;
  uint32_t mask = 0;
  // It follows on these alone. Of nodes that are alike the earlier one is used first: every other
  // chain is like one of those that are tried.
  uint32_t after = 0;
};

// What stages of one group cost: of layers [begin, end) on it; kNever when they do not fit. A range
// that does not fit must not fit when it is longer either.
using StageCost = std::function<double(uint32_t begin, uint32_t end)>;

// That for all ranges between cuts, which chains of at most `stages_max` stages may need. Groups
// that are alike may share one.
class StageTable {
 public:
  // Stages begin at multiples of `step` layers only: 1 for an exact answer.
  StageTable(uint32_t layers, uint32_t step, uint32_t stages_max, const StageCost& cost);

 private:
  friend class StageSearch;
  std::vector<uint32_t> cuts_;  // the layers at which stages may begin, and the end
  uint32_t last_ = 0;           // index of the last cut
  bool ends_only_ = false;      // of stages that are not the first, those that end with the layers
  std::vector<double> costs_;   // [begin × cuts + end]
};

struct StageRange {
  size_t group = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const StageRange&) const = default;
};

struct StageChain {
  double value = kNever;
  std::vector<StageRange> stages;
};

class StageSearch {
 public:
  enum class Combine { kSum, kLargest };
  // From the last node group to the next; kNever when they can't be neighbours.
  using Hop = std::function<double(size_t from_group, size_t to_group)>;

  // `tables`: of each group, with the same cuts. `first`: the only group that may be the first.
  StageSearch(std::vector<StageGroup> groups, std::vector<std::shared_ptr<const StageTable>> tables,
              Combine combine, const Hop& hop, uint32_t stages_max,
              std::optional<size_t> first = {});

  // How often a group follows on another in all chains that are tried: with cuts² / 2 of each, the
  // steps of a search.
  static uint64_t CountHops(const std::vector<StageGroup>& groups, uint32_t stages_max);

  // The best chain of exactly so many stages; among equals the one with the earliest nodes.
  // `may_end`: groups that may be the last.
  std::optional<StageChain> Best(uint32_t stages, const std::function<bool(size_t)>& may_end) const;

 private:
  struct State {  // chains over one set of nodes that end with one group
    uint32_t stages = 0;
    std::vector<double> value;     // [end]
    std::vector<uint32_t> begin;   // [end]: where the last stage's layers begin
    std::vector<size_t> previous;  // [end]: the group before; kNone for the first stage
  };
  static constexpr size_t kNone = ~size_t{0};
  using Key = std::pair<uint32_t, size_t>;  // nodes used, last group

  void Extend(const Key& key, const State& from, size_t next, double hop);

  const std::vector<StageGroup> groups_;
  const std::vector<std::shared_ptr<const StageTable>> tables_;
  uint32_t last_ = 0;  // index of the last cut
  const Combine combine_;
  std::map<Key, State> states_;  // by set of nodes, ascending
};

}  // namespace macrame::planner
