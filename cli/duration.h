#pragma once

// Lengths of time as people type them. Pure.

#include <CLI/CLI.hpp>
#include <chrono>
#include <optional>
#include <string>

namespace macrame::cli {

inline constexpr std::chrono::hours kDurationMax{24};

// "90", "90s", "1500ms", "10m", "1h"; nothing for other texts, zero, and more than kDurationMax.
std::optional<std::chrono::milliseconds> ParseDuration(const std::string& text);

// The check for an option that holds one.
CLI::Validator IsDuration();

}  // namespace macrame::cli
