#pragma once

// Words and figures for people, safe to print: what came from other machines can't move the cursor.
// Pure.

#include <cstdint>
#include <string>
#include <string_view>

namespace macrame::cli {

// Control characters (C0 but tab and line break when `keep_lines`, DEL, C1) become '?', bytes that
// are not UTF-8 U+FFFD.
std::string Printable(std::string_view text, bool keep_lines = false);

// Columns on a terminal: wide characters take two, combining marks none.
int DisplayWidth(std::string_view text);
// At most `width` columns, the cut marked with "~".
std::string CutToWidth(std::string_view text, int width);

std::string GiB(uint64_t bytes);                            // "36.0 GiB", "512 MiB"
std::string Percent(double ratio);                          // "42%"; "-" when negative
std::string Milliseconds(double ms);                        // "35 ms", "1.2 s"
std::string EstimatedRate(double per_second);               // "31.6", "144"; "-" when zero
std::string Rate(double per_second);                        // "35.0"; "-" when zero
std::string Plural(uint64_t count, std::string_view noun);  // "1 node", "3 nodes"
// "[#####.....]" of `width` columns in all.
std::string Bar(double ratio, int width);

// Colours, when they are wanted.
class Style {
 public:
  explicit Style(bool color = false) : color_(color) {}
  std::string Good(std::string_view text) const { return Paint("32", text); }
  std::string Warn(std::string_view text) const { return Paint("33", text); }
  std::string Bad(std::string_view text) const { return Paint("31", text); }
  std::string Bold(std::string_view text) const { return Paint("1", text); }
  std::string Dim(std::string_view text) const { return Paint("2", text); }
  bool color() const { return color_; }

 private:
  std::string Paint(std::string_view code, std::string_view text) const;
  bool color_;
};

}  // namespace macrame::cli
