#pragma once

// Text that came from elsewhere, character by character. Decoding and the properties of characters
// are utf8proc's, here and nowhere else. Pure.

#include <cstddef>
#include <string>
#include <string_view>

namespace macrame {

struct Utf8Character {
  char32_t value = 0;
  size_t size = 0;  // bytes; 0: the text begins with no well-formed character
};

// What `text` begins with. Overlong forms, surrogates, what lies beyond U+10FFFF and what is cut
// short are malformed.
Utf8Character FirstCharacter(std::string_view text);

// Where the first byte stands that is not UTF-8; text.size() when all are.
size_t FirstNonUtf8(std::string_view text);

// Each byte that is not UTF-8 replaced.
std::string AsUtf8(std::string_view text, std::string_view replacement);

// The longest beginning of at most so many bytes that ends with a whole character: what is cut and
// goes into a message must stay UTF-8.
std::string_view CutToBytes(std::string_view text, size_t bytes_max);

// How many columns of a terminal one character takes: 0 for marks that join the character before
// them (also of Thai, Arabic, Hebrew) and for signs that are not seen, 2 for wide ones (Chinese,
// Japanese, Korean, most emoji), else 1. Sequences that a terminal may draw as one picture are
// counted part by part.
int ColumnsOf(char32_t c);

}  // namespace macrame
