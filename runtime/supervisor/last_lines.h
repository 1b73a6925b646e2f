#pragma once

// The last lines of what a process wrote, however much it wrote.

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace macrame::runtime {

inline constexpr size_t kLineBytesMax = 512;  // the rest of a longer line is dropped

// Not thread-safe.
class LastLines {
 public:
  explicit LastLines(size_t lines_max) : lines_max_(lines_max) {}

  // Any pieces, as they come from a pipe. Control characters but tab become '?', and so does each
  // byte that is not part of a UTF-8 character: messages carry nothing else.
  void Add(std::string_view bytes);
  // The last lines, an unfinished one included, joined by newlines.
  std::string Text() const;

 private:
  const size_t lines_max_;
  std::deque<std::string> lines_;
  std::string unfinished_;
};

}  // namespace macrame::runtime
