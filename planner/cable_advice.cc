#include "planner/cable_advice.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/chip_table.h"
#include "planner/layer_balance.h"
#include "planner/prediction.h"
#include "proto/reasons.h"

namespace macrame::planner {
namespace {

using Nodes = std::vector<size_t>;

constexpr Fabric kMesh{Backend::kJaccl, Topology::kMesh};
constexpr Fabric kRing{Backend::kJaccl, Topology::kRing};
constexpr uint32_t kThunderboltWithRdma = 5;
// Each pair of so many nodes is tried: those of the plan first, then the largest.
constexpr size_t kNodesMax = 6;

struct Worth {
  double speed = 0;  // tokens a second, of one user or of all, as the goal says
  Gang gang;
  size_t a = 0, b = 0;
};

class CableTrial {
 public:
  CableTrial(const v1::PlanRequest& request, GangJudge& judge, const Gang& taken,
             const ShapeOptions& placement)
      : request_(request), judge_(judge), taken_(taken), placement_(placement) {
    for (const GangStage& stage : taken.stages) {
      for (const size_t node : stage.nodes) Look(node);
    }
    for (size_t node = 0; node < judge.candidates().size(); ++node) {
      if (nodes_.size() == kNodesMax) break;
      Look(node);
    }
  }

  Worth Best() {
    Worth best;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (size_t j = i + 1; j < nodes_.size(); ++j) Try(nodes_[i], nodes_[j], &best);
    }
    return best;
  }

  double SpeedOf(GangJudge& judge, const Gang& gang) const {
    if (request_.placement().optimize() != v1::OPTIMIZE_THROUGHPUT) {
      return TokensPerSecondOfOne(judge, request_, gang);
    }
    return Predict(judge, gang, request_).users_tokens_per_second();
  }

 private:
  void Look(size_t node) {
    if (nodes_.size() == kNodesMax || std::find(nodes_.begin(), nodes_.end(), node) != nodes_.end())
      return;
    if (CouldTakeCable(judge_.candidates()[node], node, judge_.links())) nodes_.push_back(node);
  }

  void Try(size_t a, size_t b, Worth* best) {
    const LinkCosts& now = judge_.links();
    if (now.HasRdma(a, b, kMesh.backend) || !now.Reaches(a, b)) return;
    const LinkCosts with = now.Joined(kMesh, a, b);
    GangJudge judge(judge_.model(), judge_.candidates(), with, judge_.serving(),
                    judge_.parameters());
    const auto offer = [&](const Gang& gang) {
      Nodes nodes;
      for (const GangStage& stage : gang.stages) {
        nodes.insert(nodes.end(), stage.nodes.begin(), stage.nodes.end());
      }
      if (nodes.size() < 2 || !placement_.Allows(ShapeOf(gang), 0) ||
          !ServesShape(judge.model(), ShapeOf(gang)) || !with.Allows(gang.fabric, nodes) ||
          judge.WorstFill(gang) > 1 || !MayShare(judge.candidates(), nodes, ShapeOf(gang))) {
        return;
      }
      const double speed = SpeedOf(judge, gang);
      if (speed > best->speed) *best = {speed, gang, a, b};
    };
    for (const Fabric& fabric : {kMesh, kRing}) {
      Gang same = taken_;
      same.fabric = fabric;
      offer(same);
    }
    Nodes mesh = {a, b};
    for (const size_t next : nodes_) {
      if (next == a || next == b || mesh.size() >= with.mesh_ranks_max()) continue;
      Nodes wider = mesh;
      wider.push_back(next);
      if (with.Allows(kMesh, wider)) mesh = std::move(wider);
    }
    for (size_t count = 2; count <= mesh.size(); ++count) {
      const Nodes nodes(mesh.begin(), mesh.begin() + static_cast<ptrdiff_t>(count));
      if (const auto gang = Split(judge, nodes); gang.has_value()) offer(*gang);
      if (const auto gang = Chain(judge, nodes); gang.has_value()) offer(*gang);
    }
  }

  std::optional<Gang> Split(GangJudge& judge, const Nodes& nodes) const {
    const uint32_t slices = SlicesOver(judge.model(), judge.candidates(), nodes);
    if (slices == 0) return {};
    const uint32_t layers = judge.model().layer_count();
    auto widths = judge.Widths(nodes, slices, 0, layers, 1, false);
    if (!widths.has_value()) return {};
    return Gang{{GangStage{nodes, *std::move(widths), slices, 0, layers}}, kMesh};
  }

