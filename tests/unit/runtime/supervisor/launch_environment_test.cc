#include "runtime/supervisor/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace macrame::runtime {
namespace {

TEST(LaunchEnvironment, PassesOnAShortList) {
  const char* environment[] = {
      "PATH=/bin",  "HOME=/root",       "AWS_SECRET_ACCESS_KEY=x", "LC_ALL=C", "MLX_METAL_X=1",
      "MLX_RANK=3", "LD_PRELOAD=/x.so", "MLX_HOSTFILE=/h",         "NOEQUALS", nullptr};
  EXPECT_THAT(LaunchEnvironment(environment),
              testing::ElementsAre("PATH=/bin", "HOME=/root", "LC_ALL=C", "MLX_METAL_X=1",
                                   "MLX_METAL_FAST_SYNCH=1"));
}

TEST(LaunchEnvironment, QuickWaitsMayBeSwitchedOff) {
  EXPECT_THAT(LaunchEnvironment(nullptr), testing::ElementsAre("MLX_METAL_FAST_SYNCH=1"));
  const char* environment[] = {"MLX_METAL_FAST_SYNCH=0", nullptr};
  EXPECT_THAT(LaunchEnvironment(environment), testing::ElementsAre("MLX_METAL_FAST_SYNCH=0"));
}

}  // namespace
}  // namespace macrame::runtime
