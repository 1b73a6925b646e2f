#pragma once

// Real time that a piece of work takes, for reports beside virtual time.

#include <chrono>

namespace macrame::tests {

template <typename Work>
double MillisecondsOf(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

}  // namespace macrame::tests
