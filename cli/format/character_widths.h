#pragma once

// How many columns of a terminal one character takes. Pure.

namespace macrame::cli {

// 0 for marks that join the character before them (also of Thai, Devanagari, Arabic, Hebrew) and
// for signs that are not seen, 2 for wide ones (Chinese, Japanese, Korean, most emoji), else 1.
// Sequences that a terminal may draw as one picture are counted part by part.
int CharacterWidth(char32_t c);

}  // namespace macrame::cli
