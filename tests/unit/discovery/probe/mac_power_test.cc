// How often a Mac is asked for its power, and what is made of refusals. No Mac has run this.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "discovery/probe/mac_probe.h"
#include "tests/unit/discovery/captured.h"

namespace macrame::discovery {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

CommandResult Said(std::string out) {
  CommandResult result;
  result.outcome = CommandOutcome::kExited;
  result.exit_code = 0;
  result.out = std::move(out);
  return result;
}

CommandResult Missing() {
  CommandResult result;
  result.outcome = CommandOutcome::kNotFound;
  return result;
}

CommandResult WantsRoot() {
  CommandResult result = Said("");
  result.exit_code = 1;
  result.err = "powermetrics must be invoked as the superuser\n";
  return result;
}

constexpr char kHomebrew[] = "/opt/homebrew/bin/macmon";

// Answers powermetrics, macmon and ioreg, and counts the first two.
class CountingRunner : public CommandRunner {
 public:
  CommandResult Run(const Command& command) override {
    if (command.argv[0] == "ioreg") return Said(busy ? kBusy : kIdle);
    if (command.argv[0] == macmon_at) {
      ++macmon_asked;
      EXPECT_LE(command.limit, std::chrono::seconds(5));
      EXPECT_THAT(CommandLine(command), HasSubstr("macmon pipe -s 1"));
      return macmon;
    }
    if (command.argv[0] != "powermetrics") return Missing();
    ++asked;
    limit = command.limit;
    return answer;
  }

  static constexpr char kBusy[] =
      "+-o AGXAcceleratorG15X  <class AGX>\n  \"PerformanceStatistics\" = {\"Device Utilization "
      "%\"=93,\"x\"=1}\n";
  static constexpr char kIdle[] =
      "+-o AGXAcceleratorG15X  <class AGX>\n  \"PerformanceStatistics\" = {\"Device Utilization "
      "%\"=2,\"x\"=1}\n";
  bool busy = true;
  int asked = 0;
  Duration limit{};
  CommandResult answer = Said(tests::Captured("powermetrics/studio-busy.txt"));
  std::string macmon_at;  // empty: there is none
  int macmon_asked = 0;
  CommandResult macmon = Said(tests::Captured("macmon/before-0.8.txt"));
};

class MacPowerTest : public testing::Test {
 protected:
  v1::NodeLoad Turn() {
    now_ += std::chrono::seconds(10);
    return probe_.CollectSlowLoad(now_);
  }

  std::string PowerUnknown() {
    const v1::Inventory inventory = probe_.CollectInventory({});
    const std::string last = inventory.unknown_size() == 0
                                 ? ""
                                 : inventory.unknown(inventory.unknown_size() - 1).message();
    return last.starts_with("power_watts: ") ? last : "";
  }

