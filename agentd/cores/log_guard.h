#pragma once

// What becomes of a line before it is logged, so that nobody whose words get into the log (names of
// models, of nodes, of hosts) can forge lines in it, or roll its history away. Pure; one thread at
// a time.
//
// Control characters and what is no UTF-8 are written as \xNN. Lines that differ in numbers, ids
// and quoted names alone are of one kind: kLinesPerKindMax of these in kLogWindow are written, the
// next window's first one says how many were left out. kLinesMax bounds all kinds together.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "proto/monotonic_time.h"

namespace macrame::agentd {

inline constexpr Duration kLogWindow = std::chrono::seconds(60);
inline constexpr uint32_t kLinesPerKindMax = 20;
inline constexpr uint32_t kLinesMax = 1000;
inline constexpr size_t kLineKindsMax = 256;
inline constexpr size_t kLineBytesMax = 4096;  // the rest of a longer line is cut off

std::string EscapeLine(std::string_view text);
// "node 1a2b (ada, 'x'): 3 s" → "node # (ada, ''): # s".
std::string KindOfLine(std::string_view text);

class LogGuard {
 public:
  // What to write; nothing when the line is left out.
  std::optional<std::string> Take(std::string_view text, MonotonicTime now);

 private:
  struct Kind {
    MonotonicTime since;
    uint32_t written = 0;
    uint64_t left_out = 0;
  };
  std::map<std::string, Kind> kinds_;
  MonotonicTime since_;
  uint32_t written_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace macrame::agentd
