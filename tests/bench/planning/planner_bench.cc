// tests/bench/planner runs this.
//
//   planner_bench --calibration MODELS.yaml TABLE.yaml …
//   planner_bench --timing

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tests/bench/planning/calibration.h"
#include "tests/bench/planning/timing.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() >= 3 && arguments[0] == "--calibration") {
      return macrame::planner::Calibrate(arguments[1], {arguments.begin() + 2, arguments.end()});
    }
    if (arguments == std::vector<std::string>{"--timing"}) return macrame::planner::MeasureTimes();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "planner_bench: %s\n", error.what());
    return 2;
  }
  std::fprintf(stderr, "usage: planner_bench --calibration MODELS.yaml TABLE.yaml … | --timing\n");
  return 2;
}
