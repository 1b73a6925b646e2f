// Chips and GPUs by what people and drivers write, and what follows from them.

#include "planner/chip_table.h"

#include <gtest/gtest.h>

#include <random>

#include "planner/constraints.h"
#include "planner/offline/machine_table.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

constexpr uint64_t kMiB = 1ULL << 20;

v1::PlannerNode Of(const std::string& chip, uint32_t gpu_cores) {
  v1::PlannerNode node = Node("node", 64 * kGiB);
  node.set_chip(chip);
  node.set_gpu_cores(gpu_cores);
  return node;
}

TEST(ChipTable, NamesThatOnlyLookLikeAChipAreNone) {
  for (const char* text : {"",
                           "m",
                           "M",
                           "3",
                           "Apple",
                           "Apple M",
                           "Apple M0",
                           "Apple M99",
                           "Apple M33",
                           "M3x",
                           "Intel(R) Core(TM) m3-7Y32",
                           "NVIDIA Tesla M4",
                           "AMD FirePro M4",
                           "ARM Cortex M4",
                           "mm3",
                           "Samsung Exynos M3",
                           "3M4 5",
                           "xm3",
                           "ax m33",
                           "Apple A17 Pro"}) {
    EXPECT_EQ(FindChip(text), nullptr) << text;
  }
}

TEST(ChipTable, TheLongestNameIsMeantWhateverStandsAroundIt) {
  const std::pair<const char*, const char*> cases[] = {
      {"Apple M1", "Apple M1"},           {"apple m1 max", "Apple M1 Max"},
      {"AppleM2Ultra", "Apple M2 Ultra"}, {"mac-studio-m3-ultra-512gb", "Apple M3 Ultra"},
      {"10xM4 Pro", "Apple M4 Pro"},      {"10x m4_pro, 64 GB", "Apple M4 Pro"},
      {"a Mac with an M4", "Apple M4"},   {"M4, not an M4 Max", "Apple M4 Max"},
      {"M4Max", "Apple M4 Max"},          {"M4 Maximum", "Apple M4"},
      {"m5\tmax", "Apple M5 Max"},
  };
  for (const auto& [text, name] : cases) {
    const Chip* chip = FindChip(text);
    ASSERT_NE(chip, nullptr) << text;
    EXPECT_EQ(chip->name, name) << text;
  }
}

TEST(ChipTable, LaptopsOfACardsNameAreAnotherGpu) {
  ASSERT_NE(FindGpu("NVIDIA GeForce RTX 4090"), nullptr);
  ASSERT_NE(FindGpu("NVIDIA GeForce RTX 4090 Laptop GPU"), nullptr);
  EXPECT_LT(FindGpu("NVIDIA GeForce RTX 4090 Laptop GPU")->bandwidth_gb_s,
            FindGpu("NVIDIA GeForce RTX 4090")->bandwidth_gb_s);
  EXPECT_EQ(FindGpu("NVIDIA GeForce RTX 3080 Laptop GPU"), nullptr) << "not in the table";
  EXPECT_EQ(FindGpu("NVIDIA GeForce RTX 3080 with Max-Q Design"), nullptr);
  EXPECT_EQ(FindGpu("NVIDIA GeForce RTX 4090 D"), FindGpu("RTX 4090"));
  EXPECT_EQ(FindGpu("RTX 40900"), nullptr);
  EXPECT_EQ(FindGpu("GTX 3080x"), nullptr);
}

TEST(ChipTable, AGpuIsNeverTakenForAMacOrTheOtherWayRound) {
  for (const char* gpu : {"Tesla T4", "NVIDIA L4", "NVIDIA GB10", "AMD Radeon 8060S", "H100 NVL"}) {
    EXPECT_NE(FindGpu(gpu), nullptr) << gpu;
    EXPECT_EQ(FindChip(gpu), nullptr) << gpu;
  }
  for (const Machine& machine : Machines()) {
    EXPECT_NE(FindChip(machine.chip), nullptr) << machine.chip;
    EXPECT_EQ(FindGpu(machine.chip), nullptr) << machine.chip;
  }
}

TEST(ChipTable, MoreGpuCoresAreNeverSlower) {
  for (const Machine& machine : Machines()) {
    const std::string chip(machine.chip);
    RankSpeed before = SpeedOf(Of(chip, 1));
    for (uint32_t cores = 2; cores <= 90; ++cores) {
      const RankSpeed speed = SpeedOf(Of(chip, cores));
      EXPECT_GE(speed.bandwidth, before.bandwidth) << chip << " " << cores;
      EXPECT_GT(speed.flops, before.flops) << chip << " " << cores;
      EXPECT_LE(speed.overhead, before.overhead) << chip << " " << cores;
      before = speed;
    }
  }
}

