// What becomes of a rank that crashes or stands still, where the system tells of it.

#include "runtime/supervisor/supervised_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "proto/reasons.h"
#include "tests/unit/runtime/supervisor/process_supervisor_harness.h"

namespace macrame::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class SupervisedRankTest : public ProcessSupervisorTest {
 protected:
  // As macOS does some time after the death of `pid`; the path of the report.
  std::string WriteCrashReport(pid_t pid, const std::string& name, const std::string& symbol) {
    const nlohmann::json header = {{"app_name", "fake_rankd"}, {"bug_type", "309"}};
    const nlohmann::json body = {
        {"pid", pid},
        {"procName", "fake_rankd"},
        {"exception", {{"type", "EXC_BAD_ACCESS"}, {"signal", "SIGSEGV"}}},
        {"faultingThread", 0},
        {"threads", {{{"frames", {{{"symbol", symbol}, {"imageIndex", 0}}}}}}},
        {"usedImages", {{{"name", "libmlx.dylib"}}}}};
    std::string path = options_.state_folder + "/reports/" + name;
    std::ofstream(path) << header.dump() << "\n" << body.dump(2);
    return path;
  }
  void AwaitCrashReports() {
    options_.crash_report_folders = {options_.state_folder + "/reports"};
    std::filesystem::create_directory(options_.crash_report_folders[0]);
    options_.crash_report_limit = kWaitLimit;
  }
  // Stands in for a system's sampler: runs `script`, with the pid as $1.
  void SampleBy(const std::string& script) {
    const std::string path = options_.state_folder + "/sampler";
    std::ofstream(path) << script;
    options_.stack_sampler = {"/bin/sh", path};
  }
};

TEST_F(SupervisedRankTest, ACrashIsExplainedByItsReportThatComesLater) {
  AwaitCrashReports();
  ASSERT_TRUE(Start().ok());
  const pid_t pid = ReserveAndLaunch("segfault");
  WriteCrashReport(pid + 1, "fake_rankd-2026-11-30-100000.ips", "somebody_else");
  ASSERT_TRUE(WaitUntil([&] { return ReservedBytes() == 0; })) << "a dead process holds nothing";
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ASSERT_EQ(Statuses().size(), 1u);
  EXPECT_NE(Statuses()[0].phase(), v1::RANK_PHASE_FAILED) << "its cause is still looked for";
  const std::string path =
      WriteCrashReport(pid, "fake_rankd-2026-11-30-100001.ips", "tbt_post_recv");
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  EXPECT_EQ(failure.code(), "RANK_KILLED");
  EXPECT_THAT(failure.message(),
              AllOf(HasSubstr("SIGSEGV: MLX crashed as it received over a connection that was"),
                    HasSubstr("its crash report: " + path)));
  EXPECT_THAT(failure.remedy(), HasSubstr("which rank ended first"));
  EXPECT_EQ(failure.evidence(), "EXC_BAD_ACCESS (SIGSEGV)\n0 libmlx.dylib tbt_post_recv");
}

TEST_F(SupervisedRankTest, ACrashThatNothingExplainsIsToldByItsCalls) {
  AwaitCrashReports();
  ASSERT_TRUE(Start().ok());
  const pid_t pid = ReserveAndLaunch("segfault");
  const std::string path =
      WriteCrashReport(pid, "fake_rankd-2026-11-30-100001.ips", "mlx::core::eval");
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  EXPECT_EQ(failure.code(), "RANK_KILLED");
  EXPECT_THAT(failure.message(),
              HasSubstr("SIGSEGV; its crash report: 0 libmlx.dylib mlx::core::eval in " + path));
}

TEST_F(SupervisedRankTest, WithoutACrashReportTheSignalIsToldWhenTheWaitIsOver) {
  AwaitCrashReports();
  options_.crash_report_limit = std::chrono::milliseconds(500);
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("segfault");
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  EXPECT_EQ(failure.code(), "RANK_KILLED");
  EXPECT_THAT(failure.message(), testing::EndsWith("was ended by SIGSEGV"));
}

// Requests have their answer at once, and who can't wait for the report doesn't.
TEST_F(SupervisedRankTest, OnlyTheFailureWaitsForACrashReport) {
  AwaitCrashReports();
  options_.crash_report_limit = std::chrono::minutes(5);
  ASSERT_TRUE(Start().ok());
  const pid_t pid = ReserveAndLaunch("ready");
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_READY));
  v1::GenerateRequest request;
  request.set_deployment("m");
  request.set_prompt("word");
  request.set_max_tokens(1);  // the fake goes on until it is cancelled
  std::promise<absl::Status> ended, refused;
  const auto ask = [&](std::promise<absl::Status>& answer) {
    supervisor_->Generate(
        request, [](const v1::GenerateChunk&) {},
        [&answer](const absl::Status& status) { answer.set_value(status); });
  };
  OnOwner([&] { ask(ended); });
  kill(pid, SIGSEGV);
  const absl::Status cut_off = ended.get_future().get();
  EXPECT_EQ(ReasonOf(cut_off).code(), "RANK_KILLED") << cut_off;
  OnOwner([&] { ask(refused); });
  EXPECT_EQ(ReasonOf(refused.get_future().get()).code(), "NOT_READY");
  EXPECT_EQ(ReasonOf(Reserve(Request("m", 1, 0)).status()).code(), "SNAPSHOT_STALE");
  OnOwner([&] { supervisor_->StopRanks("m", 1, "test", /*at_once=*/true); });
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  EXPECT_EQ(failure.code(), "RANK_KILLED");
}

