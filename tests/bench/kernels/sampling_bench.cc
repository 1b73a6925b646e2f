// What choosing one token takes: microseconds for each way of sampling, the median of many rows.
//
//   sampling_bench [VOCABULARY]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <vector>

#include "runtime/kernels/thread_pool.h"
#include "runtime/serving/sampling/row_sampling.h"
#include "runtime/serving/sampling/sampler.h"

namespace macrame::runtime::engine {
namespace {

struct Way {
  const char* name;
  SamplingTraits traits;
  // Of an answer of 500 tokens behind a prompt of 2000.
  LogitRules rules{};
  std::optional<uint32_t> top_logprobs{};
};

const Way kWays[] = {
    {"temperature 0", {}},
    {"temperature 0.8", {.temperature = 0.8, .seed = 1}},
    {"top_p 0.95", {.temperature = 0.8, .top_p = 0.95, .seed = 1}},
    {"top_k 40", {.temperature = 0.8, .top_k = 40, .seed = 1}},
    {"min_p 0.05", {.temperature = 0.8, .min_p = 0.05, .seed = 1}},
    {"typical_p 0.9", {.temperature = 0.8, .typical_p = 0.9, .seed = 1}},
    {"repetition_penalty", {}, {.repetition_penalty = 1.1}},
    {"frequency_penalty", {}, {.frequency_penalty = 0.5}},
    {"logprobs, 20 others", {}, {}, 20},
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

// What the rules have counted so far.
LogitsProcessor ProcessorOf(const Way& way, size_t vocabulary) {
  std::mt19937 random(7);
  const auto token = [&] { return static_cast<int32_t>(random() % vocabulary); };
  std::vector<int32_t> prompt(2000);
  for (int32_t& one : prompt) one = token();
  LogitsProcessor processor(way.rules, 0, {}, prompt);
  for (int i = 0; i < 500; ++i) processor.Take(token());
  return processor;
}

RowSampling SamplingOf(const Way& way, const LogitsProcessor& processor, uint64_t position) {
  RowSampling row{way.traits, position};
  if (processor.changes_next()) row.processor = &processor;
  row.top_logprobs = way.top_logprobs;
  return row;
}

double MedianUs(const std::vector<std::vector<float>>& rows, const Way& way) {
  const LogitsProcessor processor = ProcessorOf(way, rows[0].size());
  std::vector<double> us;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 300; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const RowSampling how = SamplingOf(way, processor, i);
    sum += static_cast<uint64_t>(SampleRow(rows[i % rows.size()], how)->token);
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
    std::printf("%-24s %13.1f %12.1f\n", way.name, MedianUs(peaked, way), MedianUs(flat, way));
  }
}

// The rows of a step with sixteen answers, on one thread and on as many as there are.
void RunStep(size_t vocabulary) {
  constexpr size_t kRows = 16;
  const int threads = kernels::ThreadPool::UsableProcessors();
  std::printf("\n16 rows of a step, us         one thread   %d threads\n", threads);
  kernels::ThreadPool pool(threads);
  for (const float peak : {18.0F, 0.0F}) {
    std::vector<float> logits;
    for (uint32_t seed = 0; seed < kRows; ++seed) {
      const auto row = Row(vocabulary, peak, seed);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    for (const Way& way : kWays) {
      const LogitsProcessor processor = ProcessorOf(way, vocabulary);
      double median[2];
      for (int pooled = 0; pooled < 2; ++pooled) {
        std::vector<double> us;
        for (uint64_t step = 0; step < 20; ++step) {
          const std::vector<RowSampling> rows(kRows, SamplingOf(way, processor, step));
          const auto begin = std::chrono::steady_clock::now();
          const auto tokens = SampleRows(logits, rows, pooled == 0 ? nullptr : &pool);
          const auto took = std::chrono::steady_clock::now() - begin;
          if (!tokens[0].ok()) std::printf("no token\n");
          us.push_back(std::chrono::duration<double, std::micro>(took).count());
        }
        std::nth_element(us.begin(), us.begin() + 10, us.end());
        median[pooled] = us[10];
      }
      std::printf("%-20s %-7s %12.1f %12.1f\n", way.name, peak > 0 ? "model's" : "flat", median[0],
                  median[1]);
    }
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
  macrame::runtime::engine::RunStep(static_cast<size_t>(vocabulary));
}
