#pragma once

// Models and clusters to plan with, for tests.

#include <cstdint>
#include <string>
#include <vector>

#include "macrame/v1/plan.pb.h"

namespace macrame::planner {

inline constexpr uint64_t kGiB = 1ULL << 30;

// The bundled model: six layers, eight heads, 4-bit.
v1::ModelDescription SmallModel();

// A model of `total_bytes` in `layers` equal layers, 95 % of them divisible, with 64 heads and 8
// key-value heads of 128.
v1::ModelDescription LargeModel(const std::string& name, uint64_t total_bytes, uint32_t layers);

// A mixture of experts: `total_bytes`, nine tenths of them in 128 experts of which 8 are chosen.
v1::ModelDescription MixtureModel(const std::string& name, uint64_t total_bytes, uint32_t layers);

// A cable for RDMA between each two of the nodes.
void AddMesh(const std::vector<std::string>& ids, v1::PlanRequest* request);
void AddLink(const std::string& a, const std::string& b, const std::vector<std::string>& backends,
             v1::LinkMedium medium, v1::PlanRequest* request);

// A Mac with a GPU of which models may use `usable_bytes`.
v1::PlannerNode Node(const std::string& id, uint64_t usable_bytes);

v1::PlanRequest Request(v1::ModelDescription model, std::vector<v1::PlannerNode> nodes);

}  // namespace macrame::planner