constexpr char kFenceSample[] =
    "sleep 1.5\n"
    "kill -0 $1 || exit 1\n"
    "echo \"sampled $*\"\n"
    "echo 'Call graph:'\n"
    "echo '    + 850 mlx::core::Fence::wait(mlx::core::Stream)  (in libmlx.dylib) + 212  [0x10]'\n";

TEST_F(SupervisedRankTest, ASilentRankIsAskedWhereItStandsBeforeItIsKilled) {
  SampleBy(kFenceSample);
  ASSERT_TRUE(Start().ok());
  const pid_t pid = ReserveAndLaunch("ready");
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_READY));
  kill(pid, SIGSTOP);
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  EXPECT_EQ(failure.code(), "RANK_STALLED");
  EXPECT_THAT(failure.message(),
              AllOf(HasSubstr("said nothing for 1 s and was killed; it stood still in "
                              "mlx::core::Fence::wait(mlx::core::Stream) (in libmlx.dylib): "),
                    HasSubstr("MLX waited for the GPU in its fast way")));
  EXPECT_THAT(failure.remedy(), HasSubstr("metal_fast_synch: off"));
  EXPECT_THAT(failure.evidence(), HasSubstr("Fence::wait"));
  EXPECT_THAT(LogText("m-rank0.stacks.txt"),
              HasSubstr("sampled " + std::to_string(pid) + " 1 -mayDie -file /dev/stdout"));
  EXPECT_EQ(kill(pid, 0), -1);
}

// It would exit by itself before the sampler is done: it is held.
TEST_F(SupervisedRankTest, ARankThatReportsItsStallIsHeldUntilItsStacksAreKnown) {
  SampleBy(kFenceSample);
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("stalled");
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  EXPECT_EQ(failure.code(), "RANK_STALLED");
  EXPECT_THAT(failure.message(),
              HasSubstr("rank 0 makes no progress; it stood still in mlx::core"));
  EXPECT_THAT(failure.remedy(), HasSubstr("metal_fast_synch: off"));
}

TEST_F(SupervisedRankTest, ASamplerThatHangsOrIsMissingDelaysNoKillBeyondItsLimit) {
  options_.stack_sample_limit = std::chrono::seconds(2);
  for (const bool is_missing : {false, true}) {
    SampleBy("echo 'Call graph:'; echo '  1 ibv_poll_cq  (in libibverbs) + 4'; sleep 600");
    if (is_missing) options_.stack_sampler = {"/nonexistent/sample"};
    ASSERT_TRUE(Start().ok());
    ReserveAndLaunch("stalled");
    v1::Reason failure;
    ASSERT_TRUE(WaitForFailure(&failure));
    EXPECT_EQ(failure.code(), "RANK_STALLED");
    EXPECT_EQ(failure.message(), is_missing ? "rank 0 makes no progress"
                                            : "rank 0 makes no progress; it stood still in "
                                              "ibv_poll_cq (in libibverbs)");
    OnOwner([&] { supervisor_.reset(); });
  }
}

// Another rank judged it, and the gang is ended.
TEST_F(SupervisedRankTest, ARankThatIsEndedBecauseItStalledLeavesItsStacks) {
  SampleBy(kFenceSample);
  options_.silence_limit = std::chrono::minutes(1);
  ASSERT_TRUE(Start().ok());
  const pid_t pid = ReserveAndLaunch("ready");
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_READY));
  kill(pid, SIGSTOP);
  OnOwner([&] { supervisor_->StopRanks("m", 1, "it stalled", /*at_once=*/true); });
  ASSERT_TRUE(WaitForPhase(v1::RANK_PHASE_STOPPED));
  EXPECT_THAT(LogText("m-rank0.stacks.txt"), HasSubstr("Fence::wait"));
}

// A flood of output, as of a rank with very many threads.
TEST_F(SupervisedRankTest, OfALargeSampleTheBeginningIsKept) {
  SampleBy(
      "echo 'Call graph:'; echo '  1 ibv_poll_cq  (in libibverbs) + 4'; "
      "yes '    + 1 a_call_like_any_other  (in libmlx.dylib) + 4  [0x10]' | head -c 4000000");
  ASSERT_TRUE(Start().ok());
  ReserveAndLaunch("stalled");
  v1::Reason failure;
  ASSERT_TRUE(WaitForFailure(&failure));
  EXPECT_THAT(failure.message(), HasSubstr("it stood still in ibv_poll_cq (in libibverbs)"));
  EXPECT_EQ(LogText("m-rank0.stacks.txt").size(), size_t{256} << 10);
}

}  // namespace
}  // namespace macrame::runtime
