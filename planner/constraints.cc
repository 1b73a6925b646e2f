#include "planner/constraints.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "planner/planner.h"
#include "planner/saturating.h"
#include "proto/bytes.h"
#include "proto/reasons.h"

namespace macrame::planner {
namespace {

constexpr uint64_t kModelBytesMax = 1ULL << 60;
constexpr uint32_t kDimensionMax = 1U << 24;
constexpr size_t kIdPrefixMin = 4;

using MaybeReason = std::optional<v1::Reason>;

MaybeReason RefuseExcluded(const v1::PlannerNode& node, const v1::PlanRequest& request) {
  const auto& wished = request.wishes().node_ids();
  if (wished.empty() || std::any_of(wished.begin(), wished.end(),
                                    [&](const std::string& wish) { return Names(wish, node); })) {
    return {};
  }
  return MakeReason("NODE_EXCLUDED",
                    absl::StrCat(NodeName(node), " is not among the nodes asked for"),
                    node.node_id());
}

MaybeReason RefuseUnschedulable(const v1::PlannerNode& node, const v1::PlanRequest&) {
  if (node.schedulable()) return {};
  const std::string why =
      node.unschedulable_reason().empty() ? "not alive" : node.unschedulable_reason();
  return MakeReason("NODE_NOT_ALIVE", absl::StrCat(NodeName(node), " takes no ranks: ", why),
                    node.node_id());
}

MaybeReason RefuseWithoutFiles(const v1::PlannerNode& node, const v1::PlanRequest& request) {
  if (node.has_model_files()) return {};
  return MakeReason(
      "MODEL_NOT_ON_NODE",
      absl::StrCat(NodeName(node), " does not have the files of ", request.model().name()),
      node.node_id());
}

MaybeReason RefuseWithoutEngine(const v1::PlannerNode& node, const v1::PlanRequest&) {
  const auto& names = node.engine_names();
  if (std::any_of(names.begin(), names.end(),
                  [](const std::string& name) { return name.rfind("mlx", 0) == 0; })) {
    return {};
  }
  return MakeReason("ENGINE_MISSING", absl::StrCat(NodeName(node), " has no MLX engine"),
                    node.node_id());
}

MaybeReason RefuseUnderPressure(const v1::PlannerNode& node, const v1::PlanRequest&) {
  if (node.memory_pressure() != v1::MEMORY_PRESSURE_CRITICAL) return {};
  v1::Reason reason = MakeReason(
      "MEMORY_SHORT", absl::StrCat("memory pressure on ", NodeName(node), " is critical"),
      node.node_id());
  reason.set_remedy("close programs on that node until its memory pressure falls");
  return reason;
}

MaybeReason RefuseTooManyRanks(const Shape& shape, const v1::ModelDescription&,
                               uint32_t candidates) {
  if (shape.ranks <= candidates) return {};
  return MakeReason("TOO_FEW_NODES", absl::StrCat(ShapeName(shape), " needs ", shape.ranks,
                                                  " nodes, ", candidates, " can be used"));
}

MaybeReason RefuseTooManyStages(const Shape& shape, const v1::ModelDescription& model, uint32_t) {
  if (shape.parallelism == v1::PARALLELISM_TENSOR || shape.ranks <= model.layer_count()) return {};
  return MakeReason("TOO_FEW_LAYERS", absl::StrCat(model.layer_count(), " layers can't be laid on ",
                                                   shape.ranks, " stages"));
}

MaybeReason RefuseCutHeads(const Shape& shape, const v1::ModelDescription& model, uint32_t) {
  if (shape.parallelism != v1::PARALLELISM_TENSOR || shape.ranks == 1) return {};
  if (model.attention_heads() % shape.ranks == 0 && model.kv_heads() % shape.ranks == 0) return {};
  return MakeReason("HEADS_INDIVISIBLE",
                    absl::StrCat(model.attention_heads(), " attention heads and ", model.kv_heads(),
                                 " key-value heads can't be divided by ", shape.ranks));
}

// The output projections of attention and feed-forward are cut along their inputs, so each rank's
// share of those has to be whole quantisation groups.
MaybeReason RefuseCutGroups(const Shape& shape, const v1::ModelDescription& model, uint32_t) {
  if (shape.parallelism != v1::PARALLELISM_TENSOR || shape.ranks == 1) return {};
  const uint64_t group =
      model.quantization().bits() == 0 ? 1 : std::max(1u, model.quantization().group_size());
  const uint64_t attention = uint64_t{model.attention_heads()} * model.head_dim();
  for (const uint64_t width : {attention, uint64_t{model.intermediate_size()}}) {
    if (width % (group * shape.ranks) == 0) continue;
    return MakeReason("GROUPS_INDIVISIBLE",
                      group == 1
                          ? absl::StrCat("a width of ", width, " can't be divided by ", shape.ranks)
                          : absl::StrCat("a width of ", width, " cut ", shape.ranks,
                                         " ways is not whole groups of ", group));
  }
  return {};
}

constexpr std::array kNodeConstraints = {
    NodeConstraint{"wishes", RefuseExcluded},        NodeConstraint{"alive", RefuseUnschedulable},
    NodeConstraint{"files", RefuseWithoutFiles},     NodeConstraint{"engine", RefuseWithoutEngine},
    NodeConstraint{"pressure", RefuseUnderPressure},
};

constexpr std::array kShapeConstraints = {
    ShapeConstraint{"nodes", RefuseTooManyRanks},
    ShapeConstraint{"layers", RefuseTooManyStages},
    ShapeConstraint{"heads", RefuseCutHeads},
    ShapeConstraint{"groups", RefuseCutGroups},
};

}  // namespace

std::string ShapeName(const Shape& shape) {
  if (shape.ranks == 1) return "one rank";
  const bool tensor = shape.parallelism == v1::PARALLELISM_TENSOR;
  return absl::StrCat(tensor ? "tensor" : "pipeline", " parallel over ", shape.ranks);
}

std::string NodeName(const v1::PlannerNode& node) {
  const std::string id = node.node_id().substr(0, 8);
  return node.hostname().empty() ? id : absl::StrCat(node.hostname(), " (", id, ")");
}

uint64_t BudgetBytes(const v1::PlannerNode& node) {
  const uint64_t unpromised =
      SaturatingSubtract(node.memory_usable_bytes(), node.memory_reserved_bytes());
  if (node.memory_available_bytes() == 0) return unpromised;
  return std::min(unpromised, node.memory_available_bytes());
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
  return MakeReason("MODEL_CONFIG_INVALID",
                    absl::StrCat("the description of ", model.name(), " has ", what));
}

std::span<const NodeConstraint> NodeConstraints() { return kNodeConstraints; }
std::span<const ShapeConstraint> ShapeConstraints() { return kShapeConstraints; }

bool Names(std::string_view wish, const v1::PlannerNode& node) {
  if (wish.empty()) return false;
  if (wish == node.node_id() || wish == node.hostname()) return true;
  return wish.size() >= kIdPrefixMin && node.node_id().rfind(std::string(wish), 0) == 0;
}

bool AllLinksHaveRdma(const v1::PlanRequest& request, const std::vector<Candidate>& candidates) {
  const auto linked = [&](const std::string& from, const std::string& to) {
    return std::any_of(
        request.links().begin(), request.links().end(), [&](const v1::PlannerLink& link) {
          return link.from_node_id() == from && link.to_node_id() == to &&
                 std::any_of(link.backends().begin(), link.backends().end(),
                             [](const std::string& b) { return b == "jaccl" || b == "verbs"; });
        });
  };
  for (size_t i = 0; i < candidates.size(); ++i) {
    for (size_t j = 0; j < candidates.size(); ++j) {
      if (i != j && !linked(candidates[i].node->node_id(), candidates[j].node->node_id())) {
        return false;
      }
    }
  }
  return candidates.size() > 1;
}

namespace {

// Both ways to divide over `ranks`, the preferred one first; only one when the user named it.
void AppendShapes(const v1::Wishes& wishes, uint32_t ranks, bool rdma, std::vector<Shape>* out) {
  const Shape pipeline{v1::PARALLELISM_PIPELINE, ranks};
  const Shape tensor{v1::PARALLELISM_TENSOR, ranks};
  if (ranks == 1) {
    out->push_back(pipeline);
  } else if (wishes.parallelism() == v1::PARALLELISM_PIPELINE) {
    out->push_back(pipeline);
  } else if (wishes.parallelism() == v1::PARALLELISM_TENSOR) {
    out->push_back(tensor);
  } else {
    out->push_back(rdma ? tensor : pipeline);
    out->push_back(rdma ? pipeline : tensor);
  }
}

}  // namespace

std::vector<Shape> ShapesByPreference(const v1::PlanRequest& request, uint32_t candidates,
                                      uint32_t named_nodes, bool rdma) {
  const v1::Wishes& wishes = request.wishes();
  const bool named_way = wishes.parallelism() != v1::PARALLELISM_AUTO;
  uint32_t exact = wishes.world_size();
  if (exact == 0 && named_way) exact = named_nodes;
  std::vector<Shape> shapes;
  if (exact > 0) {
    AppendShapes(wishes, exact, rdma, &shapes);
    if (!request.recovering()) return shapes;
    for (uint32_t ranks = std::min(exact - 1, candidates); ranks > 0; --ranks) {
      AppendShapes(wishes, ranks, rdma, &shapes);
    }
  } else {
    const uint32_t fewest = named_way && candidates > 1 ? 2 : 1;
    for (uint32_t ranks = fewest; ranks <= candidates; ++ranks) {
      AppendShapes(wishes, ranks, rdma, &shapes);
    }
    if (fewest > 1 && request.recovering()) AppendShapes(wishes, 1, rdma, &shapes);
  }
  if (named_way && request.recovering()) {
    // Serving in another way is better than not serving.
    for (uint32_t ranks = 2; ranks <= candidates; ++ranks) {
      AppendShapes(v1::Wishes(), ranks, rdma, &shapes);
    }
  }
  return shapes;
}

}  // namespace macrame::planner
