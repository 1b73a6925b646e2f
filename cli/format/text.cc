#include "cli/format/text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "cli/format/character_widths.h"
#include "proto/bytes.h"

namespace macrame::cli {
namespace {

// One code point of UTF-8; `size` 0 when the bytes are malformed.
struct CodePoint {
  char32_t value = 0;
  size_t size = 0;
};

CodePoint Decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t size = lead >= 0xF0 && lead <= 0xF4  ? 4
                      : lead >= 0xE0 && lead < 0xF0 ? 3
                      : lead >= 0xC2 && lead < 0xE0 ? 2
                                                    : 0;
  if (size == 0 || text.size() < size) return {};
  char32_t value = lead & (0x7F >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    value = (value << 6) | (byte(i) & 0x3F);
  }
  const bool overlong = (size == 3 && value < 0x800) || (size == 4 && value < 0x10000);
  if (overlong || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return {};
  return {value, size};
}

// Also those that turn the direction of writing: a name must not rearrange its line.
bool IsControl(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x202A && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

size_t FirstNonUtf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t size = Decode(text.substr(at)).size;
    if (size == 0) break;
    at += size;
  }
  return at;
}

std::string Printable(std::string_view text, bool keep_lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = Decode(text);
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
    const CodePoint point = Decode(text);
    width += point.size == 0 ? 1 : CharacterWidth(point.value);
    text.remove_prefix(std::max<size_t>(point.size, 1));
  }
  return width;
}

std::string CutToWidth(std::string_view text, int width) {
  if (DisplayWidth(text) <= width) return std::string(text);
  std::string out;
  int used = 0;
  while (!text.empty() && width > 0) {
    const CodePoint point = Decode(text);
    const int more = point.size == 0 ? 1 : CharacterWidth(point.value);
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
  return ms < 1000 ? absl::StrFormat("%.0f ms", ms) : absl::StrFormat("%.1f s", ms / 1000);
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
