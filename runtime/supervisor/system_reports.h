#pragma once

// What this system tells about processes that crash or stand still. Any thread.

#include <string>
#include <vector>

namespace macrame::runtime {

// Where the system writes reports of crashed processes. Empty: it writes none.
std::vector<std::string> CrashReportFolders();

// The program that prints the stacks of a running process; SupervisorOptions says how it is called.
// Empty: there is none.
std::vector<std::string> StackSampler();

}  // namespace macrame::runtime
