#pragma once

// What planning expects of a machine that can't be asked for more than its chip: memory bandwidth,
// arithmetic, power. Apple's, NVIDIA's and AMD's figures where these give them; a machine's own
// measurements win.

#include <cstdint>
#include <string_view>

#include "macrame/v1/plan.pb.h"
#include "planner/cost_model.h"

namespace macrame::planner {

struct Chip {
  std::string_view name;     // "Apple M3 Ultra"
  uint32_t gpu_cores[2];     // the smaller and the larger one; equal: there is one
  double bandwidth_gb_s[2];  // 10^9 bytes a second, of each
  double core_gflops;        // 16-bit, 10^9 a second on one GPU core
  uint32_t thunderbolt;      // generation of its controller; 0: none
  uint32_t generation;       // M4 Pro: 4
  uint32_t dies;             // an Ultra is two of a Max
  // Memories that are sold with the smaller GPU only; 0: none.
  uint32_t smaller_gpu_gib[2] = {0, 0};
};

// As in RankSpeed, fitted to published speeds. Two dies reach less of their bandwidth together than
// one alone; an M1's cores can't ask for all that M1 Max and Ultra have.
inline constexpr double kTwoDiesReach = 0.95;
inline constexpr double kFirstGenerationReach = 0.78;
inline constexpr double kFirstGenerationWide = 400;  // 10^9 bytes a second
// From M4 on the small kernels between the large ones take less time. All of them take longer on a
// GPU that is smaller than its generation's Max, in proportion.
inline constexpr uint32_t kQuickGeneration = 4;
inline constexpr double kQuickOverhead = 0.55;

// The chip that a text names ("Apple M3 Ultra", "4x mac-studio-m3-ultra-512gb"): the longest name
// in it, with or without separators; nullptr: none, or another maker's ("Tesla M4").
const Chip* FindChip(std::string_view text);

// Other makers' GPUs, by their public data sheets.
struct Gpu {
  std::string_view name;  // words of it, without the maker's: "RTX 4090"
  double bandwidth_gb_s;  // 10^9 bytes a second
  double tflops;          // 16-bit matrices without sparsity, sums in 32 bits; 10^12 a second
  uint32_t memory_gib;
  bool is_discrete;  // its memory is its own; else the machine's
};

// The GPU that a text names ("NVIDIA GeForce RTX 4090", "Tesla V100-SXM2-32GB"): the longest name
// in it; nullptr: none that is known.
const Gpu* FindGpu(std::string_view text);

// Of a discrete GPU's memory, what its driver, the libraries' own buffers and a screen take, so
// that models can't: an eighth, at most 2 GiB. An assumption; 0 for a node whose GPU is another.
inline constexpr uint64_t kGpuReserveDivisor = 8;
inline constexpr uint64_t kGpuReserveBytesMax = 2ULL << 30;
uint64_t GpuReserveBytes(const v1::PlannerNode& node);

// Of the GPU that a machine with this chip and memory has; the larger one where both are sold.
uint32_t GpuCoresWith(const Chip& chip, uint32_t memory_gib);

// Of a Mac's memory, what macOS lets its GPU take at least: two thirds of up to 36 GiB, three
// quarters of more. And the least memory of which it lets it take so much.
uint64_t GpuUsableBytes(uint64_t memory_bytes);
uint64_t MemoryForGpu(uint64_t usable_bytes);

// For a machine that computes on its CPU: nominal figures for which a core reaches what rankd's
// kernels did at 4 bits with AVX-512 (tests/bench/steps: 8 to 11 GB/s of weights read, 150 GFLOP/s
// for several answers besides); others are slower. And where a desktop's memory ends.
inline constexpr double kCpuCoreBandwidth = 11e9;
inline constexpr double kCpuBandwidthMax = 60e9;
inline constexpr double kCpuCoreFlops = 170e9;
// Part of its arithmetic that a GPU with matrix units (from M5 on) reaches, of what others reach;
// one prefill of small experts was published.
inline constexpr double kMatrixUnitsReach = 0.45;
// A GPU whose chip is in neither table: RankSpeed.is_assumed, which a plan says.
inline constexpr double kGpuBandwidth = 200e9;
inline constexpr double kGpuFlops = 10e12;

// What the node says of itself, else its chip's or GPU's, else the constants above.
RankSpeed SpeedOf(const v1::PlannerNode& node);

}  // namespace macrame::planner
