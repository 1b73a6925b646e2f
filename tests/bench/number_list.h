#pragma once

#include <cstdlib>
#include <vector>

namespace macrame::bench {

// "1,8,256" of a command line; empty when it is no list of numbers from `least` on.
inline std::vector<int> NumberList(const char* text, int least) {
  std::vector<int> numbers;
  for (char* rest = const_cast<char*>(text); *rest != '\0'; rest += *rest == ',' ? 1 : 0) {
    char* end = rest;
    numbers.push_back(static_cast<int>(std::strtol(rest, &end, 10)));
    if (end == rest || numbers.back() < least) return {};
    rest = end;
  }
  return numbers;
}

}  // namespace macrame::bench
