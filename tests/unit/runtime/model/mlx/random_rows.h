#pragma once

// Rows of logits of all kinds, how a token may be chosen from each, and what SampleToken is told of
// that.

#include <cmath>
#include <initializer_list>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "runtime/model/step/row_choice.h"
#include "runtime/serving/sampling/sampler.h"

namespace macrame::runtime::engine {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline SamplingTraits TraitsOf(const RowChoice& how) {
  return {.temperature = how.temperature,
          .top_k = how.top_k,
          .top_p = how.top_p,
          .min_p = how.min_p,
          .seed = how.seed};
}

// Rows of a step, and how a token is chosen from each.
class RandomStep {
 public:
  explicit RandomStep(uint32_t seed) : random_(seed) {}

  size_t Pick(size_t count) { return random_() % count; }
  template <typename T>
  T Any(std::initializer_list<T> of) {
    return *(of.begin() + Pick(of.size()));
  }
  // Peaked, flat, with many that are equal, masked.
  void AppendRow(size_t vocabulary, std::vector<float>& logits) {
    std::normal_distribution<float> normal(3.0F, Any({0.0F, 0.01F, 0.5F, 2.5F, 8.0F}));
    const size_t begin = logits.size();
    for (size_t i = 0; i < vocabulary; ++i) logits.push_back(normal(random_));
    const std::span<float> row(logits.data() + begin, vocabulary);
    if (Pick(3) == 0) {
      for (float& logit : row) logit = std::round(logit * 4.0F) / 4.0F;
    }
    if (Pick(3) == 0) {
      for (float& logit : row) logit = Pick(3) == 0 ? logit : -kInfinity;
    }
    row[Pick(vocabulary)] = Any({0.0F, 5.0F, 14.0F, 30.0F});
  }
  RowChoice Choice() {
    return {.temperature = Any({0.0, 1e-3, 0.3, 0.7, 0.8, 1.0, 2.5, 100.0}),
            .top_k = Any({0u, 0u, 1u, 2u, 5u, 20u, 40u, 64u, 65u, 700u}),
            .top_p = Any({1.0, 1.0, 1e-6, 0.1, 0.5, 0.9, 0.95, 0.999999}),
            .min_p = Any({0.0, 0.0, 1e-9, 0.01, 0.05, 0.5, 1.0}),
            .seed = random_(),
            .position = Pick(200'000)};
  }
  // Of one kind, so that each of the graph's forms is met.
  RowChoice Choice(size_t kind) {
    RowChoice how = Choice();
    if (kind % 6 == 0) how.temperature = 0.0;
    if (kind % 6 == 1) how.top_k = 0, how.top_p = 1.0;
    if (kind % 6 == 2) how.top_p = 1.0;
    if (kind % 6 == 3) {
      how.top_k = Any({1u, 2u, 20u, 40u, 64u});
    } else if (kind % 6 == 4 && Pick(2) == 0) {  // some of them
      how.top_k = Any({1u, 5u, 20u, 0u}), how.top_p = how.top_k == 0 ? 1.0 : how.top_p;
    }
    return how;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace macrame::runtime::engine
