#pragma once

// Does a shape fit these nodes, and how: the assignments of each rank, or the reason why not.

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "macrame/v1/plan.pb.h"
#include "planner/constraints.h"
#include "planner/layer_partition.h"
#include "planner/memory_model.h"

namespace macrame::planner {

class ShapeFitter {
 public:
  // `candidates` are put in order of budget, largest first, equals as they came. All arguments must
  // outlive this.
  ShapeFitter(const v1::ModelDescription& model, const ServingLoad& load,
              std::vector<Candidate> candidates);

  using Assignments = std::vector<v1::Assignment>;
  std::variant<Assignments, v1::Reason> Fit(const Shape& shape);

  const std::vector<Candidate>& candidates() const { return candidates_; }

 private:
  std::variant<Assignments, v1::Reason> FitPipeline(uint32_t stages);
  std::variant<Assignments, v1::Reason> FitTensor(uint32_t degree);
  v1::Assignment Assign(const MemoryModel& memory, const Candidate& candidate, uint32_t rank,
                        uint32_t begin, uint32_t end, bool embedding, bool head) const;
  v1::Reason PipelineShort(uint32_t stages) const;

  const v1::ModelDescription& model_;
  const ServingLoad load_;
  std::vector<Candidate> candidates_;
  MemoryModel whole_;  // tensor degree 1
  LayerPartition partition_;
};

}  // namespace macrame::planner
