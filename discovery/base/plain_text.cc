#include "discovery/base/plain_text.h"

#include "proto/utf8.h"

namespace macrame::discovery {

size_t PlainCharacter(std::string_view text) {
  const Utf8Character character = FirstCharacter(text);
  const char32_t c = character.value;
  const bool is_control = c < 0x20 || (c >= 0x7F && c < 0xA0);
  return is_control ? 0 : character.size;
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

std::string NetworkName(std::string_view text) {
  constexpr size_t kNetworkNameBytesMax = 64;
  return ToPlainText(text, kNetworkNameBytesMax);
}

}  // namespace macrame::discovery
