#include "discovery/probe/gpu_budget.h"

#include <gtest/gtest.h>

namespace macrame::discovery {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(GpuBudget, TheSetLimitWinsThenMlxThenAnEstimate) {
  const GpuBudget set = MacGpuBudget(118000, 100 * kGiB, 128 * kGiB);
  EXPECT_EQ(set.bytes, 118000 * (uint64_t{1} << 20));
  EXPECT_FALSE(set.is_estimate);
  const GpuBudget mlx = MacGpuBudget(0, 115448725504, 128 * kGiB);
  EXPECT_EQ(mlx.bytes, 115448725504u);
  EXPECT_FALSE(mlx.is_estimate);
  const GpuBudget guess = MacGpuBudget(0, std::nullopt, 64 * kGiB);
  EXPECT_EQ(guess.bytes, 48 * kGiB);
  EXPECT_TRUE(guess.is_estimate);
  EXPECT_EQ(MacGpuBudget(std::nullopt, std::nullopt, 64 * kGiB).bytes, 48 * kGiB);
}

TEST(GpuBudget, NeverMoreThanTheMemoryNorAnythingOutOfNothing) {
  EXPECT_EQ(MacGpuBudget(1 << 20, std::nullopt, 64 * kGiB).bytes, 64 * kGiB);
  EXPECT_EQ(MacGpuBudget(~uint64_t{0}, std::nullopt, 64 * kGiB).bytes, 64 * kGiB);
  EXPECT_EQ(MacGpuBudget(0, 80 * kGiB, 64 * kGiB).bytes, 64 * kGiB);
  EXPECT_EQ(MacGpuBudget(0, std::nullopt, std::nullopt).bytes, 0u);
}

}  // namespace
}  // namespace macrame::discovery
