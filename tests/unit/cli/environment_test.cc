#include "cli/environment.h"

#include <gtest/gtest.h>

#include <map>

namespace macrame::cli {
namespace {

bool Colored(ColorMode mode, bool terminal, std::map<std::string, std::string> variables) {
  Environment environment;
  environment.out_is_terminal = terminal;
  environment.variable = [variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
  return UseColor(mode, environment);
}

TEST(Environment, ColourFollowsFlagThenVariablesThenTerminal) {
  EXPECT_TRUE(Colored(ColorMode::kAuto, true, {}));
  EXPECT_FALSE(Colored(ColorMode::kAuto, false, {}));
  EXPECT_FALSE(Colored(ColorMode::kAuto, true, {{"NO_COLOR", "1"}}));
  EXPECT_TRUE(Colored(ColorMode::kAuto, true, {{"NO_COLOR", ""}}));
  EXPECT_FALSE(Colored(ColorMode::kAuto, true, {{"TERM", "dumb"}}));
  EXPECT_TRUE(Colored(ColorMode::kAuto, false, {{"FORCE_COLOR", "1"}}));
  EXPECT_FALSE(Colored(ColorMode::kAuto, false, {{"CLICOLOR_FORCE", "0"}}));
  EXPECT_FALSE(Colored(ColorMode::kAuto, true, {{"NO_COLOR", "1"}, {"FORCE_COLOR", "1"}}));
  EXPECT_TRUE(Colored(ColorMode::kAlways, false, {{"NO_COLOR", "1"}}));
  EXPECT_FALSE(Colored(ColorMode::kNever, true, {{"FORCE_COLOR", "1"}}));
}

TEST(Environment, WidthIsTheTerminalsOrAFixedOne) {
  Environment environment;
  environment.terminal_size = [] { return TerminalSize{20, 5}; };
  EXPECT_EQ(OutputColumns(environment), 120);
  environment.out_is_terminal = true;
  EXPECT_EQ(OutputColumns(environment), 40);
  environment.terminal_size = [] { return TerminalSize{97, 5}; };
  EXPECT_EQ(OutputColumns(environment), 97);
}

}  // namespace
}  // namespace macrame::cli
