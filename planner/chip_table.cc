#include "planner/chip_table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include "planner/saturating.h"

namespace macrame::planner {
namespace {

constexpr double kGiga = 1e9;
constexpr uint64_t kSmallMemory = 36ULL << 30;

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
// Others have an M3 or M4 as well: "Intel(R) Core(TM) m3-7Y32", "Tesla M4".
constexpr std::string_view kOtherMakers[] = {"Intel",  "NVIDIA", "GeForce", "Quadro",
                                             "Tesla",  "AMD",    "Radeon",  "FirePro",
                                             "Cortex", "Exynos", "FireGL"};

char Lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }
bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool IsSeparator(char c) { return c == ' ' || c == '-' || c == '_' || c == '\t'; }

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

// Whether a word begins there; behind a count or the maker it does as well: "4xM3 Ultra",
// "AppleM1".
bool BeginsAt(std::string_view text, size_t at) {
  if (at == 0 || !IsAlnum(text[at - 1])) return true;
  constexpr std::string_view kWord = kMaker.substr(0, kMaker.size() - 1);
  const std::string_view before = text.substr(0, at);
  if (before.size() >= kWord.size() &&
      std::equal(kWord.begin(), kWord.end(), before.end() - kWord.size(),
                 [](char known, char written) { return Lower(known) == Lower(written); })) {
    return BeginsAt(text, at - kWord.size());
  }
  if (Lower(text[at - 1]) != 'x' || at < 2) return false;
  size_t count = at - 1;
  while (count > 0 && IsDigit(text[count - 1])) --count;
  return count < at - 1 && (count == 0 || !IsAlnum(text[count - 1]));
}

// Whether a word ends with the name that begins there, as people write it: "M3 Ultra", "m3-ultra",
// "m3ultra".
bool NamesAt(std::string_view text, size_t at, std::string_view name) {
  for (const char known : name) {
    if (known == ' ') {
      while (at < text.size() && IsSeparator(text[at])) ++at;
    } else if (at < text.size() && Lower(text[at]) == Lower(known)) {
      ++at;
    } else {
      return false;
    }
  }
  return at == text.size() || !IsAlnum(text[at]);
}

bool NamesAnotherMaker(std::string_view text) {
  return std::any_of(std::begin(kOtherMakers), std::end(kOtherMakers), [&](std::string_view maker) {
    for (size_t at = 0; at < text.size(); ++at) {
      if (BeginsAt(text, at) && NamesAt(text, at, maker)) return true;
    }
    return false;
  });
}

}  // namespace

const Chip* FindChip(std::string_view text) {
  for (const Chip& chip : kChips) {
    if (text == chip.name) return &chip;  // as agents report it
  }
  const Chip* best = nullptr;
  for (size_t at = 0; at + 1 < text.size(); ++at) {
    if (Lower(text[at]) != 'm' || !IsDigit(text[at + 1]) || !BeginsAt(text, at)) continue;
    for (const Chip& chip : kChips) {
      if (best != nullptr && chip.name.size() <= best->name.size()) continue;
      // People leave the maker out.
      if (NamesAt(text, at, chip.name.substr(kMaker.size()))) best = &chip;
    }
  }
  return best == nullptr || NamesAnotherMaker(text) ? nullptr : best;
}

uint32_t GpuCoresWith(const Chip& chip, uint32_t memory_gib) {
  const bool smaller = memory_gib > 0 && (memory_gib == chip.smaller_gpu_gib[0] ||
                                          memory_gib == chip.smaller_gpu_gib[1]);
  return chip.gpu_cores[smaller ? 0 : 1];
}

uint64_t GpuUsableBytes(uint64_t memory_bytes) {
  return memory_bytes <= kSmallMemory ? memory_bytes / 3 * 2 : memory_bytes / 4 * 3;
}

uint64_t MemoryForGpu(uint64_t usable_bytes) {
  const uint64_t small = SaturatingAdd(usable_bytes, usable_bytes / 2);
  if (small <= kSmallMemory) return small;
  return std::max(kSmallMemory, SaturatingAdd(usable_bytes, usable_bytes / 3));
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
    if (chip->generation == 1 && chip->bandwidth_gb_s[0] >= kFirstGenerationWide) {
      speed.bandwidth_reached *= kFirstGenerationReach;
    }
    speed.overhead = SlowerThanMax(*chip, node.gpu_cores()) *
                     (chip->generation >= kQuickGeneration ? kQuickOverhead : 1);
    speed.flops = node.gpu_cores() * chip->core_gflops * kGiga;
  }
  if (node.memory_bandwidth() > 0) speed.bandwidth = node.memory_bandwidth();
  if (node.compute_flops() > 0) speed.flops = node.compute_flops();
  return speed;
}

}  // namespace macrame::planner
