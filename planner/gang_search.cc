#include "planner/gang_search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "planner/layer_balance.h"
#include "planner/saturating.h"

namespace macrame::planner {
namespace {

using Nodes = std::vector<size_t>;

constexpr size_t kRingNodesMin = 3;    // of two, a mesh is the same and simpler
constexpr double kLargeMessage = 1e9;  // bytes: one that bandwidth alone decides
constexpr double kTie = 1e-6;          // values closer than this part are the same
constexpr uint32_t kCoarseCuts = 24;   // stages begin at so many layers at most, in short lists
constexpr size_t kShortListNodes = 5;  // of the largest, of the fastest
constexpr size_t kShortListsEach = 3;  // cliques, and parts of the cluster, by size and by speed
constexpr uint32_t kLongerMax = 3;     // stages tried beyond the fewest, in long pipelines

// All subsets of `size` of the nodes, in order.
void ForEachSubset(const Nodes& nodes, size_t size, const std::function<void(const Nodes&)>& call) {
  Nodes subset;
  const std::function<void(size_t)> extend = [&](size_t from) {
    if (subset.size() == size) return call(subset);
    for (size_t i = from; i + (size - subset.size()) <= nodes.size(); ++i) {
      subset.push_back(nodes[i]);
      extend(i + 1);
      subset.pop_back();
    }
  };
  extend(0);
}

// The largest sets of nodes that all go together, of at most `size_max`.
std::vector<Nodes> LargestSets(const Nodes& nodes, size_t size_max,
                               const std::function<bool(size_t, size_t)>& together) {
  std::vector<Nodes> sets;
  for (size_t size = std::min(size_max, nodes.size()); size > 0; --size) {
    ForEachSubset(nodes, size, [&](const Nodes& subset) {
      for (size_t i = 0; i < subset.size(); ++i) {
        for (size_t j = i + 1; j < subset.size(); ++j) {
          if (!together(subset[i], subset[j])) return;
        }
      }
      const bool inside = std::any_of(sets.begin(), sets.end(), [&](const Nodes& larger) {
        return std::includes(larger.begin(), larger.end(), subset.begin(), subset.end());
      });
      if (!inside || size == size_max) sets.push_back(subset);
    });
  }
  return sets;
}

Nodes AllNodes(size_t count) {
  Nodes nodes(count);
  std::iota(nodes.begin(), nodes.end(), size_t{0});
  return nodes;
}

}  // namespace

GangSearch::GangSearch(GangJudge& judge, GangGoal wanted)
    : judge_(judge), goal_(std::move(wanted)), range_keys_(judge.model()) {
  const size_t count = judge_.candidates().size();
  if (count <= kExactNodesMax) {
    SearchAll(AllNodes(count));
    if (options_.empty() && is_coarse_) SearchLongPipelines();
  } else {
    // Coarser where nothing is exact; finer again when that leaves nothing that fits.
    const uint32_t coarse = (judge_.model().layer_count() + kCoarseCuts - 1) / kCoarseCuts;
    for (const uint32_t step : {coarse, 1u}) {
      if (!options_.empty()) break;
      step_ = step;
      for (const Nodes& list : ShortLists()) SearchAll(list);
    }
    SearchLongPipelines();
  }
  ChooseExpertCuts();
  std::stable_sort(options_.begin(), options_.end(), [](const GangOption& a, const GangOption& b) {
    return std::pair(a.gang.ranks(), a.gang.tp()) < std::pair(b.gang.ranks(), b.gang.tp());
  });
}

double GangSearch::ValueOf(const Gang& gang) {
  switch (goal_.optimize) {
    case v1::OPTIMIZE_MEMORY:
      return judge_.WorstFill(gang);
    case v1::OPTIMIZE_THROUGHPUT:
      return kMicrosecondsPerSecond / judge_.TokensPerSecond(gang, goal_.users);
    default:
      return judge_.Step(gang, judge_.DecodeOf(1)).total_us();
  }
}

// Interchangeable: exchanging the two changes nothing but names.
bool GangSearch::AreInterchangeable(size_t a, size_t b, const Nodes& among) const {
  const Candidate &one = judge_.candidates()[a], &other = judge_.candidates()[b];
  return one.budget_bytes == other.budget_bytes && SameSpeed(one, other) &&
         one.may_enter == other.may_enter &&
         one.traits.SerializeAsString() == other.traits.SerializeAsString() &&
         judge_.links().AreAlike(a, b, among);
}

void GangSearch::FindAlike(const Nodes& nodes) {
  alike_before_.clear();
  for (size_t i = 1; i < nodes.size(); ++i) {
    for (size_t j = i; j-- > 0;) {
      if (!AreInterchangeable(nodes[j], nodes[i], nodes)) continue;
      alike_before_[nodes[i]] = nodes[j];
      break;
    }
  }
}

bool GangSearch::TakesFirst(const Nodes& set) const {
  return std::all_of(set.begin(), set.end(), [&](size_t node) {
    const auto before = alike_before_.find(node);
    return before == alike_before_.end() ||
           std::find(set.begin(), set.end(), before->second) != set.end();
  });
}

size_t GangSearch::FirstAlike(size_t node) const {
  for (auto at = alike_before_.find(node); at != alike_before_.end();
       at = alike_before_.find(node)) {
    node = at->second;
  }
  return node;
}

StageGroup GangSearch::GroupOf(const Nodes& nodes, const std::map<size_t, uint32_t>& bit) const {
  StageGroup group{nodes, 0, 0};
  for (const size_t node : nodes) {
    group.mask |= 1u << bit.at(node);
    const auto before = alike_before_.find(node);
    if (before != alike_before_.end()) group.after |= 1u << bit.at(before->second);
  }
  group.after &= ~group.mask;
  return group;
}

void GangSearch::SearchAll(const Nodes& nodes) {
  const LinkCosts& links = judge_.links();
  FindAlike(nodes);
  for (const Backend backend : {Backend::kJaccl, Backend::kVerbs}) {
    const Fabric mesh{backend, Topology::kMesh};
    if (!TransportAllows(goal_.transport, mesh)) continue;
    const auto cabled = [&](size_t a, size_t b) {
      return links.HasRdma(a, b, backend) && links.Reaches(a, b);
    };
    for (const Nodes& set : LargestSets(nodes, links.mesh_ranks_max(), cabled)) {
      if (set.size() > 1 && TakesFirst(set)) SearchFabric(set, mesh);
    }
    SearchRings(nodes, {backend, Topology::kRing});
  }
  const bool tcp = TransportAllows(goal_.transport, {});
  const auto reaches = [&](size_t a, size_t b) { return links.HasTcp(a, b); };
  if (!tcp) {  // one rank needs no transport
    for (const size_t node : nodes) {
      if (TakesFirst({node})) SearchFabric({node}, {});
    }
    return;
  }
  for (const Nodes& set : LargestSets(nodes, nodes.size(), reaches)) {
    if (TakesFirst(set)) SearchFabric(set, {});
  }
}

void GangSearch::SearchFabric(const Nodes& nodes, const Fabric& fabric) {
  const uint32_t count = static_cast<uint32_t>(nodes.size());
  for (uint32_t tp = 1; tp <= count; ++tp) {
    const bool uneven = MayCutUnevenly(judge_.candidates(), tp);
    if (SlicesFor(judge_.model(), tp, uneven) > 0) SearchDegree(nodes, fabric, tp);
  }
}

void GangSearch::SearchDegree(const Nodes& nodes, const Fabric& fabric, uint32_t tp) {
  Staged staged;
  staged.way.fabric = fabric;
  staged.tp = tp;
  bool mixes = AllowsStagesOfGroups(fabric);
  for (const size_t node : nodes) {
    mixes = mixes && judge_.candidates()[node].traits.tensor_in_pipeline();
  }
  const uint32_t count = static_cast<uint32_t>(nodes.size());
  staged.stages_max = tp == 1 || mixes ? count / tp : 1;
  staged.stages_max = std::min(staged.stages_max, judge_.model().layer_count());
  std::map<size_t, uint32_t> bit;
  for (uint32_t i = 0; i < count; ++i) bit[nodes[i]] = i;
  ForEachSubset(nodes, tp, [&](const Nodes& subset) {
    if (!MayShare(judge_.candidates(), subset, {tp, 1})) return;
    StageGroup group = GroupOf(subset, bit);
    if (staged.stages_max > 1) {
      staged.groups.push_back(std::move(group));
      return;
    }
    const bool is_new =
        group.after == 0 && searched_.insert({fabric.backend, fabric.is_ring(), subset}).second;
    if (is_new) SearchBothCuts({{std::move(group)}, staged.way, tp, 1});
  });
  if (staged.stages_max > 1) SearchBothCuts(std::move(staged));
}

bool GangSearch::DealsOutExperts(const Nodes& nodes) const {
  return nodes.size() > 1 && std::all_of(nodes.begin(), nodes.end(), [&](size_t node) {
           return planner::DealsOutExperts(judge_.model(), judge_.candidates()[node]);
         });
}

void GangSearch::SearchBothCuts(Staged staged) {
  SearchStages(staged);
  const bool deals = staged.tp > 1 && std::all_of(staged.groups.begin(), staged.groups.end(),
                                                  [&](const StageGroup& group) {
                                                    return DealsOutExperts(group.nodes);
                                                  });
  if (!deals) return;
  staged.way.whole_experts = true;
  SearchStages(staged);
}

void GangSearch::SearchRings(const Nodes& nodes, const Fabric& fabric) {
  const LinkCosts& links = judge_.links();
  const auto has_two = [&](size_t node) {
    return links.RdmaNeighbours(node, fabric.backend).size() > 1;
  };
  if (std::count_if(nodes.begin(), nodes.end(), has_two) < static_cast<ptrdiff_t>(kRingNodesMin)) {
    return;
  }
  SearchCycles(nodes, fabric);
  const auto reaches = [&](size_t a, size_t b) { return links.Reaches(a, b); };
  for (const Nodes& set : LargestSets(nodes, nodes.size(), reaches)) {
    if (set.size() < kRingNodesMin || !TakesFirst(set)) continue;
    // A mesh of the same nodes has all orders that the ring has.
    if (links.Allows({fabric.backend, Topology::kMesh}, set)) continue;
    const uint32_t most = std::min(static_cast<uint32_t>(set.size()), judge_.model().layer_count());
    if (most < kRingNodesMin) continue;
    Staged chain{{}, {fabric}, 1, most, true};
    std::map<size_t, uint32_t> bit;
    for (uint32_t i = 0; i < set.size(); ++i) bit[set[i]] = i;
    for (const size_t node : set) chain.groups.push_back(GroupOf({node}, bit));
    SearchStages(chain);
  }
}

// Through each set of nodes, each way round once.
void GangSearch::SearchCycles(const Nodes& nodes, const Fabric& fabric) {
  Nodes cycle;
  std::set<size_t> used;
  const std::function<void()> extend = [&]() {
    const auto& neighbours = judge_.links().RdmaNeighbours(cycle.back(), fabric.backend);
    if (cycle.size() >= kRingNodesMin &&
        std::binary_search(neighbours.begin(), neighbours.end(), cycle.front())) {
      TryCycle(cycle, fabric);
    }
    for (const size_t next : nodes) {
      // Begins with its earliest node, so that each is met once.
      if (next <= cycle.front() || used.count(next) > 0) continue;
      if (!std::binary_search(neighbours.begin(), neighbours.end(), next)) continue;
      const auto before = alike_before_.find(next);
      if (before != alike_before_.end() && used.count(before->second) == 0) continue;
      cycle.push_back(next);
      used.insert(next);
      extend();
      used.erase(next);
      cycle.pop_back();
    }
  };
  for (const size_t first : nodes) {
    if (!TakesFirst({first})) continue;
    cycle = {first};
    used = {first};
    extend();
  }
}

// A tensor split round it, unless another order of the same nodes was tried whose links are as
// good.
void GangSearch::TryCycle(const Nodes& cycle, const Fabric& fabric) {
  if (!judge_.links().Allows(fabric, cycle)) return;
  if (!MayShare(judge_.candidates(), cycle, {static_cast<uint32_t>(cycle.size()), 1})) return;
  const uint32_t count = static_cast<uint32_t>(cycle.size());
  if (SlicesOver(judge_.model(), judge_.candidates(), cycle) == 0) return;
  Nodes set = cycle;
  std::sort(set.begin(), set.end());
  const auto cost = [&](double bytes) {
    return judge_.links().CollectiveUs(fabric, cycle, bytes, judge_.parameters());
  };
  const std::pair<double, double> costs = {cost(0), cost(kLargeMessage)};
  auto& tried = rings_[{fabric.backend, std::move(set)}];
  const bool is_no_better = std::any_of(tried.begin(), tried.end(), [&](const auto& other) {
    return other.first <= costs.first && other.second <= costs.second;
  });
  if (is_no_better) return;
  tried.push_back(costs);
  SearchBothCuts({{StageGroup{cycle, (1u << count) - 1, 0}}, {fabric}, count, 1});
}

void GangSearch::SearchStages(const Staged& staged) {
  const uint32_t fewest = staged.is_cycle ? kRingNodesMin : 1;
  if (goal_.optimize != v1::OPTIMIZE_THROUGHPUT) {
    return SearchChains(staged, 1, fewest, staged.stages_max);
  }
  for (uint32_t stages = fewest; stages <= staged.stages_max; ++stages) {
    const uint32_t batches = std::min(stages, goal_.users);
    SearchChains(staged, (goal_.users + batches - 1) / batches, stages, stages);
  }
}

double GangSearch::StageValue(const GangStage& stage, const Fabric& fabric, uint32_t sequences) {
  if (goal_.optimize != v1::OPTIMIZE_MEMORY) {
    return judge_.StageStep(stage, fabric, judge_.DecodeOf(sequences)).total_us();
  }
  return judge_.StageFill(stage, stage.begin, stage.end);
}

std::optional<GangStage> GangSearch::BestStage(const Nodes& nodes, const StageWay& way,
                                               uint32_t begin, uint32_t end, uint32_t sequences) {
  const bool last = end == judge_.model().layer_count();
  const bool even_fill = goal_.optimize == v1::OPTIMIZE_MEMORY;
  std::optional<GangStage> best;
  double best_value = kNever;
  GangStage stage;
  stage.nodes = nodes;
  stage.slice_count = SlicesOver(judge_.model(), judge_.candidates(), nodes);
  stage.begin = begin;
  stage.end = end;
  stage.whole_experts = way.whole_experts;
  // The head's place matters on the last stage only, the entry's where it runs a draft model.
  const bool enters = begin == 0 && judge_.serving().draft_bytes > 0;
  for (size_t head = 0; head < (last || enters ? nodes.size() : 1); ++head) {
    stage.nodes = nodes;
    if (way.fabric.is_ring()) {
      std::rotate(stage.nodes.begin(), stage.nodes.begin() + static_cast<ptrdiff_t>(head),
                  stage.nodes.end());
    } else {
      std::rotate(stage.nodes.begin(), stage.nodes.begin() + static_cast<ptrdiff_t>(head),
                  stage.nodes.begin() + static_cast<ptrdiff_t>(head) + 1);
    }
    auto widths = judge_.Widths(stage.nodes, stage.slice_count, begin, end, sequences, even_fill,
                                way.whole_experts);
    if (!widths.has_value()) continue;
    stage.widths = *std::move(widths);
    const double value = StageValue(stage, way.fabric, sequences);
    if (best.has_value() && value >= best_value * (1 - kTie)) continue;
    best = stage;
    best_value = value;
  }
  return best;
}

std::vector<std::shared_ptr<const StageTable>> GangSearch::TablesOf(const Staged& staged,
                                                                    uint32_t sequences,
                                                                    uint32_t stages_max) {
  const uint32_t layers = judge_.model().layer_count();
  const uint64_t hops = StageSearch::CountHops(staged.groups, stages_max);
  // Most ranges of layers are alike (range_keys.h): stages that begin or end with them, and those
  // between.
  const uint64_t stages = staged.tp == 1 ? 0 : staged.groups.size() * std::min(stages_max, 4u);
  uint32_t step = step_;
  const auto is_too_much = [&] {
    const uint64_t cuts = layers / step;
    return hops * cuts * cuts / 2 > kChainStepsMax || stages * cuts > kStagesJudgedMax;
  };
  while (stages_max > 1 && is_too_much()) ++step;
  is_coarse_ = is_coarse_ || step > step_;
  std::map<Nodes, std::shared_ptr<const StageTable>> of_alike;
  std::vector<std::shared_ptr<const StageTable>> tables;
  for (const StageGroup& group : staged.groups) {
    Nodes alike;
    for (const size_t node : group.nodes) alike.push_back(FirstAlike(node));
    const bool is_single = alike.size() == 1;
    std::shared_ptr<const StageTable>& table =
        is_single ? alone_[{sequences, alike[0], step, std::min(stages_max, 3u)}] : of_alike[alike];
    if (table == nullptr) {
      Costs known;
      const auto cost = [&](uint32_t begin, uint32_t end) {
        const auto [found, is_new] = known.try_emplace(range_keys_.Of(begin, end), kNever);
        if (!is_new) return found->second;
        const auto stage = BestStage(group.nodes, staged.way, begin, end, sequences);
        if (stage.has_value()) found->second = StageValue(*stage, staged.way.fabric, sequences);
        return found->second;
      };
      table = std::make_shared<StageTable>(layers, step, stages_max, cost);
    }
    tables.push_back(table);
  }
  return tables;
}

void GangSearch::SearchChains(const Staged& staged, uint32_t sequences, uint32_t first,
                              uint32_t last) {
  const ChainSearch wanted{sequences, first, last, TablesOf(staged, sequences, last)};
  if (!staged.is_cycle) return OfferChains(staged, wanted, {});
  for (size_t group = 0; group < staged.groups.size(); ++group) {
    if (staged.groups[group].after == 0) OfferChains(staged, wanted, group);
  }
}

void GangSearch::OfferChains(const Staged& staged, const ChainSearch& wanted,
                             std::optional<size_t> first_group) {
  const Fabric& fabric = staged.way.fabric;
  const double message = judge_.DecodeOf(wanted.sequences).HopBytes();
  const auto cabled = [&](size_t from, size_t to) {
    return judge_.links().HasRdma(staged.groups[from].nodes[0], staged.groups[to].nodes[0],
                                  fabric.backend);
  };
  const auto hop = [&](size_t from, size_t to) {
    if (staged.is_cycle && !cabled(from, to)) return kNever;
    for (const size_t group : {from, to}) {
      if (!MayShare(judge_.candidates(), staged.groups[group].nodes, {1, wanted.most})) {
        return kNever;
      }
    }
    if (goal_.optimize == v1::OPTIMIZE_MEMORY) return 0.0;
    return judge_.links().HopUs(fabric, staged.groups[from].nodes, staged.groups[to].nodes, message,
                                judge_.parameters());
  };
  std::function<bool(size_t)> may_end;
  if (first_group.has_value()) {
    may_end = [&](size_t group) { return cabled(*first_group, group); };
  }
  std::vector<StageSearch::Combine> ways = {StageSearch::Combine::kSum};
  if (goal_.optimize == v1::OPTIMIZE_MEMORY) ways = {StageSearch::Combine::kLargest};
  if (goal_.optimize == v1::OPTIMIZE_THROUGHPUT) ways.push_back(StageSearch::Combine::kLargest);
  for (const StageSearch::Combine way : ways) {
    const StageSearch search(staged.groups, wanted.tables, way, hop, wanted.most, first_group);
    for (uint32_t stages = wanted.fewest; stages <= wanted.most; ++stages) {
      const auto chain = search.Best(stages, may_end);
      if (!chain.has_value()) continue;
      Gang gang;
      gang.fabric = fabric;
      for (const StageRange& range : chain->stages) {
        gang.stages.push_back(*BestStage(staged.groups[range.group].nodes, staged.way, range.begin,
                                         range.end, wanted.sequences));
      }
      Offer(std::move(gang));
    }
  }
}

void GangSearch::Balance(Gang* gang) {
  if (gang->pp() == 1 || Balance(std::vector<bool>(gang->pp(), true), gang)) return;
  // Stages that are equally fast share evenly what they hold together; the others stay as they are.
  std::vector<bool> done(gang->pp(), false);
  for (size_t first = 0; first < done.size(); ++first) {
    if (done[first]) continue;
    std::vector<bool> alike(done.size(), false);
    for (size_t i = first; i < alike.size(); ++i) {
      alike[i] = AreAlike(gang->stages[first], gang->stages[i]);
      done[i] = done[i] || alike[i];
    }
    if (std::count(alike.begin(), alike.end(), true) > 1) Balance(alike, gang);
  }
}

bool GangSearch::AreAlike(const GangStage& a, const GangStage& b) const {
  return std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(),
                    [&](size_t one, size_t other) {
                      return SameSpeed(judge_.candidates()[one], judge_.candidates()[other]);
                    });
}

