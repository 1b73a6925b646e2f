#pragma once

// From how vocabularies spell a token to the bytes that it stands for, where these are no whole
// characters. Pure.

#include <optional>
#include <string>
#include <string_view>

namespace macrame::runtime::text {

// Byte-level vocabularies (GPT-2's, and most since) write each byte as a printable character:
// "Ġ" is a space. None when a character of `spelled` stands for no byte.
std::optional<std::string> BytesOfByteLevel(std::string_view spelled);

// Vocabularies with byte fallback write a single byte as "<0xE2>". None for other spellings.
std::optional<char> ByteOfFallback(std::string_view spelled);

}  // namespace macrame::runtime::text
