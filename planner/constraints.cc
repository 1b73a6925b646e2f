#include "planner/constraints.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "planner/chip_table.h"
#include "planner/planner.h"
#include "planner/saturating.h"
#include "proto/bytes.h"
#include "proto/reasons.h"
#include "proto/serving_limits.h"

namespace macrame::planner {
namespace {

constexpr uint64_t kModelBytesMax = 1ULL << 60;
constexpr uint32_t kDimensionMax = 1U << 24;
constexpr size_t kIdPrefixMin = 4;

using MaybeReason = std::optional<v1::Reason>;

MaybeReason RefuseExcluded(const v1::PlannerNode& node, const v1::PlanRequest& request) {
  const auto& requested = request.placement().node_ids();
  const bool named =
      std::any_of(requested.begin(), requested.end(),
                  [&](const std::string& wanted) { return Means(wanted, node, request); });
  for (const std::string& excluded : request.placement().excluded_node_ids()) {
    if (!Means(excluded, node, request)) continue;
    return MakeReason(reasons::kNodeExcluded,
                      absl::StrCat(NodeName(node),
                                   named ? " was asked for and excluded as well, so it is left out"
                                         : " was excluded"),
                      node.node_id());
  }
  if (requested.empty() || named) return {};
  return MakeReason(reasons::kNodeExcluded,
                    absl::StrCat(NodeName(node), " is not among the nodes asked for"),
                    node.node_id());
}

MaybeReason RefuseOtherTenants(const v1::PlannerNode& node, const v1::PlanRequest& request) {
  if (node.tenant().empty() || node.tenant() == request.placement().tenant()) return {};
  return MakeReason(
      reasons::kNodeDedicated,
      // Without its name: whoever plans may be another tenant.
      absl::StrCat(NodeName(node), " is dedicated to a tenant that this model is not loaded for"),
      node.node_id());
}

MaybeReason RefuseUnschedulable(const v1::PlannerNode& node, const v1::PlanRequest&) {
  if (node.schedulable()) return {};
  const std::string why =
      node.unschedulable_reason().empty() ? "not alive" : node.unschedulable_reason();
  return MakeReason(reasons::kNodeNotAlive, absl::StrCat(NodeName(node), " takes no ranks: ", why),
                    node.node_id());
}

MaybeReason RefuseWithoutFiles(const v1::PlannerNode& node, const v1::PlanRequest& request) {
  if (node.has_model_files() || request.files_may_be_fetched()) return {};
  return MakeReason(
      reasons::kModelNotOnNode,
      absl::StrCat(NodeName(node), " does not have the files of ", request.model().name()),
      node.node_id());
}

// Asked before the files: a node without the engine does not count a model's files as one.
MaybeReason RefuseWithoutEngine(const v1::PlannerNode& node, const v1::PlanRequest& request) {
  const auto& names = node.engine_names();
  const std::string& engine = request.model().engine();
  if (!engine.empty()) {
    if (std::find(names.begin(), names.end(), engine) != names.end()) return {};
    v1::Reason reason =
        MakeReason(reasons::kEngineMissing,
                   absl::StrCat(NodeName(node), " has no ", engine, ", which serves ",
                                request.model().architecture(), " models"),
                   node.node_id());
    reason.set_remedy(absl::StrCat("install it there (python3 -m venv ~/.macrame/mlx-lm; ",
                                   "~/.macrame/mlx-lm/bin/pip install ", engine, "; on Linux '",
                                   engine, "[cpu]') and restart its agent"));
    return reason;
  }
  if (std::any_of(names.begin(), names.end(),
                  [](const std::string& name) { return name == "mlx"; })) {
    return {};
  }
  return MakeReason(reasons::kEngineMissing, absl::StrCat(NodeName(node), " has no MLX engine"),
                    node.node_id());
}

MaybeReason RefuseNarrowKv(const v1::PlannerNode& node, const v1::PlanRequest& request) {
  const uint32_t bits = request.placement().kv_bits();
  if (bits == 0 || bits == kKvBitsDefault) return {};
  const bool is_cpu = ComputeKindOf(node) == ComputeKind::kCpu;
  const bool is_wide_enough = !is_cpu || bits != kKvBitsFewest;
  if (request.model().engine().empty() && node.traits().narrow_kv() && is_wide_enough) return {};
  if (!request.model().engine().empty()) {
    v1::Reason reason =
        MakeReason(reasons::kKvBitsUnsupported,
                   absl::StrCat("a KV cache of ", bits, " bits was asked for; ",
                                request.model().engine(), " keeps the default only"));
    reason.set_remedy(kDefaultKvRemedy);
    return reason;
  }
  const std::string why =
      is_wide_enough
          ? " runs another version of the agent, which may not keep so few"
          : absl::StrCat(" computes on its CPU, where ", kKvBitsNarrow, " are the fewest");
  v1::Reason reason =
      MakeReason(reasons::kKvBitsUnsupported,
                 absl::StrCat("a KV cache of ", bits, " bits was asked for; ", NodeName(node), why),
                 node.node_id());
  reason.set_remedy(is_wide_enough
                        ? kDefaultKvRemedy
                        : "load it with --kv-bits 8, or name nodes with a GPU (--nodes)");
  return reason;
}

// Of models that take none, and of those that can't draft.
MaybeReason RefuseDraft(const v1::PlannerNode&, const v1::PlanRequest& request) {
  if (!request.has_draft_model()) return {};
  for (const v1::ModelDescription* model : {&request.model(), &request.draft_model()}) {
    if (model->engine().empty() && model->fixed_state_bytes() == 0) continue;
    return MakeReason(
        reasons::kDraftModelUnusable,
        absl::StrCat("no drafts of ", request.draft_model().name(), ": ", model->name(),
                     model->engine().empty()
                         ? " has layers with a state, which can't be taken back"
                         : absl::StrCat(" is served by ", model->engine(), ", without drafts")));
  }
  return {};
}

MaybeReason RefuseUnderPressure(const v1::PlannerNode& node, const v1::PlanRequest&) {
  if (node.memory_pressure() != v1::MEMORY_PRESSURE_CRITICAL) return {};
  v1::Reason reason = MakeReason(
      reasons::kMemoryShort, absl::StrCat("memory pressure on ", NodeName(node), " is critical"),
      node.node_id());
  reason.set_remedy("close programs on that node until its memory pressure falls");
  return reason;
}

MaybeReason RefuseTooManyRanks(const Shape& shape, const v1::ModelDescription&,
                               const std::vector<Candidate>& candidates) {
  if (shape.ranks() <= candidates.size()) return {};
  return MakeReason(reasons::kTooFewNodes,
                    absl::StrCat(ShapeName(shape), " needs ", shape.ranks(), " nodes, ",
                                 candidates.size(), " can be used"));
}

MaybeReason RefuseTooManyStages(const Shape& shape, const v1::ModelDescription& model,
                                const std::vector<Candidate>&) {
  if (shape.pp <= model.layer_count()) return {};
  return MakeReason(
      reasons::kTooFewLayers,
      absl::StrCat(model.layer_count(), model.layer_count() == 1 ? " layer" : " layers",
                   " can't be laid on ", shape.pp, " stages"));
}

bool AllMay(const std::vector<Candidate>& candidates, bool (v1::EngineTraits::*trait)() const) {
  return std::all_of(candidates.begin(), candidates.end(),
                     [&](const Candidate& c) { return (c.traits.*trait)(); });
}

// Without slices of unequal width, every rank gets as many heads as every other.
MaybeReason RefuseCutHeads(const Shape& shape, const v1::ModelDescription& model,
                           const std::vector<Candidate>& candidates) {
  const bool uneven = MayCutUnevenly(candidates, shape.tp);
  if (shape.tp == 1 || (uneven && shape.tp <= kSliceCountMax)) return {};
  const uint32_t kv_heads = model.kv_heads();
  // One that all others share is held by every rank.
  const uint32_t heads =
      kv_heads == 1 ? model.attention_heads() : std::gcd(model.attention_heads(), kv_heads);
  if (heads % shape.tp == 0) return {};
  const std::string counts = absl::StrCat(model.attention_heads(), " attention heads and ",
                                          model.kv_heads(), " key-value heads");
  return MakeReason(
      reasons::kHeadsIndivisible,
      absl::StrCat(counts, " can't be divided by ", shape.tp,
                   uneven ? "" : ", and the engine cuts layers into equal slices only"));
}

// The output projections of attention and feed-forward are cut along their inputs, so each rank's
// share of those has to be whole quantisation groups.
MaybeReason RefuseCutGroups(const Shape& shape, const v1::ModelDescription& model,
                            const std::vector<Candidate>& candidates) {
  if (shape.tp == 1 || MayCutUnevenly(candidates, shape.tp)) return {};
  const uint32_t slices = SliceCount(model);
  if (SlicesFor(model, shape.tp, /*uneven=*/false) > 0) return {};
  const uint64_t group =
      model.quantization().bits() == 0 ? 1 : std::max(1u, model.quantization().group_size());
  const uint64_t attention = uint64_t{model.attention_heads()} * model.head_dim();
  for (const uint64_t width : {attention, uint64_t{model.intermediate_size()}}) {
    if (width % (group * shape.tp) == 0) continue;
    return MakeReason(reasons::kGroupsIndivisible,
                      group == 1
                          ? absl::StrCat("a width of ", width, " can't be divided by ", shape.tp)
                          : absl::StrCat("a width of ", width, " cut ", shape.tp,
                                         " ways is not whole groups of ", group));
  }
  return MakeReason(reasons::kGroupsIndivisible,
                    absl::StrCat("heads and groups can be cut into ", slices,
                                 " equal slices together, not by ", shape.tp));
}

MaybeReason RefuseUnserved(const Shape& shape, const v1::ModelDescription& model,
                           const std::vector<Candidate>&) {
  if (ServesShape(model, shape)) return {};
  const std::string engine = model.engine().empty() ? "the engine" : model.engine();
  v1::Reason reason =
      MakeReason(reasons::kEngineLimit,
                 absl::StrCat(engine, " serves ", model.architecture(), " models without ",
                              shape.pp > 1 ? "pipelines" : "tensor splits"));
  reason.set_remedy(model.splits().tensor()
                        ? "leave out --parallelism, or ask for --parallelism tensor"
                        : "leave out --ranks and --parallelism: one node serves it alone");
  return reason;
}

// Engines that never divide a layer, or never make a pipeline.
MaybeReason RefuseUnableEngines(const Shape& shape, const v1::ModelDescription&,
                                const std::vector<Candidate>& candidates) {
  const auto able = [&](bool (v1::EngineTraits::*lacks)() const) {
    return static_cast<uint32_t>(
        std::count_if(candidates.begin(), candidates.end(),
                      [&](const Candidate& one) { return !(one.traits.*lacks)(); }));
  };
  for (const bool tensor : {true, false}) {
    if ((tensor ? shape.tp : shape.pp) == 1) continue;
    const uint32_t count =
        able(tensor ? &v1::EngineTraits::no_tensor : &v1::EngineTraits::no_pipeline);
    if (count >= shape.ranks()) continue;
    return MakeReason(
        reasons::kEngineLimit,
        absl::StrCat("the engines of ", count, " of ", candidates.size(), " nodes can ",
                     tensor ? "share a layer between ranks" : "be stages of a pipeline", ", and ",
                     shape.ranks(), " are needed"));
  }
  return {};
}

MaybeReason RefuseMixing(const Shape& shape, const v1::ModelDescription&,
                         const std::vector<Candidate>& candidates) {
  if (shape.tp == 1 || shape.pp == 1) return {};
  if (AllMay(candidates, &v1::EngineTraits::tensor_in_pipeline)) return {};
  return MakeReason(reasons::kEngineLimit, "the engine can't make a pipeline of tensor groups");
}

constexpr std::array kNodeConstraints = {
    NodeConstraint{"placement", RefuseExcluded},     NodeConstraint{"tenant", RefuseOtherTenants},
    NodeConstraint{"alive", RefuseUnschedulable},    NodeConstraint{"engine", RefuseWithoutEngine},
    NodeConstraint{"files", RefuseWithoutFiles},     NodeConstraint{"kv_bits", RefuseNarrowKv},
    NodeConstraint{"pressure", RefuseUnderPressure}, NodeConstraint{"draft", RefuseDraft},
};

constexpr std::array kShapeConstraints = {
    ShapeConstraint{"nodes", RefuseTooManyRanks},    ShapeConstraint{"layers", RefuseTooManyStages},
    ShapeConstraint{"heads", RefuseCutHeads},        ShapeConstraint{"groups", RefuseCutGroups},
    ShapeConstraint{"mixing", RefuseMixing},         ShapeConstraint{"splits", RefuseUnserved},
    ShapeConstraint{"engines", RefuseUnableEngines},
};

}  // namespace

std::string ShapeName(const Shape& shape) {
  if (shape.ranks() == 1) return "one rank";
  if (shape.tp == 1) return absl::StrCat("pipeline parallel over ", shape.pp);
  const std::string tensor = absl::StrCat("tensor parallel over ", shape.tp);
  return shape.pp == 1 ? tensor : absl::StrCat(tensor, " in each of ", shape.pp, " stages");
}

Candidate CandidateOf(const v1::PlannerNode& node) {
  Candidate candidate;
  candidate.node = &node;
  candidate.budget_bytes = BudgetBytes(node);
  candidate.kind = ComputeKindOf(node);
  candidate.traits = node.traits();
  candidate.speed = SpeedOf(node);
  return candidate;
}

bool ServesShape(const v1::ModelDescription& model, const Shape& shape) {
  if (!model.has_splits()) return true;
  const v1::ServedSplits& splits = model.splits();
  if (shape.tp > 1 && shape.pp > 1) return splits.tensor_in_pipeline();
  return (shape.tp == 1 || splits.tensor()) && (shape.pp == 1 || splits.pipeline());
}

void KeepToSplits(const v1::ModelDescription& model, Candidate& candidate) {
  v1::EngineTraits& traits = candidate.traits;
  traits.set_whole_experts(traits.whole_experts() && model.engine().empty());
  if (!model.has_splits()) return;
  traits.set_uneven_tensor(traits.uneven_tensor() && model.splits().uneven_tensor());
  traits.set_tensor_in_pipeline(traits.tensor_in_pipeline() && model.splits().tensor_in_pipeline());
}

bool MayCutUnevenly(const std::vector<Candidate>& candidates, uint32_t ranks) {
  return std::count_if(candidates.begin(), candidates.end(), [](const Candidate& one) {
           return one.traits.uneven_tensor();
         }) >= static_cast<ptrdiff_t>(ranks);
}

uint32_t SlicesOver(const v1::ModelDescription& model, const std::vector<Candidate>& candidates,
                    const std::vector<size_t>& nodes) {
  const bool uneven = std::all_of(nodes.begin(), nodes.end(), [&](size_t node) {
    return candidates[node].traits.uneven_tensor();
  });
  return SlicesFor(model, static_cast<uint32_t>(nodes.size()), uneven);
}

bool MayShare(const std::vector<Candidate>& candidates, const std::vector<size_t>& nodes,
              const Shape& shape) {
  return std::none_of(nodes.begin(), nodes.end(), [&](size_t node) {
    const v1::EngineTraits& traits = candidates[node].traits;
    return (shape.tp > 1 && traits.no_tensor()) || (shape.pp > 1 && traits.no_pipeline());
  });
}

bool IsDescribed(const v1::PlannerNode& node) {
  return !node.hostname().empty() && node.hostname() == node.node_id();
}

bool DealsOutExperts(const v1::ModelDescription& model, const Candidate& candidate) {
  return model.experts() > 1 && candidate.traits.whole_experts() &&
         candidate.traits.uneven_tensor();
}

std::string NodeName(const v1::PlannerNode& node) {
  if (IsDescribed(node)) return node.hostname();
  const std::string id = node.node_id().substr(0, 8);
  return node.hostname().empty() ? id : absl::StrCat(node.hostname(), " (", id, ")");
}

uint64_t BudgetBytes(const v1::PlannerNode& node) {
  const uint64_t unpromised =
      SaturatingSubtract(node.memory_usable_bytes(),
                         SaturatingAdd(node.memory_reserved_bytes(), GpuReserveBytes(node)));
  if (node.memory_available_bytes() == 0) return unpromised;
  return std::min(unpromised, node.memory_available_bytes());
}

uint64_t FullEnoughBytes(const v1::PlannerNode& node, uint64_t budget_bytes) {
  if (node.memory_limit_is_configured()) return budget_bytes;  // its user has said how much
  const uint64_t total = std::max(node.memory_total_bytes(), node.memory_usable_bytes());
  return std::max<uint64_t>(1, SaturatingSubtract(budget_bytes, total / kKeptForUserPart));
}

std::optional<v1::Reason> ValidateModel(const v1::ModelDescription& model) {
  std::string what;
  const uint32_t layers = model.layer_count();
  uint64_t bytes = SaturatingAdd(model.embedding_bytes(),
                                 SaturatingAdd(model.head_bytes(), model.final_norm_bytes()));
  if (layers == 0 || layers > static_cast<uint32_t>(kLayersMax)) {
    what = absl::StrCat(layers, " layers");
  } else if (static_cast<uint32_t>(model.layer_bytes_size()) != layers ||
             static_cast<uint32_t>(model.layer_divisible_bytes_size()) != layers) {
    what = absl::StrCat(layers, " layers, but sizes of ", model.layer_bytes_size());
  } else {
    for (uint32_t i = 0; i < layers; ++i) {
      bytes = SaturatingAdd(bytes, model.layer_bytes(static_cast<int>(i)));
      if (model.layer_divisible_bytes(static_cast<int>(i)) >
          model.layer_bytes(static_cast<int>(i))) {
        what = absl::StrCat("layer ", i, " with more divisible bytes than bytes");
      }
    }
  }
  for (const uint32_t dimension :
       {model.hidden_size(), model.attention_heads(), model.kv_heads(), model.head_dim()}) {
    if (dimension == 0 || dimension > kDimensionMax) {
      what = absl::StrCat("a dimension of ", dimension);
    }
  }
  for (const uint32_t dimension : {model.intermediate_size(), model.vocab_size()}) {
    if (dimension > kDimensionMax) what = absl::StrCat("a dimension of ", dimension);
  }
  if (bytes > kModelBytesMax) what = "more weights than any disk holds";
  if (what.empty()) return {};
  return MakeReason(reasons::kModelConfigInvalid,
                    absl::StrCat("the description of ", model.name(), " has ", what));
}

std::span<const NodeConstraint> NodeConstraints() { return kNodeConstraints; }
std::span<const ShapeConstraint> ShapeConstraints() { return kShapeConstraints; }

bool Names(std::string_view wanted, const v1::PlannerNode& node) {
  if (wanted.empty()) return false;
  if (wanted == node.node_id() || wanted == node.hostname()) return true;
  return wanted.size() >= kIdPrefixMin && node.node_id().rfind(std::string(wanted), 0) == 0;
}

bool Means(const std::string& wanted, const v1::PlannerNode& node, const v1::PlanRequest& request) {
  if (!Names(wanted, node)) return false;
  if (wanted == node.node_id() || wanted == node.hostname()) return true;
  return std::none_of(request.nodes().begin(), request.nodes().end(),
                      [&](const v1::PlannerNode& other) {
                        return wanted == other.node_id() || wanted == other.hostname();
                      });
}

bool PlacementLeavesOut(const v1::PlannerNode& node, const v1::PlanRequest& request) {
  return RefuseExcluded(node, request).has_value();
}

ShapeOptions::ShapeOptions(const v1::PlanRequest& request, uint32_t candidates,
                           uint32_t named_nodes)
    : way_(request.placement().parallelism()),
      exact_(request.placement().world_size()),
      recovering_(request.recovering()) {
  const bool named_way = way_ != v1::PARALLELISM_AUTO;
  if (exact_ == 0 && named_way) exact_ = named_nodes;
  if (exact_ == 0 && named_way && candidates > 1) fewest_ = 2;
}

bool ShapeOptions::WayAllows(const Shape& shape) const {
  if (shape.ranks() == 1 || way_ == v1::PARALLELISM_AUTO) return true;
  return way_ == v1::PARALLELISM_TENSOR ? shape.pp == 1 : shape.tp == 1;
}

uint32_t ShapeOptions::levels() const {
  if (!recovering_) return 1;
  return way_ == v1::PARALLELISM_AUTO ? 2 : 3;
}

bool ShapeOptions::Allows(const Shape& shape, uint32_t level) const {
  const uint32_t ranks = shape.ranks();
  if (level == 0) return WayAllows(shape) && (exact_ > 0 ? ranks == exact_ : ranks >= fewest_);
  if (level == 1) return WayAllows(shape) && (exact_ > 0 ? ranks < exact_ : true);
  return true;  // serving in another way is better than not serving
}

}  // namespace macrame::planner
