#pragma once

// Telling a process from a later one that was given the same pid.

#include <sys/types.h>
#include <string>

namespace macrame::runtime {

// When the process started, in a form that no other process of this pid has, across reboots too.
// Empty when there is no such process. The text means nothing but "equal or not".
std::string ProcessIdentity(pid_t pid);

}  // namespace macrame::runtime
