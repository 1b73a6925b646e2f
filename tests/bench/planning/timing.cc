#include "tests/bench/planning/timing.h"

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/offline/catalogue.h"
#include "planner/offline/cluster_file.h"
#include "planner/placement.h"
#include "planner/planner.h"
#include "tests/sim/planner_growth.h"
#include "tests/sim/reconciler_growth.h"
#include "tests/sim/stopwatch.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

constexpr uint64_t kGB = 1'000'000'000;
constexpr double kGoal32Ms = 20;
constexpr double kGoalPlacementMs = 1000;
constexpr double kGoalMeshMs = 20;
constexpr double kGoalMeshOf8Ms = 5;

// Desks of four with cables between them, beside machines without; memory as people buy it.
v1::PlanRequest Cluster(uint32_t count) {
  std::mt19937_64 random(count);
  v1::PlanRequest request;
  const std::vector<uint64_t> sizes = {24, 48, 64, 96, 128, 256, 512};
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t gib = sizes[random() % sizes.size()];
    v1::PlannerNode node = Node("node-" + std::to_string(i), gib * kGiB / 4 * 3);
    node.set_chip(gib > 128           ? "Apple M3 Ultra"
                  : random() % 2 == 0 ? "Apple M4 Max"
                                      : "Apple M4 Pro");
    node.set_gpu_cores(40);
    *request.add_nodes() = node;
  }
  for (uint32_t desk = 0; desk + 3 < count; desk += 8) {
    std::vector<std::string> ids;
    for (uint32_t i = desk; i < desk + 4; ++i) ids.push_back("node-" + std::to_string(i));
    AddMesh(ids, &request);
  }
  return request;
}

// Parts of four that don't reach each other.
v1::PlanRequest PartedCluster(uint32_t count) {
  v1::PlanRequest request = Cluster(count);
  for (uint32_t a = 0; a < count; ++a) {
    for (uint32_t b = a + 1; b < count; ++b) {
      if (a / 4 == b / 4) continue;
      AddLink("node-" + std::to_string(a), "node-" + std::to_string(b), {},
              v1::LINK_MEDIUM_ETHERNET, &request);
    }
  }
  return request;
}

using tests::MillisecondsOf;

template <typename Work>
double MedianOf(int times, const Work& work) {
  std::vector<double> taken;
  for (int i = 0; i < times; ++i) taken.push_back(MillisecondsOf(work));
  std::sort(taken.begin(), taken.end());
  return taken[taken.size() / 2];
}

double PlacementMs(uint32_t nodes, uint32_t models, uint32_t* placed) {
  PlacementRequest request;
  request.cluster = Cluster(nodes);
  std::mt19937_64 random(models);
  for (uint32_t i = 0; i < models; ++i) {
    WantedDeployment wanted;
    wanted.name = "model-" + std::to_string(i);
    wanted.model = MixtureModel(wanted.name, (4 + random() % 400) * kGB, 64);
    request.deployments.push_back(std::move(wanted));
  }
  return MillisecondsOf([&] {
    const PlacementResult result = PlaceAll(request);
    *placed = 0;
    for (const PlacedDeployment& one : result.deployments) *placed += one.plan.has_plan() ? 1 : 0;
  });
}

// Each two joined by a cable, `kinds` different machines among them.
v1::PlanRequest FullMesh(size_t nodes, size_t kinds) {
  static const std::vector<std::string> machines = {
      "mac-studio-m3-ultra-512gb", "mac-studio-m3-ultra-256gb", "mac-studio-m4-max-128gb",
      "mac-studio-m4-max-48gb",    "mac-mini-m4-pro-64gb",      "mac-studio-m3-ultra-96gb",
      "mac-mini-m4-pro-48gb",      "mac-studio-m4-max-64gb"};
  std::string yaml = "nodes:\n";
  for (size_t i = 0; i < nodes; ++i) {
    absl::StrAppend(&yaml, "- {name: n", i, ", machine: ", machines[i % kinds], "}\n");
  }
  v1::PlanRequest request = ReadClusterFile(yaml + "links: mesh\n")->request;
  const auto entries = CatalogueWith("");
  *request.mutable_model() = DescribeForPlan(**FindEntry(*entries, "DeepSeek-V3.1"), 4);
  return request;
}

