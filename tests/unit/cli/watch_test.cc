// What goes on until Ctrl-C: `status --watch` and a long answer.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "cli/exit_codes.h"
#include "tests/unit/cli/cli_run.h"
#include "tests/unit/cli/fake_cluster_service.h"

namespace macrame::cli {
namespace {

// Sends SIGINT to this process once `ready`, or after 5 s.
class CtrlC {
 public:
  explicit CtrlC(std::function<bool()> ready)
      : thread_([ready = std::move(ready)] {
          for (int i = 0; i < 1000 && !ready(); ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          kill(getpid(), SIGINT);
        }) {}
  ~CtrlC() { thread_.join(); }

 private:
  std::thread thread_;
};

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

TEST(Watch, RepaintsInPlaceAndShowsTheCursorAgain) {
  FakeAgent agent;
  CliWorld world;
  world.out_is_terminal = true;
  CliRun run;
  {
    CtrlC ctrl_c([&] { return agent.service.watches > 0; });
    run = Clusterctl({"status", "--watch", "--socket", agent.socket_path()}, world);
  }
  EXPECT_EQ(run.exit_code, kExitInterrupted);
  EXPECT_EQ(Count(run.out, "\x1b[?25l"), 1u);
  EXPECT_EQ(run.out.substr(run.out.size() - 6), "\x1b[?25h");
  EXPECT_GT(Count(run.out, "All nodes healthy"), 1u);
  EXPECT_GT(Count(run.out, "F"), 1u);
}

TEST(Watch, TopTakesTheOtherScreenAndGivesItBack) {
  FakeAgent agent;
  CliWorld world;
  world.out_is_terminal = true;
  CliRun run;
  {
    CtrlC ctrl_c([&] { return agent.service.watches > 0; });
    run = Clusterctl({"top", "--socket", agent.socket_path()}, world);
  }
  EXPECT_EQ(run.exit_code, kExitInterrupted);
  EXPECT_EQ(run.out.find("\x1b[?1049h"), 0u);
  EXPECT_EQ(run.out.substr(run.out.size() - 8), "\x1b[?1049l");
  EXPECT_GT(Count(run.out, "q quits"), 0u);
  EXPECT_EQ(Clusterctl({"top", "--socket", agent.socket_path()}).exit_code, kExitUsage)
      << "no terminal";
}

TEST(Watch, SurvivesAnAgentThatEndsTheStream) {
  FakeAgent agent;
  agent.service.statuses_per_watch = 1;
  CliRun run;
  {
    CtrlC ctrl_c([&] { return agent.service.watches >= 2; });
    run = Clusterctl({"status", "--watch", "--json", "--socket", agent.socket_path()});
  }
  EXPECT_EQ(run.exit_code, kExitInterrupted);
  EXPECT_GE(agent.service.watches, 2);
  EXPECT_GE(Count(run.out, "\n"), 2u);
  EXPECT_EQ(Count(run.out, "\n"), Count(run.out, "\"kind\":\"ClusterStatus\""));
}

TEST(Watch, AnAgentThatNeverAnsweredIsAnError) {
  EXPECT_EQ(Clusterctl({"status", "--watch", "--socket", "/nowhere/x.sock"}).exit_code,
            kExitUnreachable);
}

TEST(Watch, CtrlCEndsAnAnswerAndCancelsIt) {
  FakeAgent agent;
  CliRun run;
  {
    CtrlC ctrl_c([&] { return agent.service.last_infer.deployment() == "slow"; });
    run = Clusterctl({"model", "infer", "slow", "-p", "x", "--socket", agent.socket_path()});
  }
  EXPECT_EQ(run.exit_code, kExitInterrupted);
  for (int i = 0; i < 400 && !agent.service.infer_was_cancelled; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(agent.service.infer_was_cancelled);
}

}  // namespace
}  // namespace macrame::cli
