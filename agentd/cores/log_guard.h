#pragma once

// What becomes of a line before it is logged, so that nobody whose words get into the log (names of
// models, of nodes, of hosts) can forge lines in it, or roll its history away. Pure; one thread at
// a time.
//
// Control characters and what is no UTF-8 are written as \xNN. Lines that differ only in numbers,
// ids, addresses and quoted names are of one kind: kLinesPerKindMax of these in kLogWindow are
// written (of requests, which begin with their method, kRequestLinesMax: a few coding agents ask
// more than once a second), the next window's first one says how many were left out. kLinesMax
// bounds all kinds together. Lines with the same first word ("gateway:") come from one place. A
// place has a quarter of all kinds and lines at most, so that a flood from one place keeps no line
// of another out.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "proto/monotonic_time.h"

namespace macrame::agentd {

inline constexpr Duration kLogWindow = std::chrono::seconds(60);
inline constexpr uint32_t kLinesPerKindMax = 20;
inline constexpr uint32_t kRequestLinesMax = 100;
inline constexpr uint32_t kLinesMax = 1000;
inline constexpr size_t kLineKindsMax = 256;
inline constexpr uint32_t kLinesPerPlaceMax = kLinesMax / 4;
inline constexpr size_t kLineKindsPerPlaceMax = kLineKindsMax / 4;
inline constexpr size_t kLineBytesMax = 4096;  // the rest of a longer line is cut off

std::string EscapeLine(std::string_view text);
// "node 1a2b (ada, 'x') at fd00::7: 3 s" → "node # (ada, '') at # # s".
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
  struct Place {
    size_t kinds = 0;
    uint32_t written = 0;
  };
  // Begins a window at `now`: forgets older kinds, but for the one of `name`. The number of lines
  // that were left out before.
  uint64_t BeginWindow(const std::string& name, MonotonicTime now);
  // Whether a line of the kind `name` fits beside those of its place and of all.
  bool HasRoom(const std::string& name, const Place& place) const;

  std::map<std::string, Kind> kinds_;
  std::map<std::string, Place> places_;  // by the first word of their kinds; only those with kinds
  MonotonicTime since_;
  uint32_t written_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace macrame::agentd
