#pragma once

// What the cost model says of published speeds: predicted, error, and the error with that figure
// left out of the fit of the parameters.

#include <string>
#include <vector>

namespace macrame::planner {

// Prints the table. 0: median error under 12 %, none over 30 %, and every "does another node help"
// answered as published; 1: not, or a figure's model or chip is not known; throws when a file can't
// be read or lacks what is needed.
int Calibrate(const std::string& models_path, const std::vector<std::string>& tables);

}  // namespace macrame::planner
