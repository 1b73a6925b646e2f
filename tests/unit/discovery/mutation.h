#pragma once

// Seeded damage to bytes, for tests that must survive anything: a failure repeats with its seed.

#include <random>
#include <string>

namespace macrame::tests {

// One to eight small injuries: bits flipped, bytes replaced, inserted, repeated or cut.
inline std::string Mutate(const std::string& original, std::mt19937_64& random) {
  std::string text = original;
  const auto below = [&](size_t n) {
    return n == 0 ? size_t{0} : static_cast<size_t>(random() % n);
  };
  const size_t injuries = 1 + below(8);
  for (size_t i = 0; i < injuries; ++i) {
    const size_t at = below(text.size() + 1);
    switch (below(6)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 2:
        text.insert(at, 1 + below(4), static_cast<char>(random()));
        break;
      case 3:
        text.erase(at, 1 + below(16));
        break;
      case 4:
        text.insert(at, text.substr(at, below(64)));
        break;
      default: {
        static const char* const kNasty[] = {"18446744073709551616",
                                             "-1",
                                             ":",
                                             "=",
                                             "}",
                                             "\"",
                                             "9e999",
                                             "\n",
                                             "[[[[[[",
                                             "%",
                                             "\xff\xfe"};
        text.insert(at, kNasty[below(std::size(kNasty))]);
        break;
      }
    }
  }
  return text;
}

}  // namespace macrame::tests
