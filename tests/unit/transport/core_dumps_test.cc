#include "transport/core_dumps.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

namespace macrame::transport {
namespace {

// In a child: what is turned off stays off.
TEST(CoreDumpsTest, TheSystemKeepsNoImageOfTheProcess) {
  const pid_t child = fork();
  if (child == 0) {
    TurnOffCoreDumps();
    rlimit limit{1, 1};
    bool off = getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur == 0 && limit.rlim_max == 0;
#ifdef __linux__
    off = off && prctl(PR_GET_DUMPABLE) == 0;
#endif
    _exit(off ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace macrame::transport
