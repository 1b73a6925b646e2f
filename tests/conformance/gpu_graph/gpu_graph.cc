// What rankd has a GPU do for a step, counted without one, and held to limits.json.
//
//   gpu_graph FOLDER [--mlx-lm TABLE] [--update] [--print] [--only WORD]
//
// FOLDER: this one, with models.json and limits.json. TABLE: mlx-lm's counts, of count_mlx_lm.py.
// Exit 0: every row is within its limits, and no model would be served by the stand-in, which
// computes nothing; 1: some are not; 2: a wrong call, or MLX has changed.

#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "proto/check.h"
#include "runtime/model/device_proof.h"
#include "runtime/model/families/config_file.h"
#include "runtime/model/weights/weight_files.h"
#include "tests/conformance/gpu_graph/graph_models.h"
#include "tests/conformance/gpu_graph/graph_steps.h"
#include "tests/conformance/gpu_graph/graph_table.h"
#include "tests/conformance/gpu_graph/stand_in_gpu.h"

namespace macrame::gpu_graph {
namespace {

// From so many choices of experts on, their products are to be sorted.
constexpr int kSortedFrom = 64;
constexpr uint64_t kProofBytesMax = uint64_t{1} << 30;

struct Call {
  std::string folder, mlx_lm, only;
  bool updates = false, prints = false;
};

int TokensOf(const GraphModel& model, const std::string& shape) {
  if (shape == "decode-1") return 1;
  if (shape == "decode-8") return kStreams;
  return shape == "chunk" ? model.chunk : kStreams - 1 + model.chunk;
}

Row RowOf(const StepCount& count, int choices) {
  const DeviceWork& work = count.work;
  const int unsorted = work.expert_products - work.sorted_expert_products;
  return {{"operations", work.work()},
          {"views", work.all() - work.work()},
          {"scatters", work.scatters()},
          {"host_arrays", work.host_arrays},
          {"host_bytes", static_cast<double>(work.host_bytes)},
          {"copied_bytes", static_cast<double>(work.copied_bytes)},
          {"early_evaluations", count.early_evaluations},
          {"unsorted", choices >= kSortedFrom ? unsorted : 0},
          {"build_ms", count.build_ms}};
}

void CountModel(const GraphModel& model, const Call& call, Table& table) {
  const std::string folder = WriteModel(model);
  const auto config = runtime::engine::LoadModelConfig(folder);
  MACRAME_CHECK(config.ok()) << config.status().ToString();
  for (const std::string place : {"alone", "tensor", "experts", "narrow"}) {
    if (place == "experts" && config->experts.count == 0) continue;
    if (place == "narrow" && !model.is_large) continue;
    std::optional<CountedRank> rank;
    for (const std::string& shape : StepShapes()) {
      const std::string name = model.name + " " + place + " " + shape;
      if (name.find(call.only) == std::string::npos) continue;
      if (!rank.has_value()) rank.emplace(model, folder, place);
      const StepCount count = rank->Count(shape);
      table[name] = RowOf(count, TokensOf(model, shape) * config->experts.active);
      if (!call.prints) continue;
      std::printf("%s:", name.c_str());
      for (const auto& [operation, times] : count.work.operations) {
        std::printf(" %s %d", operation.c_str(), times);
      }
      std::printf("\n");
    }
  }
  std::filesystem::remove_all(folder);
}

// The stand-in computes nothing: whether a rank would serve with such a device.
bool IsTakenForSound(const GraphModel& model) {
  const std::string folder = WriteModel(model);
  const auto config = runtime::engine::LoadModelConfig(folder);
  MACRAME_CHECK(config.ok()) << config.status().ToString();
  const auto files = runtime::engine::WeightFiles::Open(folder);
  MACRAME_CHECK(files.ok()) << files.status().ToString();
  runtime::engine::ShardPlace place;
  place.layer_end = config->layer_count;
  const auto proven = runtime::engine::ProveDevice(
      {*config, place, *files, runtime::engine::EngineDevice::kGpu, 1, kProofBytesMax});
  std::filesystem::remove_all(folder);
  return proven.ok();
}

int Run(const Call& call) {
  BeginStandInGpu();
  Table table;
  std::vector<std::string> shown;
  for (const GraphModel& model : LargeModels(call.folder + "/models.json")) {
    CountModel(model, call, table);
    shown.push_back(model.name);
  }
  for (const GraphModel& model : FamilyModels()) {
    CountModel(model, call, table);
    if (call.prints || !call.only.empty()) shown.push_back(model.name);
  }
  const Table mlx_lm = call.mlx_lm.empty() ? Table() : ReadTable(call.mlx_lm);
  std::printf("%s", Printed(table, mlx_lm, shown).c_str());
  const Limits limits(call.folder + "/limits.json");
  if (call.updates) {
    limits.Update(table);
    std::printf("%zu rows written as limits\n", table.size());
    return 0;
  }
  for (const std::string& gain : limits.Gains(table)) std::printf("better: %s\n", gain.c_str());
  std::vector<std::string> faults = limits.Faults(table, mlx_lm);
  for (const GraphModel& model : FamilyModels()) {
    if (model.name.find(call.only) == std::string::npos || !IsTakenForSound(model)) continue;
    faults.push_back(model.name + ": a device that computes nothing passes the proof at the load");
  }
  for (const std::string& fault : faults) std::printf("WORSE: %s\n", fault.c_str());
  std::printf("gpu graph: %zu steps counted, %zu numbers above their goals or limits\n",
              table.size(), faults.size());
  return faults.empty() ? 0 : 1;
}

}  // namespace
}  // namespace macrame::gpu_graph

int main(int argc, char** argv) {
  macrame::gpu_graph::Call call;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--update") {
      call.updates = true;
    } else if (word == "--print") {
      call.prints = true;
    } else if (word == "--mlx-lm" && i + 1 < argc) {
      call.mlx_lm = argv[++i];
    } else if (word == "--only" && i + 1 < argc) {
      call.only = argv[++i];
    } else {
      call.folder = word;
    }
  }
  if (call.folder.empty()) {
    std::fprintf(stderr,
                 "usage: gpu_graph FOLDER [--mlx-lm TABLE] [--update] [--print] [--only WORD]\n");
    return 2;
  }
  try {
    return macrame::gpu_graph::Run(call);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_graph: %s\n", error.what());
    return 2;
  }
}
