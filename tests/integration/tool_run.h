#pragma once

// Runs the built clusterctl as a person would, and waits for its end.

#include <string>

namespace macrame::tests {

struct ToolRun {
  int code = -1;
  std::string out;  // both streams
};

// `arguments` as a shell takes them; `variables` ("A=1 B=2") come before the command.
ToolRun RunTool(const std::string& arguments, const std::string& variables = "");

}  // namespace macrame::tests
