#include "discovery/plain_text.h"

#include <cstdint>

namespace macrame::discovery {

size_t PlainCharacter(std::string_view text) {
  const auto at = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7F ? 1 : 0;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  uint32_t code = lead & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
    code = (code << 6) | (at(i) & 0x3F);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0xA0, 0x800, 0x10000};  // below 0xA0: C1 controls
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code >= kLeast[length] && code <= 0x10FFFF && !is_surrogate ? length : 0;
}

bool IsPlainText(std::string_view text) {
  while (!text.empty()) {
    const size_t length = PlainCharacter(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string ToPlainText(std::string_view text, size_t bytes_max) {
  std::string plain;
  while (!text.empty()) {
    const size_t length = PlainCharacter(text);
    if (plain.size() + (length == 0 ? 1 : length) > bytes_max) break;
    plain += length == 0 ? std::string_view("?") : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return plain;
}

}  // namespace macrame::discovery
