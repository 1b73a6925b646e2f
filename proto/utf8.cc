#include "proto/utf8.h"

#include <utf8proc.h>

#include <algorithm>

namespace macrame {

Utf8Character FirstCharacter(std::string_view text) {
  utf8proc_int32_t value = 0;
  const utf8proc_ssize_t size =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                       static_cast<utf8proc_ssize_t>(std::min<size_t>(text.size(), 4)), &value);
  if (size <= 0) return {};
  return {static_cast<char32_t>(value), static_cast<size_t>(size)};
}

size_t FirstNonUtf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t size = FirstCharacter(text.substr(at)).size;
    if (size == 0) break;
    at += size;
  }
  return at;
}

std::string AsUtf8(std::string_view text, std::string_view replacement) {
  std::string whole;
  whole.reserve(text.size());
  while (!text.empty()) {
    const size_t size = FirstCharacter(text).size;
    whole += size == 0 ? replacement : text.substr(0, size);
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return whole;
}

std::string_view CutToBytes(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  constexpr size_t kCharacterBytesMax = 4;
  size_t end = bytes_max;
  const auto continues = [&] { return (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80; };
  while (end > 0 && bytes_max - end < kCharacterBytesMax && continues()) --end;
  return text.substr(0, end);
}

int ColumnsOf(char32_t c) {
  // Vowels and ends of syllables that Korean writes behind a first letter stand in its columns.
  if (c >= 0x1160 && c <= 0x11FF) return 0;
  const auto code = static_cast<utf8proc_int32_t>(c);
  // Marks with a place of their own, such as the vowels of Devanagari: utf8proc says 0, terminals
  // (by the C library's wcwidth) give them a column.
  if (utf8proc_category(code) == UTF8PROC_CATEGORY_MC) return 1;
  return utf8proc_charwidth(code);
}

}  // namespace macrame
