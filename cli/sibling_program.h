#pragma once

// Runs one of our other programs, which stand beside clusterctl.

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace macrame::cli {

// What `program` (a path, or a name for the PATH to find) writes to its standard output when it is
// given `input` on its standard input. INTERNAL when it can't be started, ends with a failure, or
// takes longer than a minute, after which it is killed.
absl::StatusOr<std::string> OutputOf(const std::string& program,
                                     const std::vector<std::string>& arguments,
                                     const std::string& input);

// What is said of a program that did not do its part.
absl::Status ProgramBroken(const std::string& program, const std::string& what);

}  // namespace macrame::cli
