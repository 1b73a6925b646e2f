#pragma once

// The manual page, from the same option tree as --help. Pure.

#include <CLI/CLI.hpp>
#include <string>

namespace macrame::cli {

// clusterctl(1) in the man macros: every command with its flags and examples, the exit codes.
std::string ManPage(const CLI::App& root, const std::string& version);

}  // namespace macrame::cli
