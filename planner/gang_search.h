#pragma once

// All ways to run a model on a cluster, and the best of each shape. Exact when there are at most
// kExactNodesMax candidates; above that the exact search runs on short lists (the largest nodes,
// the fastest, the best-connected; where not all reach each other, those of each of the largest
// parts that do), and pipelines longer than a list take the largest nodes of a part in order.
//
// Nodes that are alike, in themselves and in their links, are interchangeable: of all gangs that
// differ only in which of them they take, one is looked at. Where the exact search for chains would
// take more work than kChainStepsMax and kStagesJudgedMax, stages begin at every second layer, or
// third.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/gang.h"
#include "planner/range_keys.h"
#include "planner/stage_search.h"

namespace macrame::planner {

// Up to so many candidates, no set or order of nodes is left out, and no range of layers that the
// budgets below allow.
inline constexpr size_t kExactNodesMax = 6;
// Of one search for chains: 3 ms. A pipeline over six nodes of which no two are alike, and 61
// layers, takes 0.9 million.
inline constexpr uint64_t kChainStepsMax = 1'000'000;
// Of one search for chains of tensor groups: stages that are judged, of some microseconds each.
inline constexpr uint64_t kStagesJudgedMax = 1500;

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
  // Only what it allows (TransportAllows); empty: any.
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
  // Rings of cables: pipelines and tensor splits.
  void SearchRings(const std::vector<size_t>& nodes, const Fabric& fabric);
  void SearchCycles(const std::vector<size_t>& nodes, const Fabric& fabric);
  void TryCycle(const std::vector<size_t>& cycle, const Fabric& fabric);
  // Of each node the one before it that is alike.
  void FindAlike(const std::vector<size_t>& nodes);
  bool AreInterchangeable(size_t a, size_t b, const std::vector<size_t>& among) const;
  // Has it, of nodes that are alike, the first ones?
  bool TakesFirst(const std::vector<size_t>& set) const;
  size_t FirstAlike(size_t node) const;
  // With what has to be used before it. `bit`: of each node that may be used.
  StageGroup GroupOf(const std::vector<size_t>& nodes, const std::map<size_t, uint32_t>& bit) const;
  void SearchLongPipelines();
  void SearchLongPipelines(const std::vector<size_t>& part);
  uint64_t LeastNeedBytes(const std::vector<size_t>& nodes);
  std::vector<std::vector<size_t>> Parts(bool by_memory) const;
  std::vector<std::vector<size_t>> ShortLists() const;
  std::vector<std::vector<size_t>> Cliques(Backend backend) const;

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
    bool is_cycle = false;  // single nodes, of which neighbours are cabled, the last to the first
  };
  // Both where the engines of all these nodes can.
  void SearchBothCuts(Staged staged);
  bool DealsOutExperts(const std::vector<size_t>& nodes) const;
  void SearchStages(const Staged& staged);
  void SearchChains(const Staged& staged, uint32_t sequences, uint32_t first, uint32_t last);
  // What is offered of one such search.
  struct ChainSearch {
    uint32_t sequences = 1;
    uint32_t fewest = 1, most = 1;  // stages
    std::vector<std::shared_ptr<const StageTable>> tables;
  };
  void OfferChains(const Staged& staged, const ChainSearch& wanted,
                   std::optional<size_t> first_group);
  std::vector<std::shared_ptr<const StageTable>> TablesOf(const Staged& staged, uint32_t sequences,
                                                          uint32_t stages_max);
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
  const RangeKeys range_keys_;
  using Costs = std::unordered_map<uint64_t, double>;  // of a stage, by the key of its layers
  // Of stages of one node, by how many sequences they serve, node, step between layers, and whether
  // three can follow each other; no fabric changes them.
  std::map<std::tuple<uint32_t, size_t, uint32_t, uint32_t>, std::shared_ptr<const StageTable>>
      alone_;
  std::unordered_map<size_t, size_t> alike_before_;
  // Groups that were searched as a stage of their own, by fabric.
  std::set<std::tuple<Backend, bool, std::vector<size_t>>> searched_;
  // Of rings through the same nodes: what an empty message costs, and a large one.
  std::map<std::pair<Backend, std::vector<size_t>>, std::vector<std::pair<double, double>>> rings_;
  bool is_coarse_ = false;  // a budget left places out where stages may begin
  uint32_t step_ = 1;       // layers between the places where stages may begin
  std::vector<GangOption> options_;
};

}  // namespace macrame::planner