// The layers anew; a stage that may not grow keeps at most those that it has. False: the value
// would suffer.
bool GangSearch::Balance(const std::vector<bool>& may_grow, Gang* gang) {
  const auto fill = [&](uint32_t index, uint32_t begin, uint32_t end) {
    const GangStage& stage = gang->stages[index];
    if (!may_grow[index] && end - begin > stage.end - stage.begin) return kNever;
    return judge_.StageFill(stage, begin, end);
  };
  const auto ends = BalanceLayers(gang->pp(), judge_.model().layer_count(), fill, 1);
  if (!ends.has_value()) return false;
  Gang balanced = *gang;
  for (size_t i = 0; i < balanced.stages.size(); ++i) {
    balanced.stages[i].begin = i == 0 ? 0 : (*ends)[i - 1];
    balanced.stages[i].end = (*ends)[i];
  }
  if (ValueOf(balanced) > ValueOf(*gang) * (1 + kTie)) return false;
  *gang = std::move(balanced);
  return true;
}

void GangSearch::Offer(Gang gang) {
  const v1::ModelDescription& model = judge_.model();
  if (!ServesShape(model, {gang.tp(), gang.pp()})) return;
  // Verbs groups are of rankd's own engine.
  if (!model.engine().empty() && gang.fabric.backend == Backend::kVerbs) return;
  Nodes nodes;
  for (const GangStage& stage : gang.stages) {
    nodes.insert(nodes.end(), stage.nodes.begin(), stage.nodes.end());
  }
  if (nodes.size() > 1 && !judge_.links().Allows(gang.fabric, nodes)) return;
  const double value = ValueOf(gang);
  const auto same = std::find_if(options_.begin(), options_.end(), [&](const GangOption& option) {
    return ShapeOf(option.gang) == ShapeOf(gang) &&
           option.gang.whole_experts() == gang.whole_experts();
  });
  if (same != options_.end() && value >= same->value * (1 - kTie)) return;
  Balance(&gang);
  if (same != options_.end()) {
    *same = {std::move(gang), value};
  } else {
    options_.push_back({std::move(gang), value});
  }
}

