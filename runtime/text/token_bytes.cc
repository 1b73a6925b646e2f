#include "runtime/text/token_bytes.h"

#include <array>
#include <cstdint>

namespace macrame::runtime::text {
namespace {

// The characters are below U+0144: those bytes that print stand for themselves, the other 68 were
// given the characters from U+0100 on, in order.
constexpr uint32_t kCharactersEnd = 0x100 + 68;

constexpr bool StandsForItself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

constexpr std::array<int16_t, kCharactersEnd> MakeBytes() {
  std::array<int16_t, kCharactersEnd> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 0x100; ++byte) {
    bytes[StandsForItself(byte) ? byte : next++] = static_cast<int16_t>(byte);
  }
  return bytes;
}

constexpr std::array<int16_t, kCharactersEnd> kBytes = MakeBytes();

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::optional<std::string> BytesOfByteLevel(std::string_view spelled) {
  std::string bytes;
  for (size_t i = 0; i < spelled.size(); ++i) {
    uint32_t character = static_cast<unsigned char>(spelled[i]);
    if (character >= 0x80) {
      // What is below U+0144 has two bytes.
      if ((character & 0xE0U) != 0xC0U || i + 1 == spelled.size()) return std::nullopt;
      character = (character & 0x1FU) << 6 | (static_cast<unsigned char>(spelled[++i]) & 0x3FU);
    }
    if (character >= kCharactersEnd || kBytes[character] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kBytes[character]));
  }
  return bytes;
}

std::optional<char> ByteOfFallback(std::string_view spelled) {
  if (spelled.size() != 6 || spelled.substr(0, 3) != "<0x" || spelled[5] != '>') {
    return std::nullopt;
  }
  const int high = HexDigit(spelled[3]), low = HexDigit(spelled[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

}  // namespace macrame::runtime::text
