#pragma once

// The planner's rules, each a small named object. Hard ones refuse a node or a shape with a Reason;
// soft ones order the shapes that are left. Their names appear in explanations and tests.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "macrame/v1/plan.pb.h"
#include "planner/memory_model.h"

namespace macrame::planner {

// A node that may take a rank, and what it can give.
struct Candidate {
  const v1::PlannerNode* node = nullptr;
  uint64_t budget_bytes = 0;
  ComputeKind kind = ComputeKind::kGpu;
};

// One way to divide the model.
struct Shape {
  v1::Parallelism parallelism = v1::PARALLELISM_PIPELINE;
  uint32_t ranks = 1;
  bool operator==(const Shape&) const = default;
};

// "one rank", "pipeline parallel over 3", "tensor parallel over 2".
std::string ShapeName(const Shape& shape);
// "mini-2 (3f2a…)": the host's name and the id's beginning.
std::string NodeName(const v1::PlannerNode& node);

// What models may still take on a node: the smaller of what is not promised yet and what is free.
// Zero `memory_available_bytes` means that it is not known, and the promise alone counts.
uint64_t BudgetBytes(const v1::PlannerNode& node);

// Nothing when the description is sound enough to calculate with; else MODEL_CONFIG_INVALID.
std::optional<v1::Reason> ValidateModel(const v1::ModelDescription& model);

struct NodeConstraint {
  std::string_view name;
  std::optional<v1::Reason> (*refuse)(const v1::PlannerNode& node, const v1::PlanRequest& request);
};
// In the order in which they are asked; a node is refused by the first that does.
std::span<const NodeConstraint> NodeConstraints();

struct ShapeConstraint {
  std::string_view name;
  std::optional<v1::Reason> (*refuse)(const Shape& shape, const v1::ModelDescription& model,
                                      uint32_t candidates);
};
std::span<const ShapeConstraint> ShapeConstraints();

// Does `wish` (of Wishes.node_ids) mean this node? Its id, its host name, or the first 4 or more
// digits of its id.
bool Names(std::string_view wish, const v1::PlannerNode& node);

// True when every pair of candidates has a link over which collectives are cheap.
bool AllLinksHaveRdma(const v1::PlanRequest& request, const std::vector<Candidate>& candidates);

// The shapes to consider, best first by the soft rules: fewer ranks (unless a number is wished
// for), then pipeline or tensor by the links. `named_nodes`: how many nodes the wishes name.
std::vector<Shape> ShapesByPreference(const v1::PlanRequest& request, uint32_t candidates,
                                      uint32_t named_nodes, bool rdma);

}  // namespace macrame::planner