void GangSearch::ChooseExpertCuts() {
  std::vector<GangOption> chosen;
  for (GangOption& option : options_) {
    const auto other = std::find_if(chosen.begin(), chosen.end(), [&](const GangOption& one) {
      return ShapeOf(one.gang) == ShapeOf(option.gang);
    });
    if (other == chosen.end()) {
      chosen.push_back(std::move(option));
      continue;
    }
    if (IsBetterCut(option, *other)) std::swap(option, *other);
    other->otherwise = std::move(option.gang);
  }
  options_ = std::move(chosen);
}

// Of two that are as good as each other: for memory the faster one, then that which cuts by width.
bool GangSearch::IsBetterCut(const GangOption& a, const GangOption& b) {
  double one = a.value, other = b.value;
  if (goal_.optimize == v1::OPTIMIZE_MEMORY &&
      std::abs(one - other) <= kSameFill * std::max(one, other)) {
    one = judge_.Step(a.gang, judge_.DecodeOf(1)).total_us();
    other = judge_.Step(b.gang, judge_.DecodeOf(1)).total_us();
  }
  if (std::abs(one - other) <= kTie * std::max(one, other)) return b.gang.whole_experts();
  return one < other;
}

// The largest nodes that reach each other, in their order: more stages than a short list has nodes,
// and fewer where only the evenest ranges of layers fit.
void GangSearch::SearchLongPipelines() {
  if (!TransportAllows(goal_.transport, {})) return;
  for (Nodes& part : Parts(/*by_memory=*/true)) {
    std::erase_if(part, [&](size_t node) {
      return !MayShare(judge_.candidates(), {node}, {1, 2});
    });
    if (part.empty()) continue;
    // The first is the entry.
    const auto entry = std::find_if(
        part.begin(), part.end(), [&](size_t node) { return judge_.candidates()[node].may_enter; });
    if (entry != part.end()) std::rotate(part.begin(), entry, entry + 1);
    SearchLongPipelines(part);
  }
}

