#include "discovery/probe/command_runner.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "tests/unit/fresh_folder.h"

namespace macrame::discovery {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(ProcessCommandRunner, OutputAndExitCode) {
  ProcessCommandRunner runner;
  const CommandResult ok = runner.Run({.argv = {"echo", "two words", "$HOME;ls"}});
  EXPECT_TRUE(ok.Succeeded());
  EXPECT_EQ(ok.out, "two words $HOME;ls\n");  // no shell had a hand in it
  const Command failing{.argv = {"sh", "-c", "echo bad >&2; exit 7"}};
  const CommandResult failed = runner.Run(failing);
  EXPECT_EQ(failed.outcome, CommandOutcome::kExited);
  EXPECT_EQ(failed.exit_code, 7);
  EXPECT_EQ(DescribeOutcome(failing, failed), "exit code 7: bad");
}

TEST(ProcessCommandRunner, SpeaksEnglishAndKnowsOnlyItsFolders) {
  setenv("LC_ALL", "de_DE.UTF-8", 1);
  setenv("SECRET_TOKEN", "hidden", 1);
  ProcessCommandRunner runner;
  const CommandResult result = runner.Run({.argv = {"env"}});
  EXPECT_NE(result.out.find("LC_ALL=C\n"), std::string::npos);
  EXPECT_EQ(result.out.find("SECRET_TOKEN"), std::string::npos);
  ProcessCommandRunner nowhere({"/nonexistent"});
  EXPECT_EQ(nowhere.Run({.argv = {"env"}}).outcome, CommandOutcome::kNotFound);
}

TEST(ProcessCommandRunner, MissingAndSignalledAreToldApart) {
  ProcessCommandRunner runner;
  const Command missing{.argv = {"no-such-command-here"}};
  EXPECT_EQ(runner.Run(missing).outcome, CommandOutcome::kNotFound);
  EXPECT_EQ(DescribeOutcome(missing, runner.Run(missing)), "no such command");
  const CommandResult killed = runner.Run({.argv = {"sh", "-c", "kill -9 $$"}});
  EXPECT_EQ(killed.outcome, CommandOutcome::kSignalled);
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_EQ(runner.Run({}).outcome, CommandOutcome::kNotRun);
}

TEST(ProcessCommandRunner, TheWholeGroupDiesAtTheLimit) {
  ProcessCommandRunner runner;
  const std::string pid_file = FreshFolder() + "/grandchild.pid";
  const auto start = steady_clock::now();
  const Command slow{.argv = {"sh", "-c", "sleep 60 & echo $! > " + pid_file + "; wait"},
                     .limit = milliseconds(300)};
  const CommandResult result = runner.Run(slow);
  EXPECT_EQ(result.outcome, CommandOutcome::kTimedOut);
  EXPECT_LT(steady_clock::now() - start, milliseconds(2500));
  EXPECT_EQ(DescribeOutcome(slow, result), "no answer within 300 ms");
  pid_t grandchild = 0;
  std::ifstream(pid_file) >> grandchild;
  ASSERT_GT(grandchild, 0);
  // Killed; whether init has collected it yet is another matter.
  bool gone = false;
  for (int i = 0; i < 100 && !gone; ++i) {
    std::ifstream stat("/proc/" + std::to_string(grandchild) + "/stat");
    std::string pid, name, state;
    gone = !(stat >> pid >> name >> state) || state == "Z";
    if (!gone) std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_TRUE(gone);
}

TEST(ProcessCommandRunner, AGrandchildThatKeepsThePipeDoesNotDelayTheAnswer) {
  ProcessCommandRunner runner;
  const auto start = steady_clock::now();
  const CommandResult result = runner.Run({.argv = {"sh", "-c", "sleep 60 & echo done"}});
  EXPECT_EQ(result.outcome, CommandOutcome::kExited);
  EXPECT_EQ(result.out, "done\n");
  EXPECT_LT(steady_clock::now() - start, milliseconds(1500));
}

TEST(ProcessCommandRunner, OutputIsBounded) {
  ProcessCommandRunner runner;
  const CommandResult result =
      runner.Run({.argv = {"head", "-c", "10000000", "/dev/zero"}, .output_bytes_max = 1000});
  EXPECT_EQ(result.out.size(), 1000u);
  EXPECT_TRUE(result.truncated);
  EXPECT_FALSE(result.Succeeded());
}

TEST(ProcessCommandRunner, StopEndsWhatRuns) {
  ProcessCommandRunner runner;
  const auto start = steady_clock::now();
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(100));
    runner.Stop();
  });
  const CommandResult result =
      runner.Run({.argv = {"sleep", "60"}, .limit = std::chrono::seconds(60)});
  stopper.join();
  EXPECT_EQ(result.outcome, CommandOutcome::kNotRun);
  EXPECT_LT(steady_clock::now() - start, milliseconds(2500));
  EXPECT_EQ(runner.Run({.argv = {"true"}}).outcome, CommandOutcome::kNotRun);
}

TEST(ReplayCommandRunner, PlaysACapturedMachine) {
  auto runner = ReplayCommandRunner::Open("tests/captures/virtual-mac");
  ASSERT_TRUE(runner.ok()) << runner.status().message();
  EXPECT_TRUE(runner->Run({.argv = {"sw_vers"}}).Succeeded());
  EXPECT_EQ(runner->Run({.argv = {"memory_pressure", "-Q"}}).outcome, CommandOutcome::kTimedOut);
  EXPECT_EQ(runner->Run({.argv = {"pmset", "-g", "batt"}}).outcome, CommandOutcome::kNotFound);
  EXPECT_EQ(runner->Run({.argv = {"never", "captured"}}).outcome, CommandOutcome::kNotFound);
  CommandResult changed;
  changed.outcome = CommandOutcome::kExited;
  changed.exit_code = 3;
  runner->Set("sw_vers", changed);
  EXPECT_EQ(runner->Run({.argv = {"sw_vers"}}).exit_code, 3);
  EXPECT_FALSE(ReplayCommandRunner::Open("tests/captures/no-such-machine").ok());
}

}  // namespace
}  // namespace macrame::discovery