TEST(ChipTable, WhatAMachineSaysOfItselfWins) {
  v1::PlannerNode node = Of("Apple M4 Max", 40);
  const RankSpeed table = SpeedOf(node);
  node.set_memory_bandwidth(123e9);
  node.set_compute_flops(7e12);
  const RankSpeed told = SpeedOf(node);
  EXPECT_EQ(told.bandwidth, 123e9);
  EXPECT_EQ(told.flops, 7e12);
  EXPECT_EQ(told.overhead, table.overhead) << "its kernels are still that chip's";
  EXPECT_FALSE(told.is_assumed);
}

TEST(ChipTable, OnlyAGpuOfWhichNobodyKnowsAnythingIsAssumed) {
  EXPECT_TRUE(SpeedOf(Of("Some Accelerator", 10)).is_assumed);
  EXPECT_TRUE(SpeedOf(Of("", 10)).is_assumed);
  EXPECT_FALSE(SpeedOf(Of("Some Accelerator", 0)).is_assumed) << "it computes on its CPU";
  EXPECT_FALSE(SpeedOf(Of("NVIDIA A30", 10)).is_assumed);
  v1::PlannerNode told = Of("Some Accelerator", 10);
  told.set_memory_bandwidth(1e12);
  EXPECT_FALSE(SpeedOf(told).is_assumed);
}

TEST(ChipTable, AProcessorsMemoryEndsWhereADesktopsDoes) {
  double before = 0;
  for (uint32_t cores = 1; cores <= 128; cores *= 2) {
    v1::PlannerNode node = Of("Intel(R) Xeon(R)", 0);
    node.set_cpu_cores(cores);
    const RankSpeed speed = SpeedOf(node);
    EXPECT_EQ(speed.kind, ComputeKind::kCpu);
    EXPECT_GE(speed.bandwidth, before);
    EXPECT_LE(speed.bandwidth, kCpuBandwidthMax);
    EXPECT_EQ(speed.flops, cores * kCpuCoreFlops);
    before = speed.bandwidth;
  }
  v1::PlannerNode silent = Of("", 0);
  EXPECT_EQ(SpeedOf(silent).flops, kCpuCoreFlops) << "a machine that says nothing has a core";
}

TEST(ChipTable, TheMemoryThatAMacNeedsIsTheLeastThatLetsItsGpuTakeSoMuch) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t usable = random() % (600 * 1024) * kMiB;
    const uint64_t memory = MemoryForGpu(usable);
    EXPECT_GE(GpuUsableBytes(memory) + 8, usable) << usable / kMiB << " MiB";
    if (memory > kMiB) {
      EXPECT_LT(GpuUsableBytes(memory - kMiB), std::max<uint64_t>(usable, 1))
          << usable / kMiB << " MiB: less memory would do";
    }
  }
  EXPECT_EQ(MemoryForGpu(~0ULL), ~0ULL) << "no overflow";
}

TEST(ChipTable, ADiscreteGpuKeepsPartOfItsMemoryUnlessItsUserSaysWhatModelsMayTake) {
  v1::PlannerNode node = Of("NVIDIA GeForce RTX 4090", 1);
  const auto set = [&](uint64_t total, uint64_t usable) {
    node.set_memory_total_bytes(total);
    node.set_memory_usable_bytes(usable);
    node.set_memory_available_bytes(usable);
  };
  set(24 * kGiB, 24 * kGiB);
  EXPECT_EQ(GpuReserveBytes(node), 2 * kGiB);
  EXPECT_EQ(BudgetBytes(node), 22 * kGiB);
  set(8 * kGiB, 8 * kGiB);
  EXPECT_EQ(GpuReserveBytes(node), kGiB) << "an eighth";
  set(24 * kGiB, 23 * kGiB);
  EXPECT_EQ(GpuReserveBytes(node), kGiB) << "a part of it is left out already";
  set(24 * kGiB, 20 * kGiB);
  EXPECT_EQ(GpuReserveBytes(node), 0u);
  set(24 * kGiB, 24 * kGiB);
  node.set_memory_limit_is_configured(true);
  EXPECT_EQ(BudgetBytes(node), 24 * kGiB);
  node.set_memory_limit_is_configured(false);
  for (const char* chip : {"NVIDIA GB10", "Apple M4 Max", "Some Accelerator"}) {
    node.set_chip(chip);
    EXPECT_EQ(GpuReserveBytes(node), 0u) << chip;
  }
  node.set_chip("NVIDIA GeForce RTX 4090");
  node.set_gpu_cores(0);
  EXPECT_EQ(GpuReserveBytes(node), 0u) << "it computes on its processors";
}

}  // namespace
}  // namespace macrame::planner