void GangSearch::SearchLongPipelines(const Nodes& part) {
  const uint32_t layers = judge_.model().layer_count();
  const uint32_t most = std::min<uint32_t>(static_cast<uint32_t>(part.size()), layers);
  uint32_t found = 0;
  const uint32_t exact = goal_.exact_ranks;
  if (exact > kShortListNodes && exact <= part.size() &&
      SlicesOver(judge_.model(), judge_.candidates(), {part.begin(), part.begin() + exact}) > 0 &&
      MayShare(judge_.candidates(), {part.begin(), part.begin() + exact}, {exact, 1})) {
    const Nodes group(part.begin(), part.begin() + exact);
    for (const bool whole_experts : {false, true}) {
      if (whole_experts && !DealsOutExperts(group)) continue;
      auto stage = BestStage(group, {{}, whole_experts}, 0, layers, 1);
      if (!stage.has_value()) continue;
      Gang gang;
      gang.stages.push_back(*std::move(stage));
      Offer(std::move(gang));
    }
  }
  const uint64_t whole = LeastNeedBytes(part);
  uint64_t given = 0;
  for (uint32_t stages = 1; stages <= most; ++stages) {
    given = SaturatingAdd(given, judge_.candidates()[part[stages - 1]].budget_bytes);
    const bool is_short = stages <= kShortListNodes;
    if (!is_short && found > kLongerMax && stages != exact) continue;
    if (given < whole) continue;
    const auto fill = [&](uint32_t index, uint32_t begin, uint32_t end) {
      return judge_.Fill(part[index], {}, begin, end, end == layers, index == 0);
    };
    const auto ends = BalanceLayers(stages, layers, fill, 1);
    if (!ends.has_value()) continue;
    if (!is_short) ++found;
    Gang gang;
    for (uint32_t i = 0; i < stages; ++i) {
      gang.stages.push_back({{part[i]}, {1}, 1, i == 0 ? 0 : (*ends)[i - 1], (*ends)[i]});
    }
    Offer(std::move(gang));
  }
}

