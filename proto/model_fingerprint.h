#pragma once

// How a model's fingerprint is read: "WEIGHTS.TEXT", two digests. The first is of config.json and
// the weights, the second of what shapes prompts and answers: tokenizer, special tokens, chat
// template, generation_config.json. Fingerprints that were written before texts counted have the
// first part alone.

#include <string_view>

namespace macrame {

inline constexpr char kFingerprintSeparator[] = ".";

inline std::string_view WeightsPartOf(std::string_view fingerprint) {
  return fingerprint.substr(0, fingerprint.find('.'));
}

// Empty where there is none.
inline std::string_view TextPartOf(std::string_view fingerprint) {
  const size_t at = fingerprint.find('.');
  return at == std::string_view::npos ? std::string_view() : fingerprint.substr(at + 1);
}

// Whether an order for `wanted` means the model of this fingerprint.
inline bool FingerprintNames(std::string_view wanted, std::string_view fingerprint) {
  return wanted == fingerprint ||
         (TextPartOf(wanted).empty() && WeightsPartOf(fingerprint) == wanted);
}

// The same weights with other text files.
inline bool DifferInTextAlone(std::string_view one, std::string_view other) {
  return one != other && !TextPartOf(one).empty() && !TextPartOf(other).empty() &&
         WeightsPartOf(one) == WeightsPartOf(other);
}

}  // namespace macrame
