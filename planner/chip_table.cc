#include "planner/chip_table.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace macrame::planner {
namespace {

constexpr double kGiga = 1e9;

// Bandwidth by Apple's technical specifications. Arithmetic of a GPU core: 128 lanes × 2 operations
// × its clock; from M5 on a core has a matrix unit of about four times that.
constexpr std::array kChips = {
    Chip{"Apple M1", {7, 8}, {68.25, 68.25}, 327, 3, 16, 1},
    Chip{"Apple M1 Pro", {14, 16}, {200, 200}, 327, 4, 32, 1},
    Chip{"Apple M1 Max", {24, 32}, {400, 400}, 327, 4, 64, 1},
    Chip{"Apple M1 Ultra", {48, 64}, {800, 800}, 327, 4, 128, 1},
    Chip{"Apple M2", {8, 10}, {100, 100}, 358, 4, 24, 1},
    Chip{"Apple M2 Pro", {16, 19}, {200, 200}, 358, 4, 32, 1},
    Chip{"Apple M2 Max", {30, 38}, {400, 400}, 358, 4, 96, 1},
    Chip{"Apple M2 Ultra", {60, 76}, {800, 800}, 358, 4, 192, 1},
    Chip{"Apple M3", {8, 10}, {100, 100}, 353, 3, 24, 1},
    Chip{"Apple M3 Pro", {14, 18}, {150, 150}, 353, 4, 36, 1},
    Chip{"Apple M3 Max", {30, 40}, {300, 400}, 353, 4, 128, 1, {36, 96}},
    Chip{"Apple M3 Ultra", {60, 80}, {819, 819}, 353, 5, 512, 1},
    Chip{"Apple M4", {8, 10}, {120, 120}, 404, 4, 32, 0.5},
    Chip{"Apple M4 Pro", {16, 20}, {273, 273}, 404, 5, 64, 0.5},
    Chip{"Apple M4 Max", {32, 40}, {410, 546}, 404, 5, 128, 0.5, {36, 0}},
    Chip{"Apple M5", {8, 10}, {153, 153}, 1600, 4, 32, 0.5},
    Chip{"Apple M5 Pro", {16, 20}, {307, 307}, 1600, 5, 64, 0.5},
    Chip{"Apple M5 Max", {32, 40}, {460, 614}, 1600, 5, 128, 0.5, {36, 0}},
    Chip{"Apple M5 Ultra", {64, 80}, {1200, 1200}, 1600, 5, 256, 0.5},
    Chip{"Apple M6", {12, 12}, {153, 170}, 1600, 0, 0, 0.5},
};

constexpr std::string_view kMaker = "Apple ";

}  // namespace

const Chip* FindChip(std::string_view text) {
  const Chip* best = nullptr;
  for (const Chip& chip : kChips) {
    // People leave the maker out.
    const std::string_view name = chip.name.substr(kMaker.size());
    const size_t at = text.find(name);
    if (at == std::string_view::npos) continue;
    const size_t end = at + name.size();
    const bool begins = at == 0 || text[at - 1] == ' ';
    const bool ends = end == text.size() || !std::isalnum(static_cast<unsigned char>(text[end]));
    if (!begins || !ends) continue;
    if (best == nullptr || chip.name.size() > best->name.size()) best = &chip;
  }
  return best;
}

uint32_t GpuCoresWith(const Chip& chip, uint32_t memory_gib) {
  const bool smaller = memory_gib > 0 && (memory_gib == chip.smaller_gpu_gib[0] ||
                                          memory_gib == chip.smaller_gpu_gib[1]);
  return chip.gpu_cores[smaller ? 0 : 1];
}

RankSpeed SpeedOf(const v1::PlannerNode& node) {
  RankSpeed speed;
  speed.kind = ComputeKindOf(node);
  const bool gpu = speed.kind == ComputeKind::kGpu;
  const double cores = std::max(1u, node.cpu_cores());
  speed.bandwidth = gpu ? kGpuBandwidth : std::min(cores * kCpuCoreBandwidth, kCpuBandwidthMax);
  speed.flops = gpu ? kGpuFlops : cores * kCpuCoreFlops;
  if (const Chip* chip = FindChip(node.chip()); chip != nullptr && gpu) {
    const bool smaller = node.gpu_cores() <= chip->gpu_cores[0];
    speed.bandwidth = chip->bandwidth_gb_s[smaller ? 0 : 1] * kGiga;
    speed.expert_overhead = chip->expert_overhead;
    speed.flops = node.gpu_cores() * chip->core_gflops * kGiga;
  }
  if (node.memory_bandwidth() > 0) speed.bandwidth = node.memory_bandwidth();
  if (node.compute_flops() > 0) speed.flops = node.compute_flops();
  return speed;
}

}  // namespace macrame::planner
