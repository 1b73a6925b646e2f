#pragma once

// Names that came from other machines end up in terminals and logs: they must be text and nothing
// else.

#include <cstddef>
#include <string>
#include <string_view>

namespace macrame::discovery {

// Length of the well-formed character without control meaning that `text`, which is not empty,
// begins with; 0: it begins with none.
size_t PlainCharacter(std::string_view text);
// Well-formed UTF-8 without control characters (C0, DEL, C1).
bool IsPlainText(std::string_view text);
// Every offending byte replaced by '?', cut to at most `bytes_max` bytes at a character's end.
std::string ToPlainText(std::string_view text, size_t bytes_max);

// Facts of machines (models, versions, paths) are cut to this.
inline constexpr size_t kFactBytesMax = 200;
// As plain text of at most 64 bytes: names of interfaces and devices, addresses.
std::string NetworkName(std::string_view text);

}  // namespace macrame::discovery