  CountingRunner runner_;
  MacProbe probe_{runner_, {"/opt/homebrew/bin", "/usr/local/bin"}};
  MonotonicTime now_;
};

TEST_F(MacPowerTest, ABusyMacIsAskedEachTime) {
  EXPECT_DOUBLE_EQ(Turn().power_watts(), 74.025);
  const v1::NodeLoad load = Turn();
  EXPECT_EQ(runner_.asked, 2);
  EXPECT_THAT(load.power_parts(),
              ElementsAre(v1::POWER_PART_CPU, v1::POWER_PART_GPU, v1::POWER_PART_ANE));
  EXPECT_DOUBLE_EQ(load.energy_joules(), 740.25);
  EXPECT_LE(runner_.limit, std::chrono::seconds(5));
}

TEST_F(MacPowerTest, AnIdleMacIsAskedOnceAMinuteAndItsFigureStandsInBetween) {
  runner_.busy = false;
  for (int turn = 0; turn < 12; ++turn) EXPECT_DOUBLE_EQ(Turn().power_watts(), 74.025) << turn;
  EXPECT_EQ(runner_.asked, 2);
  runner_.busy = true;
  Turn();
  EXPECT_EQ(runner_.asked, 3) << "once there is work it is asked at once";
}

TEST_F(MacPowerTest, WithoutRootAndMacmonItIsNotKnownAndBothWaysAreNamed) {
  runner_.answer = WantsRoot();
  for (int turn = 0; turn < 20; ++turn) {
    const v1::NodeLoad load = Turn();
    EXPECT_LT(load.power_watts(), 0);
    EXPECT_FALSE(load.has_energy_joules());
  }
  EXPECT_EQ(runner_.asked, 1);
  EXPECT_THAT(PowerUnknown(), HasSubstr("powermetrics: exit code 1: powermetrics must be invoked "
                                        "as the superuser; macmon: no such command"));
  EXPECT_THAT(PowerUnknown(), HasSubstr("Run the agent as root"));
  EXPECT_THAT(PowerUnknown(), HasSubstr("brew install macmon"));
}

TEST_F(MacPowerTest, WithoutRootMacmonTellsIt) {
  runner_.answer = WantsRoot();
  for (const char* place : {"macmon", kHomebrew, "/usr/local/bin/macmon"}) {
    runner_.macmon_at = place;
    EXPECT_DOUBLE_EQ(Turn().power_watts(), 96.625) << place;
  }
  EXPECT_EQ(runner_.asked, 1) << "what wants root once wants it again";
  EXPECT_EQ(runner_.macmon_asked, 3) << "a busy Mac is asked each time";
  EXPECT_THAT(Turn().power_parts(), ElementsAre(v1::POWER_PART_MACHINE));
  EXPECT_EQ(PowerUnknown(), "");
}

TEST_F(MacPowerTest, WhereRootAsksMacmonIsLeftAlone) {
  runner_.macmon_at = kHomebrew;
  for (int turn = 0; turn < 5; ++turn) EXPECT_DOUBLE_EQ(Turn().power_watts(), 74.025);
  runner_.answer.outcome = CommandOutcome::kTimedOut;
  Turn();
  EXPECT_EQ(runner_.macmon_asked, 0);
}

TEST_F(MacPowerTest, MacmonIsAskedOfAnIdleMacOnceAMinute) {
  runner_.answer = WantsRoot();
  runner_.macmon_at = kHomebrew;
  runner_.busy = false;
  for (int turn = 0; turn < 12; ++turn) EXPECT_DOUBLE_EQ(Turn().power_watts(), 96.625) << turn;
  EXPECT_EQ(runner_.macmon_asked, 2);
}

TEST_F(MacPowerTest, AMacmonThatFailsIsAskedLessOftenAndNamed) {
  runner_.answer = WantsRoot();
  runner_.macmon_at = kHomebrew;
  const CommandResult good = runner_.macmon;
  runner_.macmon.outcome = CommandOutcome::kSignalled;
  runner_.macmon.signal = 6;
  for (int turn = 0; turn < 3 + 12; ++turn) EXPECT_LT(Turn().power_watts(), 0);
  EXPECT_EQ(runner_.macmon_asked, 3 + 2);
  EXPECT_THAT(PowerUnknown(), HasSubstr("macmon: ended by signal 6"));
  EXPECT_THAT(PowerUnknown(), HasSubstr("Run the agent as root"));
  runner_.macmon = Said("no JSON\n");
  for (int turn = 0; turn < kIdlePowerTurns; ++turn) Turn();
  EXPECT_THAT(PowerUnknown(), HasSubstr("macmon: its output does not tell"));
  EXPECT_THAT(PowerUnknown(), Not(HasSubstr("signal")));
  runner_.macmon = good;
  for (int turn = 0; turn < kIdlePowerTurns - 1; ++turn) Turn();
  EXPECT_DOUBLE_EQ(Turn().power_watts(), 96.625);
  EXPECT_EQ(PowerUnknown(), "");
}

TEST_F(MacPowerTest, AMacmonThatIsInstalledLaterIsFound) {
  runner_.answer = WantsRoot();
  for (int turn = 0; turn < 5; ++turn) EXPECT_LT(Turn().power_watts(), 0);
  runner_.macmon_at = kHomebrew;
  for (int turn = 0; turn < kIdlePowerTurns; ++turn) Turn();
  EXPECT_DOUBLE_EQ(Turn().power_watts(), 96.625);
  EXPECT_EQ(PowerUnknown(), "");
}

TEST(MacmonFolders, AreThoseOfPathAndOfHomebrew) {
  const char* before = std::getenv("PATH");
  const std::string path = before == nullptr ? "" : before;
  setenv("PATH", "/opt/local/bin::bin:/usr/bin", 1);
  EXPECT_THAT(MacProbe::MacmonFolders(),
              ElementsAre("/opt/local/bin", "/usr/bin", "/opt/homebrew/bin", "/usr/local/bin"));
  unsetenv("PATH");
  EXPECT_THAT(MacProbe::MacmonFolders(), ElementsAre("/opt/homebrew/bin", "/usr/local/bin"));
  setenv("PATH", path.c_str(), 1);
}

TEST_F(MacPowerTest, OtherTroublePassesAndIsAskedLessOftenWhileItLasts) {
  const CommandResult good = runner_.answer;
  runner_.answer.outcome = CommandOutcome::kTimedOut;
  for (int turn = 0; turn < 3 + 12; ++turn) EXPECT_LT(Turn().power_watts(), 0);
  EXPECT_EQ(runner_.asked, 3 + 2);
  runner_.answer = good;
  for (int turn = 0; turn < kIdlePowerTurns - 1; ++turn) Turn();
  EXPECT_DOUBLE_EQ(Turn().power_watts(), 74.025);
}

}  // namespace
}  // namespace macrame::discovery
