#include "runtime/supervisor/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace macrame::runtime {
namespace {

TEST(LaunchEnvironment, PassesOnAShortList) {
  const char* environment[] = {
      "PATH=/bin",  "HOME=/root",       "AWS_SECRET_ACCESS_KEY=x", "LC_ALL=C", "MLX_METAL_X=1",
      "MLX_RANK=3", "LD_PRELOAD=/x.so", "MLX_HOSTFILE=/h",         "NOEQUALS", nullptr};
  EXPECT_THAT(LaunchEnvironment(environment, false),
              testing::ElementsAre("PATH=/bin", "HOME=/root", "LC_ALL=C", "MLX_METAL_X=1"));
}

// What decides is the agent's setting, not what happens to be in its environment.
TEST(LaunchEnvironment, FastSynchronisationIsSetWhenItIsAskedForOnly) {
  EXPECT_THAT(LaunchEnvironment(nullptr, false), testing::IsEmpty());
  EXPECT_THAT(LaunchEnvironment(nullptr, true), testing::ElementsAre("MLX_METAL_FAST_SYNCH=1"));
  const char* environment[] = {"MLX_METAL_FAST_SYNCH=1", nullptr};
  EXPECT_THAT(LaunchEnvironment(environment, false), testing::IsEmpty());
}

}  // namespace
}  // namespace macrame::runtime