// What the model needs on one of the nodes, of whichever kind it needs least: no division of it
// over them needs less in all.
uint64_t GangSearch::LeastNeedBytes(const Nodes& nodes) {
  uint64_t least = kBytesMax;
  for (const ComputeKind kind : {ComputeKind::kGpu, ComputeKind::kCpu}) {
    const auto node = std::find_if(nodes.begin(), nodes.end(), [&](size_t one) {
      return judge_.candidates()[one].kind == kind;
    });
    if (node == nodes.end()) continue;
    least = std::min(least, judge_.NeedBytes(*node, {}, 0, judge_.model().layer_count(), true));
  }
  return least;
}

// Where not all nodes reach each other: the parts that do, of which the first nodes have the most
// memory, or the fastest the most bandwidth. Else all nodes.
std::vector<Nodes> GangSearch::Parts(bool by_memory) const {
  std::vector<Nodes> parts = judge_.links().TcpGroups();
  if (parts.size() == 1) return parts;
  const auto weight = [&](const Nodes& part) {
    std::vector<double> weights;
    for (const size_t node : part) {
      const Candidate& candidate = judge_.candidates()[node];
      weights.push_back(by_memory ? static_cast<double>(candidate.budget_bytes)
                                  : candidate.speed.bandwidth);
    }
    const size_t count = by_memory ? weights.size() : std::min(weights.size(), kShortListNodes);
    std::partial_sort(weights.begin(), weights.begin() + static_cast<ptrdiff_t>(count),
                      weights.end(), std::greater<>());
    return std::accumulate(weights.begin(), weights.begin() + static_cast<ptrdiff_t>(count), 0.0);
  };
  std::vector<std::pair<double, Nodes>> weighed;
  for (Nodes& part : parts) weighed.emplace_back(-weight(part), std::move(part));
  std::sort(weighed.begin(), weighed.end());
  parts.clear();
  for (size_t i = 0; i < std::min(kShortListsEach, weighed.size()); ++i) {
    parts.push_back(std::move(weighed[i].second));
  }
  return parts;
}

