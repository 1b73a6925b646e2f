// tests/bench/planner runs this.
//
//   planner_bench --calibration MODELS.yaml TABLE.yaml …

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tests/bench/planning/calibration.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() >= 3 && arguments[0] == "--calibration") {
      return macrame::planner::Calibrate(arguments[1], {arguments.begin() + 2, arguments.end()});
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "planner_bench: %s\n", error.what());
    return 2;
  }
  std::fprintf(stderr, "usage: planner_bench --calibration MODELS.yaml TABLE.yaml …\n");
  return 2;
}
