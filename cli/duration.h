#pragma once

// Lengths of time as people type them. Pure.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace macrame::cli {

inline constexpr std::chrono::hours kDurationMax{24};

// "90", "90s", "1500ms", "10m", "1h", "1d"; nothing for other texts, zero, and more than `most`.
std::optional<std::chrono::milliseconds> ParseDuration(const std::string& text,
                                                       std::chrono::hours most = kDurationMax);

// The check for an option that holds one.
CLI::Validator IsDuration();
// Likewise, for days and years.
inline constexpr std::chrono::hours kLongDurationMax{24 * 3660};
CLI::Validator IsLongDuration();

uint64_t NowUnixMs();
// So long ago, or the epoch; `text` is one that ParseDuration takes. For options such as --since.
uint64_t UnixMsBefore(const std::string& text, std::chrono::hours most);

}  // namespace macrame::cli
