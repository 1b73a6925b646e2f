#include "cli/format/text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "proto/bytes.h"
#include "proto/utf8.h"

namespace macrame::cli {
namespace {

// Also those that turn the direction of writing: a name must not rearrange its line.
bool IsControl(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x202A && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string Printable(std::string_view text, bool keep_lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character point = FirstCharacter(text);
    if (point.size == 0) {
      out += "\xEF\xBF\xBD";
      text.remove_prefix(1);
      continue;
    }
    const bool kept = keep_lines && (point.value == '\n' || point.value == '\t');
    if (IsControl(point.value) && !kept) {
      out += '?';
    } else {
      out += text.substr(0, point.size);
    }
    text.remove_prefix(point.size);
  }
  return out;
}

int DisplayWidth(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const Utf8Character point = FirstCharacter(text);
    width += point.size == 0 ? 1 : ColumnsOf(point.value);
    text.remove_prefix(std::max<size_t>(point.size, 1));
  }
  return width;
}

std::string CutToWidth(std::string_view text, int width) {
  if (DisplayWidth(text) <= width) return std::string(text);
  std::string out;
  int used = 0;
  while (!text.empty() && width > 0) {
    const Utf8Character point = FirstCharacter(text);
    const int more = point.size == 0 ? 1 : ColumnsOf(point.value);
    if (used + more > width - 1) break;
    used += more;
    const size_t size = std::max<size_t>(point.size, 1);
    out += text.substr(0, size);
    text.remove_prefix(size);
  }
  return width > 0 ? out + "~" : out;
}

std::string GiB(uint64_t bytes) { return FormatBytes(Bytes(bytes)); }

std::string Percent(double ratio) {
  if (!(ratio >= 0)) return "-";
  return absl::StrFormat("%.0f%%", std::min(ratio, 9.99) * 100);
}

std::string Milliseconds(double ms) {
  // What would be rounded to "1000 ms" is a second.
  return ms < 999.5 ? absl::StrFormat("%.0f ms", ms) : absl::StrFormat("%.1f s", ms / 1000);
}

std::string EstimatedRate(double per_second) {
  return per_second >= 100 ? absl::StrFormat("%.0f", per_second) : Rate(per_second);
}

std::string Rate(double per_second) {
  return per_second > 0 ? absl::StrFormat("%.1f", per_second) : std::string("-");
}

std::string Plural(uint64_t count, std::string_view noun) {
  return absl::StrFormat("%d %s%s", count, std::string(noun), count == 1 ? "" : "s");
}

std::string Bar(double ratio, int width) {
  const int inside = std::max(width - 2, 1);
  const double held = std::isfinite(ratio) ? std::clamp(ratio, 0.0, 1.0) : 0.0;
  const int full = static_cast<int>(std::floor(held * inside + 1e-9));
  return "[" + std::string(full, '#') + std::string(inside - full, '.') + "]";
}

std::string Style::Paint(std::string_view code, std::string_view text) const {
  if (!color_ || text.empty()) return std::string(text);
  return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
}

}  // namespace macrame::cli
