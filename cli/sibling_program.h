#pragma once

// Runs one of our other programs, which stand beside clusterctl.

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace macrame::cli {

// What `program` (a path, or a name for the PATH to find) writes to its standard output when it is
// given `input` on its standard input. INTERNAL when it can't be started, ends with a failure, or
// takes longer than a minute, after which it is killed.
absl::StatusOr<std::string> OutputOf(const std::string& program,
                                     const std::vector<std::string>& arguments,
                                     const std::string& input);

// Hands over what `program` writes to its standard output, as it comes, until it ends; its standard
// input is empty. When `on_output` returns false (it is also called with nothing, ten times a
// second while nothing comes) the program finds its output closed and has `kStopLimit` to end; then
// it is killed, and the status is CANCELLED. INTERNAL when the program can't be started, ends with
// a failure, or writes nothing for `idle_limit`, after which it is killed.
inline constexpr std::chrono::seconds kStopLimit{10};
absl::Status StreamOutputOf(const std::string& program, const std::vector<std::string>& arguments,
                            std::chrono::seconds idle_limit,
                            const std::function<bool(std::string_view)>& on_output);

// What is said of a program that did not do its part.
absl::Status ProgramBroken(const std::string& program, const std::string& what);

}  // namespace macrame::cli
