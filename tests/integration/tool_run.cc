#include "tests/integration/tool_run.h"

#include <sys/wait.h>

#include <cstdio>

namespace macrame::tests {

ToolRun RunTool(const std::string& arguments, const std::string& variables) {
  const std::string command = variables + " " MACRAME_BIN "/clusterctl " + arguments + " 2>&1";
  ToolRun run;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return run;
  char block[4096];
  for (size_t got = 0; (got = fread(block, 1, sizeof block, pipe)) > 0;) run.out.append(block, got);
  const int status = pclose(pipe);
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return run;
}

}  // namespace macrame::tests