  std::optional<Gang> Chain(GangJudge& judge, const Nodes& nodes) const {
    const uint32_t layers = judge.model().layer_count();
    const auto fill = [&](uint32_t stage, uint32_t begin, uint32_t end) {
      return judge.Fill(nodes[stage], {}, begin, end, end == layers);
    };
    const auto ends = BalanceLayers(static_cast<uint32_t>(nodes.size()), layers, fill, 1);
    if (!ends.has_value()) return {};
    Gang gang;
    gang.fabric = kMesh;
    for (size_t i = 0; i < nodes.size(); ++i) {
      gang.stages.push_back({{nodes[i]}, {1}, 1, i == 0 ? 0 : (*ends)[i - 1], (*ends)[i]});
    }
    return gang;
  }

  const v1::PlanRequest& request_;
  GangJudge& judge_;
  const Gang& taken_;
  const ShapeOptions& placement_;
  Nodes nodes_;
};

// Pairs of nodes that exchange tensors: of one stage all with all, and of neighbouring stages.
std::vector<std::pair<size_t, size_t>> TalkingPairs(const Gang& gang) {
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t stage = 0; stage < gang.stages.size(); ++stage) {
    const Nodes& nodes = gang.stages[stage].nodes;
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (size_t j = i + 1; j < nodes.size(); ++j) pairs.emplace_back(nodes[i], nodes[j]);
      if (stage + 1 == gang.stages.size()) continue;
      for (const size_t next : gang.stages[stage + 1].nodes) pairs.emplace_back(nodes[i], next);
    }
  }
  return pairs;
}

}  // namespace

bool CouldTakeCable(const Candidate& candidate, size_t node, const LinkCosts& links) {
  const size_t cables = links.RdmaNeighbours(node, kMesh.backend).size();
  if (candidate.kind != ComputeKind::kGpu || cables + 1 >= links.mesh_ranks_max()) return false;
  if (!HasBackend(candidate.traits, NameOf(kMesh.backend))) return false;
  const Chip* chip = FindChip(candidate.node->chip());
  return chip == nullptr ? cables > 0 : chip->thunderbolt >= kThunderboltWithRdma;
}

std::optional<v1::Reason> AdviseOnCables(const v1::PlanRequest& request, GangJudge& judge,
                                         const Gang& taken, const ShapeOptions& placement) {
  if (request.placement().optimize() == v1::OPTIMIZE_MEMORY ||
      !TransportAllows(request.placement().transport(), kMesh)) {
    return {};
  }
  CableTrial trial(request, judge, taken, placement);
  const Worth best = trial.Best();
  const double now = trial.SpeedOf(judge, taken);
  if (best.speed < now * (1 + kWorthACable)) return {};
  const bool is_there = judge.links().HasThunderbolt(best.a, best.b);
  const bool all_users = request.placement().optimize() == v1::OPTIMIZE_THROUGHPUT;
  v1::Reason reason = MakeReason(
      reasons::kPredicted,
      absl::StrCat("RDMA over ", is_there ? "the Thunderbolt cable" : "a Thunderbolt 5 cable",
                   " between ", NodeName(*judge.candidates()[best.a].node), " and ",
                   NodeName(*judge.candidates()[best.b].node), " would give ",
                   all_users ? "all users " : "", SpeedText(best.speed), " (",
                   ShapeName(ShapeOf(best.gang)), ") instead of ", SpeedText(now)));
  if (is_there && !IsDescribed(*judge.candidates()[best.a].node)) {
    reason.set_remedy("'clusterctl doctor' says what RDMA lacks there");
  }
  return reason;
}

std::optional<v1::Reason> AdviseOnWireless(const v1::PlanRequest& request, GangJudge& judge,
                                           const Gang& taken) {
  if (taken.fabric.is_rdma()) return {};
  LinkCosts wired = judge.links();
  std::vector<std::string> pairs;
  std::string way;  // of the first
  for (const auto& [a, b] : TalkingPairs(taken)) {
    if (!wired.IsWireless(a, b) && !wired.IsVpn(a, b)) continue;
    if (pairs.empty()) way = wired.IsVpn(a, b) ? "a VPN" : "Wi-Fi";
    wired = wired.Joined({}, a, b);
    pairs.push_back(absl::StrCat(NodeName(*judge.candidates()[a].node), " and ",
                                 NodeName(*judge.candidates()[b].node)));
  }
  if (pairs.empty()) return {};
  const size_t more = pairs.size() - 1;
  GangJudge over_wires(judge.model(), judge.candidates(), wired, judge.serving(),
                       judge.parameters());
  return MakeReason(
      reasons::kPredicted,
      absl::StrCat(
          "it goes over ", way, " between ", pairs.front(),
          more > 0 ? absl::StrCat(", and ", more, more > 1 ? " more pairs" : " more pair") : "",
          ", whose speed varies; over a wire of 1 Gb/s it would give ",
          SpeedText(TokensPerSecondOfOne(over_wires, request, taken)), " instead of ",
          SpeedText(TokensPerSecondOfOne(judge, request, taken))));
}

}  // namespace macrame::planner
