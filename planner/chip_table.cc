#include "planner/chip_table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include "planner/saturating.h"

namespace macrame::planner {
namespace {

constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;
constexpr uint32_t kMatrixUnitsGeneration = 5;
constexpr uint64_t kSmallMemory = 36ULL << 30;

// Bandwidth by Apple's technical specifications. Arithmetic of a GPU core: 128 lanes × 2 operations
// × its clock; from M5 on a core has a matrix unit of about four times that.
constexpr std::array kChips = {
    Chip{"Apple M1", {7, 8}, {68.25, 68.25}, 327, 3, 1, 1},
    Chip{"Apple M1 Pro", {14, 16}, {200, 200}, 327, 4, 1, 1},
    Chip{"Apple M1 Max", {24, 32}, {400, 400}, 327, 4, 1, 1},
    Chip{"Apple M1 Ultra", {48, 64}, {800, 800}, 327, 4, 1, 2},
    Chip{"Apple M2", {8, 10}, {100, 100}, 358, 4, 2, 1},
    Chip{"Apple M2 Pro", {16, 19}, {200, 200}, 358, 4, 2, 1},
    Chip{"Apple M2 Max", {30, 38}, {400, 400}, 358, 4, 2, 1},
    Chip{"Apple M2 Ultra", {60, 76}, {800, 800}, 358, 4, 2, 2},
    Chip{"Apple M3", {8, 10}, {100, 100}, 353, 3, 3, 1},
    Chip{"Apple M3 Pro", {14, 18}, {150, 150}, 353, 4, 3, 1},
    Chip{"Apple M3 Max", {30, 40}, {300, 400}, 353, 4, 3, 1, {36, 96}},
    Chip{"Apple M3 Ultra", {60, 80}, {819, 819}, 353, 5, 3, 2},
    Chip{"Apple M4", {8, 10}, {120, 120}, 404, 4, 4, 1},
    Chip{"Apple M4 Pro", {16, 20}, {273, 273}, 404, 5, 4, 1},
    Chip{"Apple M4 Max", {32, 40}, {410, 546}, 404, 5, 4, 1, {36, 0}},
    Chip{"Apple M5", {8, 10}, {153, 153}, 1600, 4, 5, 1},
    Chip{"Apple M5 Pro", {16, 20}, {307, 307}, 1600, 5, 5, 1},
    Chip{"Apple M5 Max", {32, 40}, {460, 614}, 1600, 5, 5, 1, {36, 0}},
    Chip{"Apple M5 Ultra", {64, 80}, {1200, 1200}, 1600, 5, 5, 2},
    Chip{"Apple M6", {12, 12}, {170, 170}, 1600, 0, 6, 1},
};

// Data sheets of NVIDIA (H100, H200, B200, A100, A30, A10, L40S, L4, V100, T4, RTX and GeForce, DGX
// Spark) and AMD (Instinct, Radeon, Ryzen AI Max). Of GeForce cards, tensor cores with sums in 32
// bits; of others 16-bit matrices; all without sparsity.
constexpr std::array kGpus = {
    Gpu{"B200", 8000, 2250, 180, true},
    Gpu{"H200", 4800, 989, 141, true},
    Gpu{"H100", 3350, 989, 80, true},
    Gpu{"H100 PCIe", 2000, 756, 80, true},
    Gpu{"H100 NVL", 3900, 835, 94, true},
    Gpu{"GH200", 4000, 989, 96, true},
    Gpu{"A100", 2039, 312, 80, true},
    Gpu{"A100 80GB PCIe", 1935, 312, 80, true},
    Gpu{"A100 SXM4 40GB", 1555, 312, 40, true},
    Gpu{"A100 PCIE 40GB", 1555, 312, 40, true},
    Gpu{"A40", 696, 150, 48, true},
    Gpu{"A30", 933, 165, 24, true},
    Gpu{"A10", 600, 125, 24, true},
    Gpu{"L40S", 864, 362, 48, true},
    Gpu{"L40", 864, 181, 48, true},
    Gpu{"L4", 300, 121, 24, true},
    Gpu{"V100", 900, 125, 32, true},
    Gpu{"T4", 320, 65, 16, true},
    Gpu{"RTX PRO 6000", 1792, 503, 96, true},
    Gpu{"RTX 6000 Ada", 960, 364, 48, true},
    Gpu{"RTX A6000", 768, 155, 48, true},
    Gpu{"RTX A5000", 768, 111, 24, true},
    Gpu{"RTX A4000", 448, 77, 16, true},
    Gpu{"RTX 5090", 1792, 210, 32, true},
    Gpu{"RTX 5080", 960, 113, 16, true},
    Gpu{"RTX 5070 Ti", 896, 88, 16, true},
    Gpu{"RTX 5070", 672, 62, 12, true},
    Gpu{"RTX 5060 Ti", 448, 47, 16, true},
    Gpu{"RTX 4090", 1008, 165, 24, true},
    Gpu{"RTX 4090 Laptop", 576, 82, 16, true},
    Gpu{"RTX 4080 SUPER", 736, 104, 16, true},
    Gpu{"RTX 4080", 717, 97, 16, true},
    Gpu{"RTX 4070 Ti SUPER", 672, 88, 16, true},
    Gpu{"RTX 4070 Ti", 504, 80, 12, true},
    Gpu{"RTX 4070", 504, 58, 12, true},
    Gpu{"RTX 4060 Ti", 288, 44, 16, true},
    Gpu{"RTX 4060", 272, 30, 8, true},
    Gpu{"RTX 3090 Ti", 1008, 80, 24, true},
    Gpu{"RTX 3090", 936, 71, 24, true},
    Gpu{"RTX 3080 Ti", 912, 68, 12, true},
    Gpu{"RTX 3080", 760, 59, 10, true},
    Gpu{"RTX 3070 Ti", 608, 43, 8, true},
    Gpu{"RTX 3070", 448, 40, 8, true},
    Gpu{"RTX 3060 Ti", 448, 32, 8, true},
    Gpu{"RTX 3060", 360, 25, 12, true},
    Gpu{"GB10", 273, 125, 128, false},
    Gpu{"MI350X", 8000, 2300, 288, true},
    Gpu{"MI325X", 6000, 1307, 256, true},
    Gpu{"MI300X", 5300, 1307, 192, true},
    Gpu{"MI250X", 3277, 383, 128, true},
    Gpu{"MI210", 1638, 181, 64, true},
    Gpu{"MI100", 1229, 185, 32, true},
    Gpu{"PRO W7900", 864, 123, 48, true},
    Gpu{"RX 9070 XT", 640, 195, 16, true},
    Gpu{"RX 7900 XTX", 960, 123, 24, true},
    Gpu{"RX 7900 XT", 800, 103, 20, true},
    Gpu{"RX 7800 XT", 624, 75, 16, true},
    Gpu{"RX 6900 XT", 512, 46, 16, true},
    Gpu{"RX 6800 XT", 512, 41, 16, true},
    Gpu{"Radeon 8060S", 256, 59, 128, false},
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

const Gpu* FindGpu(std::string_view text) {
  const Gpu* best = nullptr;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!BeginsAt(text, at)) continue;
    for (const Gpu& gpu : kGpus) {
      const bool is_longer = best == nullptr || gpu.name.size() > best->name.size();
      if (is_longer && NamesAt(text, at, gpu.name)) best = &gpu;
    }
  }
  // A laptop's GPU has the name of a card with up to twice its bandwidth.
  for (const std::string_view mark : {"Laptop", "Max-Q"}) {
    const bool is_other = best != nullptr && text.find(mark) != std::string_view::npos &&
                          best->name.find(mark) == std::string_view::npos;
    if (is_other) return nullptr;
  }
  return best;
}

uint64_t GpuReserveBytes(const v1::PlannerNode& node) {
  if (node.gpu_cores() == 0 || node.memory_limit_is_configured()) return 0;
  if (FindChip(node.chip()) != nullptr) return 0;
  const Gpu* gpu = FindGpu(node.chip());
  if (gpu == nullptr || !gpu->is_discrete) return 0;
  const uint64_t all = std::max(node.memory_total_bytes(), node.memory_usable_bytes());
  const uint64_t reserve = std::min(kGpuReserveBytesMax, all / kGpuReserveDivisor);
  return SaturatingSubtract(reserve, all - node.memory_usable_bytes());
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
  return std::max(kSmallMemory + 1, SaturatingAdd(usable_bytes, usable_bytes / 3));
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
    if (chip->generation >= kMatrixUnitsGeneration) speed.compute_reached = kMatrixUnitsReach;
  } else if (const Gpu* other = FindGpu(node.chip()); other != nullptr && gpu) {
    speed.bandwidth = other->bandwidth_gb_s * kGiga;
    speed.flops = other->tflops * kTera;
  } else {
    speed.is_assumed = gpu && node.memory_bandwidth() <= 0;
  }
  if (node.memory_bandwidth() > 0) speed.bandwidth = node.memory_bandwidth();
  if (node.compute_flops() > 0) speed.flops = node.compute_flops();
  return speed;
}

}  // namespace macrame::planner
