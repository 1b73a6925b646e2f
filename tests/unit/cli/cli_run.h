#pragma once

// Runs clusterctl in this process, with streams that can be read afterwards.

#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cli/app.h"

namespace macrame::cli {

struct CliRun {
  int exit_code = -1;
  std::string out, err;
};

struct CliWorld {
  std::map<std::string, std::string> variables;
  std::string stdin_text;
  bool in_is_terminal = false;
  bool out_is_terminal = false;
  TerminalSize size{100, 40};
  // On the command's thread, each time that it has written something: all that it wrote.
  std::function<void(const std::string& out)> on_output;
};

// What tells of each flush.
class ToldText : public std::stringbuf {
 public:
  explicit ToldText(const CliWorld& world) : world_(world) {}

 private:
  int sync() override {
    if (world_.on_output) world_.on_output(str());
    return 0;
  }
  const CliWorld& world_;
};

inline CliRun Clusterctl(const std::vector<std::string>& arguments, const CliWorld& world = {}) {
  std::istringstream in(world.stdin_text);
  ToldText written(world);
  std::ostream out(&written);
  std::ostringstream err;
  Environment environment;
  environment.in = &in;
  environment.out = &out;
  environment.err = &err;
  environment.in_is_terminal = world.in_is_terminal;
  environment.out_is_terminal = world.out_is_terminal;
  environment.err_is_terminal = world.out_is_terminal;
  environment.terminal_size = [&] { return world.size; };
  environment.variable = [&](const char* name) {
    const auto found = world.variables.find(name);
    return found == world.variables.end() ? std::string() : found->second;
  };
  const int exit_code = RunClusterctl(arguments, environment);
  return {exit_code, written.str(), err.str()};
}

}  // namespace macrame::cli
