#pragma once

// All ways to run a model on a cluster, and the best of each shape. Exact when there are at most
// kExactNodesMax candidates; above that the exact search runs on short lists (the largest nodes,
// the fastest, the best-connected; where not all reach each other, those of each of the largest
// parts that do), and pipelines longer than a list take the largest nodes of a part in order.

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/gang.h"
#include "planner/range_keys.h"
#include "planner/stage_search.h"

namespace macrame::planner {

// Up to so many candidates, no set, order, range or division of nodes is left out.
inline constexpr size_t kExactNodesMax = 6;

inline constexpr double kSameFill = 0.02;  // nodes as full as each other up to this part

struct GangOption {
  Gang gang;
  double value = kNever;  // what the goal minimises: microseconds a token, or the worst fill
  // The best of this shape with experts dealt out the other way, whole or by width.
  std::optional<Gang> otherwise{};
};

struct GangGoal {
  v1::Optimize optimize = v1::OPTIMIZE_LATENCY;
  uint32_t users = 1;
  // Only these, unless empty: "jaccl", "verbs", "ring".
  std::string transport;
  uint32_t exact_ranks = 0;  // so many are looked for however many there are; 0: any number
};

class GangSearch {
 public:
  // `judge` must outlive this.
  GangSearch(GangJudge& judge, GangGoal wanted);

  // The best gang of each (tp, pp) that fits anywhere, by ranks, then tp.
  const std::vector<GangOption>& Options() const { return options_; }

  // What the goal minimises, of one gang.
  double ValueOf(const Gang& gang);

 private:
  void SearchAll(const std::vector<size_t>& nodes);
  void SearchFabric(const std::vector<size_t>& nodes, const Fabric& fabric);
  void SearchDegree(const std::vector<size_t>& nodes, const Fabric& fabric, uint32_t tp);
  void SearchCycles(const std::vector<size_t>& nodes, const Fabric& fabric);
  void TryCycle(const std::vector<size_t>& cycle, const Fabric& fabric);
  void SearchLongPipelines();
  void SearchLongPipelines(const std::vector<size_t>& part);
  uint64_t LeastNeedBytes(const std::vector<size_t>& nodes);
  std::vector<std::vector<size_t>> Parts(bool by_memory) const;
  std::vector<std::vector<size_t>> ShortLists() const;
  std::vector<std::vector<size_t>> Cliques(Fabric::Backend backend) const;

  // How the ranks of a stage share it.
  struct StageWay {
    Fabric fabric;
    bool whole_experts = false;
  };
  struct Staged {  // stages on given groups in any order
    std::vector<StageGroup> groups;
    StageWay way;
    uint32_t tp = 1;
    uint32_t stages_max = 1;
    bool is_cycle = false;  // only each group's successor can follow it
  };
  // Both where the engines of all these nodes can.
  void SearchBothCuts(Staged staged);
  bool DealsOutExperts(const std::vector<size_t>& nodes) const;
  void SearchStages(const Staged& staged);
  void SearchChains(const Staged& staged, uint32_t sequences, uint32_t first, uint32_t last);
  std::optional<GangStage> BestStage(const std::vector<size_t>& nodes, const StageWay& way,
                                     uint32_t begin, uint32_t end, uint32_t sequences);
  double StageValue(const GangStage& stage, const Fabric& fabric, uint32_t sequences);
  // Equal times: the chain in which the fullest node is the least full.
  void Balance(Gang* gang);
  bool Balance(const std::vector<bool>& may_grow, Gang* gang);
  bool AreAlike(const GangStage& a, const GangStage& b) const;
  void Offer(Gang gang);
  // Of each shape the better way to deal out experts.
  void ChooseExpertCuts();
  bool IsBetterCut(const GangOption& a, const GangOption& b);

  GangJudge& judge_;
  const GangGoal goal_;
  const bool uneven_;
  const RangeKeys range_keys_;
  using Costs = std::unordered_map<uint64_t, double>;  // of a stage, by the key of its layers
  // Of stages of one node, by how many sequences they serve and by node; no fabric changes them.
  std::map<std::pair<uint32_t, size_t>, Costs> alone_;
  uint32_t step_ = 1;  // layers between the places where stages may begin
  std::vector<GangOption> options_;
};

}  // namespace macrame::planner
