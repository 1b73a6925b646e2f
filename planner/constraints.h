#pragma once

// The planner's hard rules, each a small named object that refuses a node or a shape with a Reason;
// their names appear in explanations and tests. Soft ones order what is left: planner.cc,
// plan_choice.h.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "macrame/v1/plan.pb.h"
#include "planner/cost_model.h"
#include "planner/memory_model.h"
#include "planner/tensor_cut.h"

namespace macrame::planner {

// A node that may take a rank, and what it can give.
struct Candidate {
  const v1::PlannerNode* node = nullptr;
  uint64_t budget_bytes = 0;
  ComputeKind kind = ComputeKind::kGpu;
  RankSpeed speed;
  v1::EngineTraits traits;
  bool may_enter = true;  // has what the entry rank needs besides: a draft model's files
};
Candidate CandidateOf(const v1::PlannerNode& node);

// One way to divide the model: `pp` stages of `tp` ranks.
struct Shape {
  uint32_t tp = 1;
  uint32_t pp = 1;
  uint32_t ranks() const { return tp * pp; }
  bool operator==(const Shape&) const = default;
};

// Whether the engine that serves the model divides it so; ModelDescription.splits.
bool ServesShape(const v1::ModelDescription& model, const Shape& shape);
// What a node may do, without what the model's engine does not.
void KeepToSplits(const v1::ModelDescription& model, Candidate& candidate);

// "one rank", "pipeline parallel over 3", "tensor parallel over 2", "tensor parallel over 2 in each
// of 3 stages".
std::string ShapeName(const Shape& shape);
// "mini-2 (3f2a…)": the host's name and the id's beginning.
std::string NodeName(const v1::PlannerNode& node);

// What models may still take on a node: the smaller of what is not promised yet and what is free.
// Zero `memory_available_bytes` means that it is not known, and the promise alone counts.
uint64_t BudgetBytes(const v1::PlannerNode& node);

// Of what a laptop could give, what is taken without need: an eighth of its memory, beyond what its
// system keeps, stays for the programs of the one who works on it.
uint64_t FullEnoughBytes(const v1::PlannerNode& node, uint64_t budget_bytes);
inline constexpr uint64_t kKeptForUserPart = 8;  // of a laptop's memory

// Nothing when the description is sound enough to calculate with; else MODEL_CONFIG_INVALID.
std::optional<v1::Reason> ValidateModel(const v1::ModelDescription& model);

struct NodeConstraint {
  std::string_view name;
  std::optional<v1::Reason> (*refuse)(const v1::PlannerNode& node, const v1::PlanRequest& request);
};
// In the order in which they are asked; a node is refused by the first that does.
std::span<const NodeConstraint> NodeConstraints();

// What a shape is refused for whatever memory there is.
struct ShapeConstraint {
  std::string_view name;
  std::optional<v1::Reason> (*refuse)(const Shape& shape, const v1::ModelDescription& model,
                                      const std::vector<Candidate>& candidates);
};
std::span<const ShapeConstraint> ShapeConstraints();

// For nodes that can't keep as few KV bits as are asked for.
inline constexpr char kDefaultKvRemedy[] =
    "load it with --kv-bits 16 (the default), or bring all nodes to one version";

// Does `wanted` (of PlacementOptions.node_ids) mean this node? Its id, its host name, or the first
// 4 or more digits of its id.
bool Names(std::string_view wanted, const v1::PlannerNode& node);

// The same among all nodes of a request: a name that one node bears whole means no other, whatever
// their ids begin with.
bool Means(const std::string& wanted, const v1::PlannerNode& node, const v1::PlanRequest& request);

// Is the node not among those that the options name, or among those that they exclude?
bool PlacementLeavesOut(const v1::PlannerNode& node, const v1::PlanRequest& request);

// Are there so many whose engines can give ranks slices of unequal width?
bool MayCutUnevenly(const std::vector<Candidate>& candidates, uint32_t ranks);

// The slices that one stage over these nodes is cut into (SlicesFor), of unequal width where the
// engines of all of them can; 0: they can't share it.
uint32_t SlicesOver(const v1::ModelDescription& model, const std::vector<Candidate>& candidates,
                    const std::vector<size_t>& nodes);

// May all of these be ranks of a gang of this shape, by what their engines can?
bool MayShare(const std::vector<Candidate>& candidates, const std::vector<size_t>& nodes,
              const Shape& shape);

// Is the cluster of a description in a file, where there is nothing to look at? Its nodes have no
// ids but their names.
bool IsDescribed(const v1::PlannerNode& node);

// Can its engine give ranks whole experts of the model?
bool DealsOutExperts(const v1::ModelDescription& model, const Candidate& candidate);

// What the options say about shapes, softened step by step when a deployment lost nodes.
class ShapeOptions {
 public:
  // `candidates`: nodes that can take ranks; `named_nodes`: how many nodes the options name.
  ShapeOptions(const v1::PlanRequest& request, uint32_t candidates, uint32_t named_nodes);
  // 1, or more when recovering: level 0 is what was asked for.
  uint32_t levels() const;
  bool Allows(const Shape& shape, uint32_t level) const;
  // At this level more ranks are better than fewer: as near as can be to what was asked for.
  bool WantsMost(uint32_t level) const { return level == 1 && exact_ > 0; }
  // Shapes of exactly so many ranks were asked for; 0: any.
  uint32_t exact() const { return exact_; }

 private:
  bool WayAllows(const Shape& shape) const;
  v1::Parallelism way_;
  uint32_t exact_ = 0;
  uint32_t fewest_ = 1;
  bool recovering_;
};

}  // namespace macrame::planner
