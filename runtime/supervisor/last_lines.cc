#include "runtime/supervisor/last_lines.h"

namespace macrame::runtime {
namespace {

// The bytes of the well-formed UTF-8 character that `text` begins with; 0 when there is none.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  size_t size = 0;
  if (lead >= 0xc2 && lead <= 0xdf) size = 2;
  if (lead >= 0xe0 && lead <= 0xef) size = 3;
  if (lead >= 0xf0 && lead <= 0xf4) size = 4;
  if (size == 0 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Longer than need be, a surrogate, or beyond the last code point.
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f)) return 0;
  if ((lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f)) return 0;
  return size;
}

std::string AsUtf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t size = CharacterBytes(bytes);
    if (size == 0) {
      text += '?';
    } else {
      text += bytes.substr(0, size);
    }
    bytes.remove_prefix(size == 0 ? 1 : size);
  }
  return text;
}

}  // namespace

void LastLines::Add(std::string_view bytes) {
  for (const char c : bytes) {
    if (c == '\n') {
      if (!unfinished_.empty()) lines_.push_back(AsUtf8(unfinished_));
      unfinished_.clear();
      if (lines_.size() > lines_max_) lines_.pop_front();
    } else if (unfinished_.size() < kLineBytesMax) {
      const unsigned char byte = static_cast<unsigned char>(c);
      unfinished_ += (byte < 0x20 && c != '\t') || byte == 0x7f ? '?' : c;
    }
  }
}

std::string LastLines::Text() const {
  std::string text;
  for (const std::string& line : lines_) {
    if (!text.empty()) text += '\n';
    text += line;
  }
  if (unfinished_.empty()) return text;
  const std::string last = AsUtf8(unfinished_);
  return text.empty() ? last : text + "\n" + last;
}

}  // namespace macrame::runtime