std::vector<Nodes> GangSearch::ShortLists() const {
  const auto& candidates = judge_.candidates();
  const auto take = [&](Nodes nodes, const auto& better) {
    std::stable_sort(nodes.begin(), nodes.end(), better);
    nodes.resize(std::min(nodes.size(), kShortListNodes));
    std::sort(nodes.begin(), nodes.end());
    return nodes;
  };
  const auto larger = [&](size_t a, size_t b) {
    return candidates[a].budget_bytes > candidates[b].budget_bytes;
  };
  const auto faster = [&](size_t a, size_t b) {
    return std::pair(candidates[a].speed.bandwidth, candidates[a].budget_bytes) >
           std::pair(candidates[b].speed.bandwidth, candidates[b].budget_bytes);
  };
  std::vector<Nodes> lists = {take(AllNodes(candidates.size()), larger),
                              take(AllNodes(candidates.size()), faster)};
  if (judge_.links().TcpGroups().size() > 1) {
    for (const Nodes& part : Parts(/*by_memory=*/true)) lists.push_back(take(part, larger));
    for (const Nodes& part : Parts(/*by_memory=*/false)) lists.push_back(take(part, faster));
  }
  for (const Backend backend : {Backend::kJaccl, Backend::kVerbs}) {
    for (Nodes& clique : Cliques(backend)) lists.push_back(std::move(clique));
  }
  std::vector<Nodes> distinct;
  for (Nodes& list : lists) {
    if (std::find(distinct.begin(), distinct.end(), list) == distinct.end()) {
      distinct.push_back(std::move(list));
    }
  }
  return distinct;
}

