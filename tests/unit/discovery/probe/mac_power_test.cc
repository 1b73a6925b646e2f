// How often a Mac is asked for its power, and what is made of refusals. No Mac has run this.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "discovery/probe/mac_probe.h"
#include "tests/unit/discovery/captured.h"

namespace macrame::discovery {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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

// Answers powermetrics and ioreg, and counts the first.
class CountingRunner : public CommandRunner {
 public:
  CommandResult Run(const Command& command) override {
    if (command.argv[0] == "ioreg") return Said(busy ? kBusy : kIdle);
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
};

class MacPowerTest : public testing::Test {
 protected:
  v1::NodeLoad Turn() {
    now_ += std::chrono::seconds(10);
    return probe_.CollectSlowLoad(now_);
  }

  CountingRunner runner_;
  MacProbe probe_{runner_};
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

TEST_F(MacPowerTest, WithoutRootItIsNotKnownAndNotAskedAgain) {
  runner_.answer.exit_code = 1;
  runner_.answer.out = "";
  runner_.answer.err = "powermetrics must be invoked as the superuser\n";
  for (int turn = 0; turn < 20; ++turn) {
    const v1::NodeLoad load = Turn();
    EXPECT_LT(load.power_watts(), 0);
    EXPECT_FALSE(load.has_energy_joules());
  }
  EXPECT_EQ(runner_.asked, 1);
  const v1::Inventory inventory = probe_.CollectInventory({});
  const v1::Reason& last = inventory.unknown(inventory.unknown_size() - 1);
  EXPECT_THAT(last.message(), HasSubstr("power_watts: powermetrics"));
  EXPECT_THAT(last.message(), HasSubstr("superuser"));
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
