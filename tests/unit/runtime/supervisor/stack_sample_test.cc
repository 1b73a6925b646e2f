#include "runtime/supervisor/stack_sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "proto/utf8.h"

namespace macrame::runtime {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr char kSample[] =
    "Sampling process 4711 for 1 second with 1 millisecond of run time between samples\n"
    "Analysis of sampling rankd (pid 4711) every 1 millisecond\n"
    "Path:            /opt/tbt_tools/rankd\n"
    "\n"
    "Call graph:\n"
    "    850 Thread_100   DispatchQueue_1: com.apple.main-thread  (serial)\n"
    "    + 850 start  (in dyld) + 6076  [0x18d0e2b98]\n"
    "    +   850 main  (in rankd) + 128  [0x1000034a0]\n"
    "    850 Thread_101: engine\n"
    "    + 850 thread_start  (in libsystem_pthread.dylib) + 8  [0x18d4210c0]\n"
    "    +   600 ibv_poll_cq  (in libibverbs) + 40  [0x19f000000]\n"
    "    +   ! 600 jaccl::Mesh::all_sum(int)  (in libmlx.dylib) + 40  [0x104000000]\n"
    "    +   250 ibv_poll_cq  (in libibverbs) + 44  [0x19f000004]\n"
    "    +     ! : 250 mlx::core::Fence::wait(mlx::core::Stream, mlx::core::array const&)  (in "
    "libmlx.dylib) + 212  [0x104a3c000]\n"
    "\n"
    "Total number in stack (recursive counted multiple, when >=5):\n"
    "        5       tbt_counted_again  (in libibverbs)\n";

TEST(StackSample, TheWaitForTheGpuComesBeforeCallsOfRdma) {
  EXPECT_THAT(TellingCalls(kSample),
              ElementsAre("mlx::core::Fence::wait(mlx::core::Stream, mlx::core::array const&) (in "
                          "libmlx.dylib)",
                          "ibv_poll_cq (in libibverbs)"));
}

TEST(StackSample, WhereNothingTellsThereIsNothing) {
  EXPECT_THAT(TellingCalls(""), IsEmpty());
  EXPECT_THAT(TellingCalls("sample cannot examine process 4711: Fence::wait"), IsEmpty());
  EXPECT_THAT(TellingCalls("Call graph:\n    1 Thread_1\n      1 subtbt_x  (in a)\n"), IsEmpty());
}

TEST(StackSample, AnyBytesAreBoundedText) {
  std::string many = "Call graph:\n";
  for (int i = 0; i < 100; ++i) {
    many += "  1 ibv_" + std::to_string(i) + "\xff\x01" + std::string(2000, 'x') + "\n";
  }
  const auto calls = TellingCalls(many);
  EXPECT_EQ(calls.size(), kTellingCallsMax);
  for (const std::string& call : calls) {
    EXPECT_LE(call.size(), 200u);
    EXPECT_EQ(FirstNonUtf8(call), call.size());
  }
  EXPECT_THAT(
      TellingCalls("Call graph:\n" + std::string(kStackSampleBytesMax, '\n') + "1 Fence::wait\n"),
      IsEmpty());
  for (size_t size = 0; size < sizeof(kSample); ++size) {
    TellingCalls(std::string_view(kSample, size));
  }
}

}  // namespace
}  // namespace macrame::runtime
