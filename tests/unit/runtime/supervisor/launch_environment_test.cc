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

// Names are compared whole: what only begins or ends like a known one is another variable.
TEST(LaunchEnvironment, NamesThatOnlyLookAlikeAreNotPassedOn) {
  const char* environment[] = {"PATHS=/x",
                               "XPATH=/x",
                               "path=/x",
                               "=PATH",
                               "",
                               "LC=x",
                               "XLC_ALL=x",
                               "MLX=x",
                               "OMP_NUM_THREADS_X=4",
                               "OMP_NUM_THREADS=4",
                               "DYLD_INSERT_LIBRARIES=/x.dylib",
                               "PYTHONPATH=/x",
                               "MACRAME_JOIN_KEY=x",
                               nullptr};
  EXPECT_THAT(LaunchEnvironment(environment, false), testing::ElementsAre("OMP_NUM_THREADS=4"));
}

TEST(LaunchEnvironment, ValuesAreNotLookedAt) {
  const char* environment[] = {
      "TZ=", "HOME=/a=b c", "LC_=", "MLX_RANKS=2", "TMPDIR=MLX_RANK=3", nullptr};
  EXPECT_THAT(
      LaunchEnvironment(environment, false),
      testing::ElementsAre("TZ=", "HOME=/a=b c", "LC_=", "MLX_RANKS=2", "TMPDIR=MLX_RANK=3"));
}

// Of two of a name programs disagree about which counts: there must be none.
TEST(LaunchEnvironment, TheFastWayIsSetOnceWhateverTheAgentHas) {
  const char* environment[] = {"MLX_METAL_FAST_SYNCH=0", "MLX_METAL_FAST_SYNCH=1", "LANG=C",
                               nullptr};
  EXPECT_THAT(LaunchEnvironment(environment, true),
              testing::ElementsAre("LANG=C", "MLX_METAL_FAST_SYNCH=1"));
  EXPECT_THAT(LaunchEnvironment(environment, false), testing::ElementsAre("LANG=C"));
}

}  // namespace
}  // namespace macrame::runtime
