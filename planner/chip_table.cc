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
    Chip{"Apple M1", {7, 8}, {68.25, 68.25}, 327, 3, 16, 1, 1},
    Chip{"Apple M1 Pro", {14, 16}, {200, 200}, 327, 4, 32, 1, 1},
    Chip{"Apple M1 Max", {24, 32}, {400, 400}, 327, 4, 64, 1, 1},
    Chip{"Apple M1 Ultra", {48, 64}, {800, 800}, 327, 4, 128, 1, 2},
    Chip{"Apple M2", {8, 10}, {100, 100}, 358, 4, 24, 2, 1},
    Chip{"Apple M2 Pro", {16, 19}, {200, 200}, 358, 4, 32, 2, 1},
    Chip{"Apple M2 Max", {30, 38}, {400, 400}, 358, 4, 96, 2, 1},
    Chip{"Apple M2 Ultra", {60, 76}, {800, 800}, 358, 4, 192, 2, 2},
    Chip{"Apple M3", {8, 10}, {100, 100}, 353, 3, 24, 3, 1},
    Chip{"Apple M3 Pro", {14, 18}, {150, 150}, 353, 4, 36, 3, 1},
    Chip{"Apple M3 Max", {30, 40}, {300, 400}, 353, 4, 128, 3, 1, {36, 96}},
    Chip{"Apple M3 Ultra", {60, 80}, {819, 819}, 353, 5, 512, 3, 2},
    Chip{"Apple M4", {8, 10}, {120, 120}, 404, 4, 32, 4, 1},
    Chip{"Apple M4 Pro", {16, 20}, {273, 273}, 404, 5, 64, 4, 1},
    Chip{"Apple M4 Max", {32, 40}, {410, 546}, 404, 5, 128, 4, 1, {36, 0}},
    Chip{"Apple M5", {8, 10}, {153, 153}, 1600, 4, 32, 5, 1},
    Chip{"Apple M5 Pro", {16, 20}, {307, 307}, 1600, 5, 64, 5, 1},
    Chip{"Apple M5 Max", {32, 40}, {460, 614}, 1600, 5, 128, 5, 1, {36, 0}},
    Chip{"Apple M5 Ultra", {64, 80}, {1200, 1200}, 1600, 5, 256, 5, 2},
    Chip{"Apple M6", {12, 12}, {170, 170}, 1600, 0, 0, 6, 1},
};

constexpr std::string_view kMaker = "Apple ";
constexpr std::string_view kMakerOfOtherM3 = "Intel";  // "Intel(R) Core(TM) m3-7Y32"

// As people write it: "M3 Ultra", "m3-ultra".
bool SameLetter(char written, char known) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  if (known == ' ') return written == ' ' || written == '-' || written == '_';
  return lower(written) == lower(known);
}

// How many times the GPU of its generation's Max would be this one; 1 for that and for an Ultra.
double SlowerThanMax(const Chip& chip, uint32_t gpu_cores) {
  double max = 0;
  for (const Chip& other : kChips) {
    if (other.generation == chip.generation && other.dies == 1) {
      max = std::max(max, other.gpu_cores[1] * other.core_gflops);
    }
  }
  const double own = std::max(1u, gpu_cores) * chip.core_gflops;
  return chip.dies > 1 ? 1 : std::max(1.0, max / own);
}

bool IsAlnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// Whether the text has the name as a word of its own.
bool Names(std::string_view text, std::string_view name) {
  for (auto at = text.begin();; ++at) {
    at = std::search(at, text.end(), name.begin(), name.end(), SameLetter);
    if (at == text.end()) return false;
    const auto end = at + static_cast<std::ptrdiff_t>(name.size());
    if ((at == text.begin() || !IsAlnum(at[-1])) && (end == text.end() || !IsAlnum(*end))) {
      return true;
    }
  }
}

}  // namespace

const Chip* FindChip(std::string_view text) {
  for (const Chip& chip : kChips) {
    if (text == chip.name) return &chip;  // as agents report it
  }
  if (text.empty() || Names(text, kMakerOfOtherM3)) return nullptr;
  const Chip* best = nullptr;
  for (const Chip& chip : kChips) {
    // People leave the maker out.
    const std::string_view name = chip.name.substr(kMaker.size());
    if (best != nullptr && chip.name.size() <= best->name.size()) continue;
    if (Names(text, name)) best = &chip;
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
    if (chip->dies > 1) speed.bandwidth_reached *= kTwoDiesReach;
    if (chip->generation == 1) speed.bandwidth_reached *= kFirstGenerationReach;
    speed.overhead = SlowerThanMax(*chip, node.gpu_cores()) *
                     (chip->generation >= kQuickGeneration ? kQuickOverhead : 1);
    speed.flops = node.gpu_cores() * chip->core_gflops * kGiga;
  }
  if (node.memory_bandwidth() > 0) speed.bandwidth = node.memory_bandwidth();
  if (node.compute_flops() > 0) speed.flops = node.compute_flops();
  return speed;
}

}  // namespace macrame::planner
