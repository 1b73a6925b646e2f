// What choosing one token takes: microseconds for each way of sampling, the median of many rows.
//
//   sampling_bench [VOCABULARY]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "runtime/serving/sampling/sampler.h"

namespace macrame::runtime::engine {
namespace {

struct Way {
  const char* name;
  SamplingTraits traits;
};

const Way kWays[] = {
    {"temperature 0", {}},
    {"temperature 0.8", {.temperature = 0.8, .seed = 1}},
    {"top_p 0.95", {.temperature = 0.8, .top_p = 0.95, .seed = 1}},
    {"top_k 40", {.temperature = 0.8, .top_k = 40, .seed = 1}},
    {"min_p 0.05", {.temperature = 0.8, .min_p = 0.05, .seed = 1}},
};

// Like a model's: a broad hill, and a few tokens that stand out by `peak`. Zero: the hill alone.
std::vector<float> Row(size_t vocabulary, float peak, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> hill(0.0F, peak > 0.0F ? 2.5F : 1.0F);
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) logit = hill(random);
  for (int i = 0; i < 20 && peak > 0.0F; ++i) {
    logits[random() % vocabulary] = peak - 0.5F * static_cast<float>(i);
  }
  return logits;
}

double MedianUs(const std::vector<std::vector<float>>& rows, const SamplingTraits& traits) {
  std::vector<double> us;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 300; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    sum += static_cast<uint64_t>(*SampleToken(rows[i % rows.size()], traits, i));
    const auto took = std::chrono::steady_clock::now() - begin;
    us.push_back(std::chrono::duration<double, std::micro>(took).count());
  }
  if (sum == 1) std::printf(" ");
  std::nth_element(us.begin(), us.begin() + 150, us.end());
  return us[150];
}

void Run(size_t vocabulary) {
  std::printf("one token of %zu, us      a model's row   a flat row\n", vocabulary);
  std::vector<std::vector<float>> peaked, flat;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    peaked.push_back(Row(vocabulary, 18.0F, seed));
    flat.push_back(Row(vocabulary, 0.0F, seed));
  }
  for (const Way& way : kWays) {
    std::printf("%-24s %13.1f %12.1f\n", way.name, MedianUs(peaked, way.traits),
                MedianUs(flat, way.traits));
  }
}

}  // namespace
}  // namespace macrame::runtime::engine

int main(int argc, char** argv) {
  const long vocabulary = argc > 1 ? std::atol(argv[1]) : 131072;
  if (vocabulary <= 0) {
    std::fprintf(stderr, "sampling_bench [VOCABULARY]\n");
    return 2;
  }
  macrame::runtime::engine::Run(static_cast<size_t>(vocabulary));
}
