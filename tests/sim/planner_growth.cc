#include "tests/sim/planner_growth.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "planner/placement.h"
#include "planner/planner.h"
#include "tests/sim/stopwatch.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::tests {
namespace {

using planner::kGiB;

class Growth {
 public:
  explicit Growth(const GrowthOptions& options) : options_(options), random_(options.seed) {
    for (uint32_t i = 0; i < options.nodes; ++i) *request_.cluster.add_nodes() = DrawNode(i);
    for (uint32_t desk = 0; desk + 3 < options.nodes; desk += 6) {
      std::vector<std::string> ids;
      for (uint32_t i = desk; i < desk + 4; ++i) ids.push_back("node-" + std::to_string(i));
      planner::AddMesh(ids, &request_.cluster);
    }
  }

  GrowthReport Run() {
    std::vector<double> taken;
    for (uint32_t round = 0; round < options_.rounds && report_.fault.empty(); ++round) {
      Disturb();
      planner::PlacementResult result;
      taken.push_back(MillisecondsOf([&] { result = planner::PlaceAll(request_); }));
      Take(result);
    }
    std::sort(taken.begin(), taken.end());
    report_.median_round_ms = taken[taken.size() / 2];
    report_.slowest_round_ms = taken.back();
    return report_;
  }

 private:
  uint64_t Pick(uint64_t low, uint64_t high) {
    return std::uniform_int_distribution<uint64_t>(low, high)(random_);
  }

  v1::PlannerNode DrawNode(uint32_t number) {
    const std::vector<uint64_t> sizes = {18, 36, 48, 96, 192, 384};
    v1::PlannerNode node =
        planner::Node("node-" + std::to_string(number), sizes[Pick(0, sizes.size() - 1)] * kGiB);
    node.set_chip(Pick(0, 1) == 0 ? "Apple M4 Max" : "Apple M3 Ultra");
    node.set_gpu_cores(40);
    return node;
  }

  void Disturb() {
    // One node in fifty dies, half of the dead come back; what others run changes the free memory.
    for (v1::PlannerNode& node : *request_.cluster.mutable_nodes()) {
      if (node.schedulable()) {
        node.set_schedulable(Pick(0, 49) != 0);
      } else {
        node.set_schedulable(Pick(0, 1) == 0);
      }
    }
    for (planner::WantedDeployment& wanted : request_.deployments) {
      if (Pick(0, 19) == 0) wanted = Draw();
    }
    while (request_.deployments.size() < options_.deployments)
      request_.deployments.push_back(Draw());
  }

  planner::WantedDeployment Draw() {
    planner::WantedDeployment wanted;
    wanted.name = "model-" + std::to_string(++drawn_);
    const uint64_t bytes = Pick(2, 300) * 1'000'000'000;
    wanted.model = Pick(0, 1) == 0 ? planner::LargeModel(wanted.name, bytes, 48)
                                   : planner::MixtureModel(wanted.name, bytes, 48);
    wanted.replicas = Pick(0, 9) == 0 ? 2 : 1;
    wanted.priority = static_cast<int>(Pick(0, 2));
    return wanted;
  }

  void Fail(const std::string& fault) {
    if (report_.fault.empty()) report_.fault = fault;
  }

  void CheckPlan(const std::string& name, const v1::Plan& plan, uint32_t layers) {
    std::map<std::pair<uint32_t, uint32_t>, int> held;
    for (const v1::Assignment& part : plan.assignments()) {
      for (uint32_t layer = part.layer_begin(); layer < part.layer_end(); ++layer) {
        if (++held[{layer, part.tp_rank()}] > 1) Fail(name + ": a layer is held twice");
      }
      if (schedulable_.count(part.node_id()) == 0) Fail(name + ": on a dead node");
    }
    if (held.size() != size_t{layers} * plan.tp()) Fail(name + ": a layer is missing");
  }

  void Take(const planner::PlacementResult& result) {
    schedulable_.clear();
    std::map<std::string, uint64_t> left;
    for (const v1::PlannerNode& node : request_.cluster.nodes()) {
      left[node.node_id()] = node.memory_usable_bytes();
      if (node.schedulable()) schedulable_.insert(node.node_id());
    }
    size_t next = 0;
    for (planner::WantedDeployment& wanted : request_.deployments) {
      for (uint32_t replica = 0; replica < wanted.replicas; ++replica, ++next) {
        const planner::PlacedDeployment& placed = result.deployments[next];
        const v1::Plan& plan = placed.plan.plan();
        placed.plan.has_plan() ? ++report_.plans : ++report_.refused;
        if (placed.plan.has_plan()) CheckPlan(wanted.name, plan, wanted.model.layer_count());
        for (const auto& [node, bytes] : planner::BytesByNode(plan)) {
          if (bytes > left[node]) Fail(wanted.name + ": " + node + " is over its budget");
          left[node] -= std::min(left[node], bytes);
        }
        if (replica == 0) NoteMove(wanted, plan);
      }
    }
  }

  void NoteMove(planner::WantedDeployment& wanted, const v1::Plan& plan) {
    const auto before = planner::BytesByNode(wanted.in_force), after = planner::BytesByNode(plan);
    if (!before.empty() && !after.empty() && before != after) {
      ++report_.moved;
      const bool all_there = std::all_of(before.begin(), before.end(), [&](const auto& node) {
        return schedulable_.count(node.first) > 0;
      });
      if (all_there) ++report_.moved_without_need;
    }
    wanted.in_force = plan;
  }

  const GrowthOptions options_;
  std::mt19937_64 random_;
  planner::PlacementRequest request_;
  std::set<std::string> schedulable_;
  uint32_t drawn_ = 0;
  GrowthReport report_;
};

}  // namespace

GrowthReport Grow(const GrowthOptions& options) { return Growth(options).Run(); }

}  // namespace macrame::tests
