// What keeps a Mac awake beside a rank: caffeinate's part is played by a script that notes how it
// was started.

#include "runtime/process/keep_awake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::runtime::engine {
namespace {

constexpr int kLimitMs = 30'000;

class KeepAwake : public ::testing::Test {
 protected:
  // Notes its arguments and its group, and ends once the process is gone that it waits for.
  std::string Script() {
    const std::string path = folder_ + "/caffeinate";
    std::ofstream(path) << "#!/bin/sh\n"
                        << "echo \"$@\" >" << folder_ << "/told.new\n"
                        << "mv " << folder_ << "/told.new " << folder_ << "/told\n"
                        << "while kill -0 \"$3\" 2>/dev/null; do sleep 0.02; done\n"
                        << "echo over >" << folder_ << "/over.new\n"
                        << "mv " << folder_ << "/over.new " << folder_ << "/over\n";
    chmod(path.c_str(), 0700);
    return path;
  }
  // Stands for a rank until it is killed.
  [[noreturn]] static void Live(const absl::Status& started) {
    alarm(kLimitMs / 1000);
    if (started.ok()) pause();
    _exit(1);
  }
  std::string WhenThere(const std::string& name) const {
    const std::string path = folder_ + "/" + name;
    for (int waited = 0; waited < kLimitMs && !std::filesystem::exists(path); waited += 10) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  const std::string folder_ = FreshFolder();
};

TEST_F(KeepAwake, ItLastsAsLongAsTheProcessHoweverThatEnds) {
  const std::string script = Script();
  const pid_t rank = fork();
  if (rank == 0) Live(KeepAwakeWhileRunning(script));
  ASSERT_GT(rank, 0);
  EXPECT_EQ(WhenThere("told"), absl::StrCat("-s -w ", rank, "\n"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/over"));
  kill(rank, SIGKILL);
  ASSERT_EQ(waitpid(rank, nullptr, 0), rank);
  EXPECT_THAT(WhenThere("over"), ::testing::HasSubstr("over"));
}

// A socket or pipe of the rank that it held open would outlive the rank.
TEST_F(KeepAwake, ItHoldsNothingOfTheRankOpen) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string script = Script();
  const pid_t rank = fork();
  if (rank == 0) {
    const absl::Status started = KeepAwakeWhileRunning(script);
    close(ends[1]);
    Live(started);
  }
  ASSERT_GT(rank, 0);
  close(ends[1]);
  EXPECT_FALSE(WhenThere("told").empty());
  pollfd end{ends[0], POLLIN, 0};
  EXPECT_EQ(poll(&end, 1, kLimitMs), 1) << "the pipe's other end is still open somewhere";
  close(ends[0]);
  kill(rank, SIGKILL);
  ASSERT_EQ(waitpid(rank, nullptr, 0), rank);
  WhenThere("over");
}

TEST_F(KeepAwake, WhatCantBeStartedIsNamed) {
  const absl::Status missing = KeepAwakeWhileRunning(folder_ + "/none");
  EXPECT_FALSE(missing.ok());
  EXPECT_THAT(std::string(missing.message()), ::testing::HasSubstr("/none can't be started"));
}

}  // namespace
}  // namespace macrame::runtime::engine
