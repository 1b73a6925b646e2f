#include "planner/plan_choice.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/prediction.h"
#include "planner/shape_refusal.h"
#include "proto/backends.h"
#include "proto/reasons.h"
#include "proto/serving_limits.h"

namespace macrame::planner {
namespace {

// From this context on the speed at its end is said too.
constexpr uint32_t kLongContext = 8192;
// Numbers of nodes up to this are spoken of whether they fit or not.
constexpr uint32_t kAlwaysComparedNodes = 4;
constexpr double kNoFaster = 0.005;  // a gain below this part is none

double WorthwhileGain(const v1::PlanRequest& request) {
  return request.placement().optimize() == v1::OPTIMIZE_MEMORY ? kWorthwhileSpace : kWorthwhileGain;
}

// "1 rank was", "3 ranks were".
std::string RanksWere(uint32_t ranks) {
  return absl::StrCat(ranks, ranks == 1 ? " rank was" : " ranks were");
}

// Lower is better; what this cluster measured of the backend counts.
double Value(const v1::PlanRequest& request, const GangOption& option) {
  if (request.placement().optimize() == v1::OPTIMIZE_MEMORY) return option.value;
  return option.value * CorrectionOf(request.corrections(), NameOf(BackendOf(option.gang)));
}

// Of two that leave the fullest node as empty as each other, the faster one.
bool IsBetter(const v1::PlanRequest& request, GangJudge& judge, const GangOption& a,
              const GangOption& b) {
  const double one = Value(request, a), other = Value(request, b);
  const bool same_fill = request.placement().optimize() == v1::OPTIMIZE_MEMORY &&
                         std::abs(one - other) <= kSameFill * std::max(one, other);
  if (!same_fill) return one < other;
  return TokensPerSecondOfOne(judge, request, a.gang) >
         TokensPerSecondOfOne(judge, request, b.gang);
}

// Is it worse than the best by no more than is worth further ranks?
bool DoesAsWell(const v1::PlanRequest& request, GangJudge& judge, const GangOption& option,
                const GangOption& best) {
  const double loss = Value(request, option) / Value(request, best) - 1;
  if (loss <= kWorthwhileSpace || loss > WorthwhileGain(request)) return loss <= kWorthwhileSpace;
  const uint32_t users = std::min(judge.serving().sequences, kAnsweredAtOnceMax);
  if (users == 1 || request.placement().optimize() != v1::OPTIMIZE_LATENCY) return true;
  const auto all_users = [&](const GangOption& one) {
    return judge.TokensPerSecond(one.gang, users) /
           CorrectionOf(request.corrections(), NameOf(BackendOf(one.gang)));
  };
  return all_users(best) <= all_users(option) * (1 + kWorthwhileGain);
}

// Of those that a level of the options allows.
const GangOption* BestAt(const v1::PlanRequest& request, GangJudge& judge,
                         const std::vector<GangOption>& options, const ShapeOptions& placement,
                         uint32_t level) {
  std::vector<const GangOption*> allowed;
  for (const GangOption& option : options) {
    if (placement.Allows(ShapeOf(option.gang), level)) allowed.push_back(&option);
  }
  if (allowed.empty()) return nullptr;
  uint32_t ranks = 0;  // only so many, when that is what counts first
  if (placement.WantsMost(level)) {
    for (const GangOption* option : allowed) ranks = std::max(ranks, option->gang.ranks());
  }
  double best = kNever;
  const GangOption* fastest = nullptr;
  for (const GangOption* option : allowed) {
    if (ranks > 0 && option->gang.ranks() != ranks) continue;
    if (fastest != nullptr && Value(request, *option) >= best) continue;
    best = Value(request, *option);
    fastest = option;
  }
  const GangOption* chosen = nullptr;
  for (const GangOption* option : allowed) {  // by ranks, ascending
    if (ranks > 0 && option->gang.ranks() != ranks) continue;
    if (chosen != nullptr && option->gang.ranks() > chosen->gang.ranks()) break;
    if (!DoesAsWell(request, judge, *option, *fastest)) continue;
    if (chosen == nullptr || IsBetter(request, judge, *option, *chosen)) chosen = option;
  }
  return chosen;
}

// Every layer once, in order, and every slice.
bool IsWhole(const Gang& gang, uint32_t layers) {
  uint32_t next = 0;
  for (const GangStage& stage : gang.stages) {
    uint64_t slices = 0;
    for (const uint32_t width : stage.widths) slices += width;
    if (stage.begin != next || stage.end <= stage.begin || slices != stage.slice_count) {
      return false;
    }
    next = stage.end;
  }
  return next == layers;
}

// Slices of unequal width, and whole experts, are only on nodes whose engines cut so.
bool MayCutSo(const Gang& gang, const GangJudge& judge) {
  for (const GangStage& stage : gang.stages) {
    if (stage.whole_experts != gang.whole_experts()) return false;
    for (const size_t node : stage.nodes) {
      const bool deals = DealsOutExperts(judge.model(), judge.candidates()[node]);
      if (stage.whole_experts && !deals) return false;
    }
    const auto [least, most] = std::minmax_element(stage.widths.begin(), stage.widths.end());
    if (*least == *most) continue;
    for (const size_t node : stage.nodes) {
      if (!judge.candidates()[node].traits.uneven_tensor()) return false;
    }
  }
  return true;
}

Fabric FabricOf(const v1::Plan& plan) {
  Fabric fabric;
  const Backend backend = BackendNamed(plan.backend());
  if (!IsRdma(backend)) return fabric;
  fabric.backend = backend;
  if (TopologyNamed(plan.backend_topology()) == Topology::kRing) fabric.topology = Topology::kRing;
  return fabric;
}

// Adds what `part` gives to `node`; false when its slices are none.
bool AddPart(const v1::Assignment& part, size_t node, uint32_t tp, GangStage* stage) {
  const bool sliced = part.slice_count() > 0;
  if (sliced && (part.slice_begin() >= part.slice_end() || part.slice_end() > part.slice_count())) {
    return false;
  }
  stage->nodes.push_back(node);
  stage->widths.push_back(sliced ? part.slice_end() - part.slice_begin() : 1);
  stage->slice_count = sliced ? part.slice_count() : tp;
  stage->begin = part.layer_begin();
  stage->end = part.layer_end();
  stage->whole_experts = part.whole_experts();
  return true;
}

// The plan in force, as it would be now; nothing when it is none of this model's any more or does
// not fit.
std::optional<Gang> GangInForce(const v1::PlanRequest& request, GangJudge& judge) {
  const v1::Plan& plan = request.current();
  const uint64_t ranks = uint64_t{plan.tp()} * plan.pp();
  if (ranks == 0 || static_cast<uint64_t>(plan.assignments_size()) != ranks) return {};
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < judge.candidates().size(); ++i) {
    index[judge.candidates()[i].node->node_id()] = i;
  }
  Gang gang;
  gang.fabric = FabricOf(plan);
  std::vector<size_t> nodes;
  for (const v1::Assignment& part : plan.assignments()) {
    const auto found = index.find(part.node_id());
    if (found == index.end()) return {};
    if (nodes.size() % plan.tp() == 0) gang.stages.emplace_back();
    if (!AddPart(part, found->second, plan.tp(), &gang.stages.back())) return {};
    nodes.push_back(found->second);
  }
  if (!IsWhole(gang, judge.model().layer_count()) ||
      std::set<size_t>(nodes.begin(), nodes.end()).size() != nodes.size() ||
      !TransportAllows(request.placement().transport(), gang.fabric)) {
    return {};
  }
  if (nodes.size() > 1 && !judge.links().Allows(gang.fabric, nodes)) return {};
  if (!MayShare(judge.candidates(), nodes, ShapeOf(gang))) return {};
  if (!ServesShape(judge.model(), ShapeOf(gang)) || !MayCutSo(gang, judge)) return {};
  if (judge.WorstFill(gang) > 1) return {};
  return gang;
}

// Does another node make it faster, or only let it fit? "1 node: does not fit, 2 nodes: 21.4
// tokens/s, 3 nodes: 21.2 tokens/s (no faster), 4 nodes: 27.3 tokens/s (+28 %)": the best of each
// number of nodes for one user, against the best of fewer.
std::string SpeedsByNodes(const v1::PlanRequest& request, GangJudge& judge,
                          const std::vector<GangOption>& options) {
  std::map<uint32_t, double> best;
  const uint32_t candidates = static_cast<uint32_t>(judge.candidates().size());
  for (uint32_t nodes = 1; nodes <= std::min(candidates, kAlwaysComparedNodes); ++nodes) {
    best[nodes] = 0;
  }
  for (const GangOption& option : options) {
    double& speed = best[option.gang.ranks()];
    speed = std::max(speed, TokensPerSecondOfOne(judge, request, option.gang));
  }
  std::vector<std::string> parts;
  double fastest = 0;
  for (const auto& [nodes, speed] : best) {
    std::string part = absl::StrCat(nodes, nodes == 1 ? " node: " : " nodes: ");
    // Where the search leaves ranges out (gang_search.h) not finding one is no proof.
    if (speed == 0 && candidates > kExactNodesMax) continue;
    if (speed == 0) {
      const v1::Reason why = WhyNotShape(judge, {1, nodes}, request.placement().transport());
      part += why.code() == reasons::kMemoryShort ? "does not fit" : "not possible";
    } else if (fastest == 0) {
      part += SpeedText(speed);
    } else if (speed < fastest * (1 + kNoFaster)) {
      absl::StrAppend(&part, SpeedText(speed), " (no faster)");
    } else {
      absl::StrAppend(&part, SpeedText(speed),
                      absl::StrFormat(" (+%.0f %%)", 100 * (speed / fastest - 1)));
    }
    fastest = std::max(fastest, speed);
    parts.push_back(std::move(part));
  }
  return absl::StrJoin(parts, ", ");
}

// Of long contexts: what is left of the speed when the window is full.
std::optional<v1::Reason> SpeedAtFullContext(const v1::PlanRequest& request, GangJudge& judge,
                                             const Gang& gang) {
  const uint32_t context = judge.serving().context_tokens;
  if (request.brief() || context < kLongContext) return {};
  ServingLoad full = judge.serving();
  full.predicted_positions = context;
  GangJudge later(judge.model(), judge.candidates(), judge.links(), full, judge.parameters());
  return MakeReason(reasons::kPredicted,
                    absl::StrCat("with its context of ", context, " full, one user would get ",
                                 SpeedText(TokensPerSecondOfOne(later, request, gang))));
}

// What the options want to be best, of one gang: "27.3 tokens/s", "145 tokens/s for all users", "a
// fullest node at 62 %".
std::string Merit(const v1::PlanRequest& request, GangJudge& judge, const Gang& gang) {
  switch (request.placement().optimize()) {
    case v1::OPTIMIZE_MEMORY:
      return absl::StrFormat("a fullest node at %.0f %%", 100 * judge.WorstFill(gang));
    case v1::OPTIMIZE_THROUGHPUT:
      return absl::StrCat(SpeedText(Predict(judge, gang, request).users_tokens_per_second()),
                          " for all users");
    default:
      return SpeedText(TokensPerSecondOfOne(judge, request, gang));
  }
}

std::string WhyOneNode(const v1::PlanRequest& request, const std::vector<GangOption>& options,
                       size_t candidates) {
  if (candidates == 1) return "one node can be used, and it fits there";
  const bool divides = std::any_of(options.begin(), options.end(), [](const GangOption& option) {
    return option.gang.ranks() > 1;
  });
  if (!divides) return "it fits on one node; no way to divide it over more was found";
  switch (request.placement().optimize()) {
    case v1::OPTIMIZE_MEMORY:
      return absl::StrFormat(
          "it fits on one node, and more nodes would not leave the fullest one %.0f %% emptier",
          100 * kWorthwhileSpace);
    case v1::OPTIMIZE_THROUGHPUT:
      return absl::StrFormat(
          "it fits on one node, and more nodes would not generate %.0f %% more for all users: "
          "predictions are off by as much",
          100 * kWorthwhileGain);
    default:
      return absl::StrFormat(
          "it fits on one node, and more nodes would not make a token %.0f %% faster: predictions "
          "are off by as much",
          100 * kWorthwhileGain);
  }
}

std::string WhyThisSize(const v1::PlanRequest& request, const std::vector<GangOption>& options,
                        const ShapeOptions& placement, const GangOption& chosen,
                        size_t candidates) {
  const uint32_t ranks = chosen.gang.ranks();
  if (request.placement().world_size() == ranks)
    return absl::StrCat(RanksWere(ranks), " asked for");
  if (request.recovering() && request.placement().world_size() > 0) {
    return absl::StrCat(RanksWere(request.placement().world_size()),
                        " asked for, which are not to be had on the ", candidates,
                        candidates == 1 ? " node" : " nodes", " there now; ", ranks,
                        ranks == 1 ? " serves instead" : " serve instead");
  }
  if (placement.exact() == ranks)
    return absl::StrCat("all ", ranks, " nodes that were named hold a part");
  if (ranks == 1) return WhyOneNode(request, options, candidates);
  uint32_t fewest = ranks;
  bool requested = false;  // away, those with fewer
  for (const GangOption& option : options) {
    if (placement.Allows(ShapeOf(option.gang), 0)) fewest = std::min(fewest, option.gang.ranks());
    requested = requested || option.gang.ranks() < ranks;
  }
  if (fewest == ranks) {
    return absl::StrCat(ranks, " is the fewest ranks that fit",
                        requested ? " in the way that was asked for" : "");
  }
  switch (request.placement().optimize()) {
    case v1::OPTIMIZE_MEMORY:
      return absl::StrCat(ranks, " ranks leave the fullest node the most memory");
    case v1::OPTIMIZE_THROUGHPUT:
      return absl::StrCat(ranks, " ranks generate the most for all users together");
    default:
      return absl::StrCat(ranks, " ranks make each token faster than fewer would");
  }
}

std::string WhyThisWay(const v1::PlanRequest& request, const std::vector<GangOption>& options,
                       const GangOption& chosen, GangJudge& judge) {
  const bool tensor = chosen.gang.tp() > 1;
  const std::string way = tensor ? "tensor" : "pipeline";
  const v1::Parallelism asked = request.placement().parallelism();
  if (asked == (tensor ? v1::PARALLELISM_TENSOR : v1::PARALLELISM_PIPELINE)) {
    return absl::StrCat(way, " parallel was asked for");
  }
  const GangOption* other = nullptr;
  for (const GangOption& option : options) {
    if (option.gang.ranks() != chosen.gang.ranks() || &option == &chosen) continue;
    if (other == nullptr || Value(request, option) < Value(request, *other)) other = &option;
  }
  if (other != nullptr) {
    return absl::StrCat(way, " parallel over ", FabricName(chosen.gang.fabric), " gives ",
                        Merit(request, judge, chosen.gang), ", ", ShapeName(ShapeOf(other->gang)),
                        " over ", FabricName(other->gang.fabric), " ",
                        Merit(request, judge, other->gang));
  }
  const uint32_t ranks = chosen.gang.ranks();
  const Shape not_found = tensor ? Shape{1, ranks} : Shape{ranks, 1};
  return absl::StrCat(way, " parallel; ", ShapeName(not_found), " is not possible: ",
                      WhyNotShape(judge, not_found, request.placement().transport()).message());
}

// "up to 2 of 11 groups of 64 columns", "up to 256 of 512 columns".
std::string WidestPart(const v1::ModelDescription& model, const Gang& cut) {
  uint64_t widest = 0;
  for (const GangStage& stage : cut.stages) {
    for (size_t i = 0; i < stage.nodes.size(); ++i) {
      widest = std::max(widest, CutOf(model, stage.SliceOf(i)).inner);
    }
  }
  const uint64_t group =
      model.quantization().bits() == 0 ? 1 : std::max(1u, model.quantization().group_size());
  if (group == 1) {
    return absl::StrCat("up to ", widest, " of ", model.intermediate_size(), " columns");
  }
  return absl::StrCat("up to ", widest / group, " of ", model.intermediate_size() / group,
                      " groups of ", group, " columns");
}

// What makes a token slow where ranks hold whole experts.
std::string WhyWholeWaits(const GangJudge& judge, const Gang& dealt) {
  const uint32_t active = judge.model().experts_active();
  const size_t first = dealt.stages.front().nodes.front();
  if (judge.candidates()[first].kind == ComputeKind::kGpu && active < kSortedChoices) {
    return absl::StrCat("since each GPU would compute all ", active, " of a token, its own or not");
  }
  double most = 0;
  for (const GangStage& stage : dealt.stages) {
    most = std::max(most, judge.MostChosenExperts(stage));
  }
  return absl::StrFormat(
      "since a layer waits for the rank with most, of a token's %u experts %.1f on average", active,
      most);
}

// Of a tensor split of a model with experts: why they are dealt out whole, or cut by width.
std::optional<v1::Reason> WhyThisCut(const v1::PlanRequest& request, GangJudge& judge,
                                     const GangOption& chosen) {
  const Gang& gang = chosen.gang;
  if (gang.tp() == 1 || judge.model().experts() < 2) return {};
  const std::string merit = Merit(request, judge, gang);
  if (!chosen.otherwise.has_value()) {
    if (!gang.whole_experts()) return {};  // the other way is unknown to the engines, or too large
    return MakeReason(reasons::kChosen,
                      "ranks hold whole experts: cut by width, the parts would not fit");
  }
  const std::string other = Merit(request, judge, *chosen.otherwise);
  if (gang.whole_experts()) {
    return MakeReason(
        reasons::kChosen,
        absl::StrCat("ranks hold whole experts, which gives ", merit, "; each expert cut by width ",
                     other, ", since ranks get ", WidestPart(judge.model(), *chosen.otherwise)));
  }
  return MakeReason(reasons::kChosen, absl::StrCat("each expert is cut by width, which gives ",
                                                   merit, "; whole ones ", other, ", ",
                                                   WhyWholeWaits(judge, *chosen.otherwise)));
}

// Is it, by the goal, so much better than what is in force that moving is worth it?
bool IsWorthMoving(const v1::PlanRequest& request, GangJudge& judge, GangSearch& search,
                   const GangOption& option, const Gang& in_force) {
  const GangOption now{in_force, search.ValueOf(in_force)};
  const double gain = Value(request, now) / Value(request, option) - 1;
  return gain > kWorthMoving &&
         LoadSeconds(judge, option.gang, kTypicalDiskRate) < gain * kMovePaysWithinSeconds;
}

// What the assumed and published latencies of jaccl were reached with (runtime/supervisor/
// launch_environment.h has the source of the figures).
std::optional<v1::Reason> AssumesFastSynch(const Gang& gang) {
  if (gang.ranks() < 2 || gang.fabric.backend != Backend::kJaccl) return {};
  return MakeReason(
      reasons::kPredicted,
      "it assumes MLX's fast synchronisation over jaccl (metal_fast_synch: auto or on); without it "
      "a collective of 8 KB was seen to take 275 us instead of 21");
}

v1::Reason OthersWait(uint32_t users, uint32_t at_once) {
  std::string text = absl::StrCat("of ", users, " users ", at_once, at_once == 1 ? " is" : " are",
                                  " answered at once, the others wait: ");
  if (at_once == kAnsweredAtOnceMax) {
    v1::Reason most =
        MakeReason(reasons::kPredicted,
                   absl::StrCat(text, "one replica of a model answers no more at the same time"));
    most.set_remedy("load it with more --replicas where there are nodes for them");
    return most;
  }
  v1::Reason few =
      MakeReason(reasons::kPredicted, absl::StrCat(text, "there is memory planned for ", at_once,
                                                   at_once == 1 ? " sequence" : " sequences"));
  few.set_remedy(
      absl::StrCat("ask for ", std::min(users, kAnsweredAtOnceMax), " sequences at once"));
  return few;
}

}  // namespace