// Of a real model whose first layers are unlike the others.
bool MeasureMeshes() {
  bool met = true;
  std::printf(
      "\n| in a full mesh | alike, ms | of two kinds, ms | no two alike, ms |\n"
      "| --- | --- | --- | --- |\n");
  for (const size_t nodes : {5u, 6u, 8u}) {
    std::vector<double> taken;
    for (const size_t kinds : {size_t{1}, size_t{2}, nodes}) {
      const v1::PlanRequest request = FullMesh(nodes, kinds);
      taken.push_back(MedianOf(9, [&] { PlanModel(request); }));
    }
    std::printf("| %zu | %.1f | %.1f | %.1f |\n", nodes, taken[0], taken[1], taken[2]);
    const double goal = nodes == 8 ? kGoalMeshOf8Ms : kGoalMeshMs;
    met = met && taken[0] < goal && taken[1] < goal;
  }
  return met;
}

}  // namespace

int MeasureTimes() {
  bool met = true;
  std::printf(
      "| nodes | model fits one node, ms | needs several, ms | fits nowhere, ms |\n"
      "| --- | --- | --- | --- |\n");
  for (const uint32_t nodes : {4u, 8u, 16u, 32u, 64u, 256u, 1000u, 5000u}) {
    v1::PlanRequest request = Cluster(nodes);
    std::vector<double> taken;
    for (const uint64_t bytes : {40 * kGB, 700 * kGB, uint64_t{nodes} * 600 * kGB}) {
      *request.mutable_model() = MixtureModel("model", bytes, 64);
      taken.push_back(MedianOf(nodes > 500 ? 3 : 9, [&] { PlanModel(request); }));
    }
    std::printf("| %u | %.1f | %.1f | %.1f |\n", nodes, taken[0], taken[1], taken[2]);
    if (nodes == 32) met = met && *std::max_element(taken.begin(), taken.end()) < kGoal32Ms;
  }
  for (const uint32_t nodes : {32u, 256u}) {
    v1::PlanRequest request = PartedCluster(nodes);
    std::vector<double> taken;
    for (const uint64_t bytes : {40 * kGB, 700 * kGB, 4000 * kGB}) {
      *request.mutable_model() = MixtureModel("model", bytes, 64);
      taken.push_back(MedianOf(9, [&] { PlanModel(request); }));
    }
    std::printf("| %u, in parts of 4 | %.1f | %.1f | %.1f |\n", nodes, taken[0], taken[1],
                taken[2]);
    if (nodes == 32) met = met && *std::max_element(taken.begin(), taken.end()) < kGoal32Ms;
  }
  met = MeasureMeshes() && met;
  std::printf("\n| nodes | models | placed | all together, ms |\n| --- | --- | --- | --- |\n");
  for (const auto& [nodes, models] :
       std::vector<std::pair<uint32_t, uint32_t>>{{4, 3}, {32, 10}, {1000, 100}, {5000, 100}}) {
    uint32_t placed = 0;
    const double taken = PlacementMs(nodes, models, &placed);
    std::printf("| %u | %u | %u | %.0f |\n", nodes, models, placed, taken);
    if (nodes == 1000) met = met && taken < kGoalPlacementMs;
  }
  std::printf(
      "\n| nodes | deployments | rounds | placed | refused | moved | without need | median "
      "round, ms | slowest, ms |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const auto& [nodes, deployments] :
       std::vector<std::pair<uint32_t, uint32_t>>{{50, 20}, {500, 100}, {5000, 100}}) {
    const tests::GrowthReport report = tests::Grow({1, nodes, deployments, 10});
    std::printf("| %u | %u | 10 | %u | %u | %u | %u | %.0f | %.0f |%s\n", nodes, deployments,
                report.plans, report.refused, report.moved, report.moved_without_need,
                report.median_round_ms, report.slowest_round_ms, report.fault.c_str());
    met = met && report.fault.empty();
  }
  std::printf(
      "\n| nodes | deployments | plans | launches | without need | evictions | served | refused | "
      "ready again, s | plan, median ms | slowest, ms | pass, ms |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const auto& [nodes, deployments] :
       std::vector<std::pair<uint32_t, uint32_t>>{{10, 8}, {50, 40}, {500, 100}, {5000, 50}}) {
    const tests::ReconcilerGrowthReport report =
        tests::GrowReconciled({1, nodes, deployments, 5, 180});
    std::printf("| %u | %u | %u | %u | %u | %u | %u | %u | %.0f | %.1f | %.1f | %.2f |%s\n", nodes,
                deployments, report.plans, report.launches, report.launches_without_need,
                report.evictions, report.served, report.refused, report.slowest_convergence_s,
                report.median_plan_ms, report.slowest_plan_ms, report.median_pass_ms,
                report.fault.c_str());
    met = met && report.fault.empty() && report.launches_without_need == 0;
  }
  return met ? 0 : 1;
}

}  // namespace macrame::planner
