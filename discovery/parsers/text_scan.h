#pragma once

// Reading what commands print, without ever trusting it: output may be cut off anywhere, translated
// or from a newer system. Pure.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace macrame::discovery {

inline constexpr size_t kScannedLinesMax = 100'000;

// Lines that end with '\n', without it. A last line that does not end may be cut within a number,
// and is left out.
std::vector<std::string_view> WholeLines(std::string_view text);
std::vector<std::string_view> WholeLines(std::string&& text) = delete;  // its lines would be gone
// Words between white space.
std::vector<std::string_view> Words(std::string_view line);
std::vector<std::string_view> Words(std::string&& line) = delete;
std::string_view Trim(std::string_view text);
// What stands before and after the first `separator`, trimmed. False when there is none.
bool SplitOnce(std::string_view line, std::string_view separator, std::string_view& before,
               std::string_view& after);

// The whole text must be a number.
std::optional<uint64_t> ParseUnsigned(std::string_view text);
std::optional<double> ParseReal(std::string_view text);
// a * b unless that overflows.
std::optional<uint64_t> Multiply(uint64_t a, uint64_t b);

}  // namespace macrame::discovery
