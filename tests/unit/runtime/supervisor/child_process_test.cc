// One child process from its start to its end: what it inherits, what is kept of its output, how
// its end is told, and that nothing of it or of its own children is left. The children are shells.

#include "runtime/supervisor/child_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "runtime/supervisor/last_lines.h"
#include "tests/unit/fresh_folder.h"
#include "transport/asio_dispatcher.h"

namespace macrame::runtime {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr auto kLimit = std::chrono::seconds(30);

// A child and the owner thread's dispatcher, which the test's thread runs.
class Child {
 public:
  // In the script "%" stands for the test's folder.
  explicit Child(std::string script) : folder_(FreshFolder()) {
    if (const size_t at = script.find('%'); at != script.npos) script.replace(at, 1, folder_);
    command_.arguments = {"/bin/sh", "-c", script};
    command_.environment = {"PATH=/usr/bin:/bin"};
    command_.log_path = folder_ + "/log";
    command_.log_bytes_max = 1 << 20;
    command_.last_lines_max = 5;
  }
  ~Child() {
    process_.reset();
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  ProcessCommand& command() { return command_; }
  ChildProcess& process() { return *process_; }
  const std::string& folder() const { return folder_; }

  absl::Status Start() {
    auto started = ChildProcess::Start(command_, &dispatcher_, [this](const ProcessExit& exit) {
      ++exits_;
      exit_ = exit;
      dispatcher_.Stop();
    });
    if (!started.ok()) return started.status();
    process_ = *std::move(started);
    return absl::OkStatus();
  }
  // How it ended; a failure where it does not.
  ProcessExit AwaitExit() {
    dispatcher_.PostAfter(kLimit, [this] { dispatcher_.Stop(); });
    dispatcher_.Run();
    EXPECT_TRUE(exit_.has_value()) << "it did not end";
    return exit_.value_or(ProcessExit{});
  }
  ProcessExit RunToEnd() {
    const absl::Status started = Start();
    EXPECT_TRUE(started.ok()) << started;
    return started.ok() ? AwaitExit() : ProcessExit{};
  }
  // Until the file is there, with a whole line in it; "" when it never is.
  std::string AwaitLine(const std::string& name) const {
    const auto end = std::chrono::steady_clock::now() + kLimit;
    while (std::chrono::steady_clock::now() < end) {
      const std::string text = TextOf(folder_ + "/" + name);
      if (!text.empty() && text.back() == '\n') return text.substr(0, text.size() - 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return "";
  }
  std::string Log() const { return TextOf(folder_ + "/log"); }
  // Ends the child by the destructor, before it has told anything.
  void Destroy() { process_.reset(); }
  // Runs what was posted so far.
  void RunPosted() {
    dispatcher_.Post([this] { dispatcher_.Stop(); });
    dispatcher_.Run();
  }
  int exits() const { return exits_; }

 private:
  static std::string TextOf(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }

  std::string folder_;
  ProcessCommand command_;
  transport::AsioDispatcher dispatcher_;
  std::unique_ptr<ChildProcess> process_;
  std::optional<ProcessExit> exit_;
  int exits_ = 0;
};

// A process that is gone, or one that nobody has waited for yet, takes no signal that matters; the
// second is told apart by its parent alone, so it is waited for here.
bool IsGoneSoon(pid_t pid) {
  const auto end = std::chrono::steady_clock::now() + kLimit;
  while (std::chrono::steady_clock::now() < end) {
    if (kill(pid, 0) != 0 && errno == ESRCH) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

TEST(ChildProcess, TellsHowItEnded) {
  struct Case {
    const char* script;
    int code, signal;
  };
  for (const Case& wanted : {Case{"exit 0", 0, 0}, Case{"exit 7", 7, 0}, Case{"exit 255", 255, 0},
                             Case{"kill -TERM $$", 0, SIGTERM}, Case{"kill -KILL $$", 0, SIGKILL},
                             Case{"kill -ABRT $$", 0, SIGABRT}}) {
    Child child(wanted.script);
    const ProcessExit exit = child.RunToEnd();
    EXPECT_EQ(exit.code, wanted.code) << wanted.script;
    EXPECT_EQ(exit.signal, wanted.signal) << wanted.script;
    EXPECT_EQ(child.exits(), 1) << wanted.script;
    EXPECT_EQ(waitpid(child.process().pid(), nullptr, WNOHANG), -1) << "it has been reaped";
  }
}

TEST(ChildProcess, AProgramThatCannotRunIsNamedAndNothingIsTold) {
  for (const std::string program : {"/nowhere/rankd", "/dev/null", "/"}) {
    Child child("");
    child.command().arguments = {program};
    const absl::Status started = child.Start();
    EXPECT_TRUE(absl::IsUnavailable(started)) << started;
    EXPECT_THAT(std::string(started.message()), HasSubstr("can't start " + program + ": "));
    child.RunPosted();
    EXPECT_EQ(child.exits(), 0);
  }
}

TEST(ChildProcess, LastLinesAreThoseOfErrorsAndOfOutputWhereThereAreNone) {
  Child both("echo to output; echo first >&2; echo second >&2");
  EXPECT_EQ(both.RunToEnd().last_lines, "first\nsecond");
  EXPECT_THAT(both.Log(), AllOf(HasSubstr("to output\n"), HasSubstr("first\nsecond\n")));
  Child silent("echo one; printf two");
  EXPECT_EQ(silent.RunToEnd().last_lines, "one\ntwo") << "an unfinished line counts";
  Child nothing("exit 3");
  EXPECT_EQ(nothing.RunToEnd().last_lines, "");
}

// Both pipes at once, more than any pipe holds: neither keeps the child from going on.
TEST(ChildProcess, MuchOutputOnBothPipesIsReadToItsEnd) {
  Child child(
      "i=0; while [ $i -lt 4000 ]; do echo \"output $i xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\";"
      " echo \"error $i yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\" >&2;"
      " i=$((i + 1)); done; exit 4");
  child.command().log_bytes_max = 50'000;
  const ProcessExit exit = child.RunToEnd();
  EXPECT_EQ(exit.code, 4);
  EXPECT_THAT(exit.last_lines, AllOf(HasSubstr("error 3995 "), HasSubstr("error 3999 "),
                                     Not(HasSubstr("error 3994 ")), Not(HasSubstr("output"))));
  EXPECT_LE(child.Log().size(), 50'000u + 8'192u) << "a read may go beyond";
  EXPECT_TRUE(fs::exists(child.folder() + "/log.1"));
}

TEST(ChildProcess, ALogThatCannotBeWrittenLosesNoLastLines) {
  Child child("echo why >&2; exit 9");
  child.command().log_path = "/nowhere/at/all/log";
  const ProcessExit exit = child.RunToEnd();
  EXPECT_EQ(exit.code, 9);
  EXPECT_EQ(exit.last_lines, "why");
}

TEST(ChildProcess, HasTheEnvironmentThatItIsGivenAndNoMore) {
  setenv("MACRAME_CHILD_SECRET", "secret", 1);
  Child child("echo \"A=$A B=$B secret=$MACRAME_CHILD_SECRET\"");
  child.command().environment = {"PATH=/usr/bin:/bin", "A=1", "B=two words = more"};
  EXPECT_EQ(child.RunToEnd().last_lines, "A=1 B=two words = more secret=");
  unsetenv("MACRAME_CHILD_SECRET");
}

// Numbers as the command line tells them, whatever numbers they had here, even those that they get
// there in another order.
TEST(ChildProcess, InheritsTheDescriptorsInTheirOrderAndNoOthers) {
  Child child("cat <&3; echo; cat <&4; echo; cat <&5; echo; (true <&6) 2>/dev/null || echo closed");
  int fds[3];
  for (int i = 0; i < 3; ++i) {
    const std::string path = child.folder() + "/file" + std::to_string(i);
    std::ofstream(path) << "content " << i;
    fds[i] = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fds[i], 0);
  }
  // Not close-on-exec: only what is handed on may get through.
  const int open_here = open("/dev/null", O_RDONLY);
  ASSERT_GE(open_here, 0);
  child.command().inherited = {fds[2], fds[0], fds[1]};
  EXPECT_EQ(child.RunToEnd().last_lines, "content 2\ncontent 0\ncontent 1\nclosed");
  for (const int fd : fds) {
    EXPECT_NE(fcntl(fd, F_GETFD), -1) << "they stay the caller's";
    close(fd);
  }
  close(open_here);
}

TEST(ChildProcess, ASignalGoesToTheWholeGroup) {
  Child child("sleep 300 & echo $! > '%/pid'; wait");
  ASSERT_TRUE(child.Start().ok());
  const std::string line = child.AwaitLine("pid");
  ASSERT_FALSE(line.empty());
  const pid_t grandchild = std::stoi(line);
  EXPECT_EQ(getpgid(grandchild), child.process().pid()) << "it leads a group of its own";
  EXPECT_NE(getpgid(grandchild), getpgid(0));
  child.process().Signal(SIGTERM);
  EXPECT_EQ(child.AwaitExit().signal, SIGTERM);
  EXPECT_TRUE(IsGoneSoon(grandchild));
  child.process().Signal(SIGKILL);  // nothing happens any more
}

// What a crashed rank leaves behind holds its ports and its memory.
TEST(ChildProcess, WhatItLeftBehindIsEndedWithIt) {
  Child child("(trap '' TERM HUP; sleep 300) & echo $! > '%/pid'; exit 5");
  const ProcessExit exit = child.RunToEnd();
  EXPECT_EQ(exit.code, 5) << "though somebody else still held its pipes";
  const std::string line = child.AwaitLine("pid");
  ASSERT_FALSE(line.empty());
  EXPECT_TRUE(IsGoneSoon(std::stoi(line)));
}

TEST(ChildProcess, DestroyedItIsGoneAndSaysNothing) {
  Child child("trap '' TERM; echo up > '%/up'; while :; do sleep 1; done");
  ASSERT_TRUE(child.Start().ok());
  ASSERT_EQ(child.AwaitLine("up"), "up");
  const pid_t pid = child.process().pid();
  child.Destroy();
  EXPECT_TRUE(kill(pid, 0) == -1 && errno == ESRCH) << "killed and reaped, not only told to end";
  child.RunPosted();
  EXPECT_EQ(child.exits(), 0);
}

TEST(ChildProcess, MayBeDestroyedByWhoHearsOfItsEnd) {
  transport::AsioDispatcher dispatcher;
  std::unique_ptr<ChildProcess> process;
  Child settings("exit 6");
  int code = -1;
  auto started = ChildProcess::Start(settings.command(), &dispatcher, [&](const ProcessExit& exit) {
    code = exit.code;
    process.reset();
    dispatcher.Stop();
  });
  ASSERT_TRUE(started.ok()) << started.status();
  process = *std::move(started);
  dispatcher.PostAfter(kLimit, [&] { dispatcher.Stop(); });
  dispatcher.Run();
  EXPECT_EQ(code, 6);
  EXPECT_EQ(process, nullptr);
}

// Several at once: each tells its own end, whatever the order in which they end.
TEST(ChildProcess, EachOfManyTellsItsOwnEnd) {
  constexpr int kChildren = 12;
  transport::AsioDispatcher dispatcher;
  Child settings("");
  std::vector<std::unique_ptr<ChildProcess>> processes;
  std::vector<ProcessExit> exits(kChildren);
  int left = kChildren;
  for (int i = 0; i < kChildren; ++i) {
    ProcessCommand command = settings.command();
    command.arguments[2] =
        "echo child " + std::to_string(i) + " >&2; exit " + std::to_string(i + 1);
    command.log_path = settings.folder() + "/log-" + std::to_string(i);
    auto started = ChildProcess::Start(command, &dispatcher, [&, i](const ProcessExit& exit) {
      exits[static_cast<size_t>(i)] = exit;
      if (--left == 0) dispatcher.Stop();
    });
    ASSERT_TRUE(started.ok()) << started.status();
    processes.push_back(*std::move(started));
  }
  dispatcher.PostAfter(kLimit, [&] { dispatcher.Stop(); });
  dispatcher.Run();
  for (int i = 0; i < kChildren; ++i) {
    EXPECT_EQ(exits[static_cast<size_t>(i)].code, i + 1);
    EXPECT_EQ(exits[static_cast<size_t>(i)].last_lines, "child " + std::to_string(i));
  }
}

}  // namespace
}  // namespace macrame::runtime