PlanChoice ChoosePlan(const v1::PlanRequest& request, GangJudge& judge, GangSearch& search,
                      const ShapeOptions& placement) {
  PlanChoice choice;
  const std::vector<GangOption>& options = search.Options();
  const GangOption* best = nullptr;
  for (uint32_t level = 0; level < placement.levels() && best == nullptr; ++level) {
    best = BestAt(request, judge, options, placement, level);
  }
  if (best == nullptr) return choice;
  const std::optional<Gang> in_force = GangInForce(request, judge);
  if (in_force.has_value() && placement.Allows(ShapeOf(*in_force), 0) &&
      !IsWorthMoving(request, judge, search, *best, *in_force)) {
    choice.gang = in_force;
    choice.reasons.push_back(
        MakeReason(reasons::kChosen,
                   absl::StrFormat("it is where it runs now; the best other plan would be %s "
                                   "instead of %s, not worth loading it again",
                                   SpeedText(TokensPerSecondOfOne(judge, request, best->gang)),
                                   SpeedText(TokensPerSecondOfOne(judge, request, *in_force)))));
  } else {
    choice.option = best;
    choice.gang = best->gang;
    choice.reasons.push_back(
        MakeReason(reasons::kChosen,
                   WhyThisSize(request, options, placement, *best, judge.candidates().size())));
    if (best->gang.ranks() > 1) {
      choice.reasons.push_back(
          MakeReason(reasons::kChosen, WhyThisWay(request, options, *best, judge)));
    }
    if (auto cut = WhyThisCut(request, judge, *best); cut.has_value()) {
      choice.reasons.push_back(*std::move(cut));
    }
  }
  choice.reasons.push_back(MakeReason(
      reasons::kChosen, absl::StrFormat("the fullest node uses %.0f %% of what it can give",
                                        100 * judge.WorstFill(*choice.gang))));
  if (judge.candidates().size() > 1 && !request.brief()) {
    choice.reasons.push_back(
        MakeReason(reasons::kPredicted,
                   absl::StrCat("one user would get: ", SpeedsByNodes(request, judge, options))));
  }
  if (auto fast = AssumesFastSynch(*choice.gang); fast.has_value() && !request.brief()) {
    choice.reasons.push_back(*std::move(fast));
  }
  if (auto full = SpeedAtFullContext(request, judge, *choice.gang); full.has_value()) {
    choice.reasons.push_back(*std::move(full));
  }
  const uint32_t at_once = std::min(judge.serving().sequences, kAnsweredAtOnceMax);
  if (request.placement().users() > at_once && !request.brief()) {
    choice.reasons.push_back(OthersWait(request.placement().users(), at_once));
  }
  return choice;
}

v1::Reason WhyNotChosen(GangJudge& judge, const GangOption& option, const GangOption* chosen,
                        const ShapeOptions& placement, double tokens_per_second) {
  std::string text =
      absl::StrFormat("would fit, filling its fullest node to %.0f %%, and give %s",
                      100 * judge.WorstFill(option.gang), SpeedText(tokens_per_second));
  if (!placement.Allows(ShapeOf(option.gang), 0)) {
    absl::StrAppend(&text, "; it is not what was asked for");
  } else if (chosen != nullptr) {
    absl::StrAppend(&text, "; ", ShapeName(ShapeOf(chosen->gang)), " was preferred");
  }
  return MakeReason(reasons::kNotChosen, text);
}

}  // namespace macrame::planner