// Sets of nodes with a cable between each two: the ones with most memory, and the fastest.
std::vector<Nodes> GangSearch::Cliques(Backend backend) const {
  const auto& candidates = judge_.candidates();
  std::set<Nodes> found;
  for (size_t first = 0; first < candidates.size(); ++first) {
    // One clique from each node: greedy by memory.
    Nodes clique = {first};
    Nodes near = judge_.links().RdmaNeighbours(first, backend);
    std::stable_sort(near.begin(), near.end(), [&](size_t a, size_t b) {
      return candidates[a].budget_bytes > candidates[b].budget_bytes;
    });
    for (const size_t next : near) {
      const bool joins = std::all_of(clique.begin(), clique.end(), [&](size_t member) {
        return judge_.links().HasRdma(member, next, backend);
      });
      if (joins && clique.size() < judge_.links().mesh_ranks_max()) clique.push_back(next);
    }
    std::sort(clique.begin(), clique.end());
    if (clique.size() > 1) found.insert(clique);
  }
  std::vector<Nodes> all(found.begin(), found.end());
  std::vector<Nodes> best;
  const auto memory = [&](const Nodes& nodes) {
    double sum = 0;
    for (const size_t node : nodes) sum += static_cast<double>(candidates[node].budget_bytes);
    return sum;
  };
  const auto speed = [&](const Nodes& nodes) {
    double sum = 0;
    for (const size_t node : nodes) sum += candidates[node].speed.bandwidth;
    return sum;
  };
  for (const bool by_memory : {true, false}) {
    std::stable_sort(all.begin(), all.end(), [&](const Nodes& a, const Nodes& b) {
      return by_memory ? memory(a) > memory(b) : speed(a) > speed(b);
    });
    for (size_t i = 0; i < std::min(kShortListsEach, all.size()); ++i) best.push_back(all[i]);
  }
  return best;
}

}  // namespace macrame::planner
