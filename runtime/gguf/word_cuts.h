#pragma once

// How a byte-level tokenizer cuts text into words before merges apply, by the name that GGUF gives
// it ("tokenizer.ggml.pre"). GGUF does not hold the patterns; these are the models' own, as their
// tokenizer.json have them. A name that does not stand here is refused: a guess would cut other
// words than the model was trained on.

#include <span>
#include <string_view>

namespace macrame::runtime::gguf {

struct WordCut {
  std::string_view pre;  // tokenizer.ggml.pre
  // Words by these, one after the other; empty: ByteLevel's own, GPT-2's.
  std::span<const std::string_view> patterns;
  bool single_digits = false;      // each digit is a word
  bool composes = false;           // NFC first
  bool whole_words_first = false;  // a word that is a token is that token, whatever the merges say
  bool begins_with_bos = false;    // unless the metadata says otherwise
};

std::span<const WordCut> WordCuts();
// Null when it is not known.
const WordCut* FindWordCut(std::string_view pre);

}  // namespace macrame::runtime::gguf
