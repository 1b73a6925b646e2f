#include "cli/format/bench_statistics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macrame::cli {
namespace {

using Interval = std::pair<double, double>;

double LengthOfUnion(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  double length = 0, end = 0;
  for (const auto& [from, to] : intervals) {
    const double begin = std::max(from, end);
    if (to > begin) length += to - begin;
    end = std::max(end, to);
  }
  return length;
}

double PerSecond(double tokens, double ms) { return ms > 0 ? tokens * 1000 / ms : 0; }

// SplitMix64: the same text for the same numbers on every machine.
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

constexpr const char* kWords[] = {"river", "stone", "green", "seven", "light",  "paper",
                                  "north", "apple", "table", "glass", "winter", "music",
                                  "horse", "cloud", "bread", "ship"};

void AppendWords(std::string& text, uint64_t seed, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    if (!text.empty()) text += ' ';
    text += kWords[Mix(seed + i) % std::size(kWords)];
  }
}

}  // namespace

double QuantileOf(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto count = static_cast<double>(values.size());
  const auto rank = static_cast<size_t>(std::ceil(std::clamp(share, 0.0, 1.0) * count));
  const size_t index = rank == 0 ? 0 : rank - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(index), values.end());
  return values[index];
}

BenchRow Summarize(const BenchCase& asked, const std::vector<BenchSample>& samples) {
  BenchRow row;
  row.asked = asked;
  std::vector<double> first, per_token;
  std::vector<Interval> waiting, answering;
  double prompt = 0, computed = 0, answer = 0, after_first = 0, begin = 0, end = 0;
  for (const BenchSample& sample : samples) {
    begin = row.requests == 0 ? sample.sent_ms : std::min(begin, sample.sent_ms);
    end = std::max(end, sample.ended_ms);
    ++row.requests;
    if (!sample.error.empty()) {
      ++row.errors;
      if (row.first_error.empty()) row.first_error = sample.error;
      continue;
    }
    prompt += sample.prompt_tokens;
    computed += sample.prompt_tokens - std::min(sample.cached_tokens, sample.prompt_tokens);
    answer += sample.completion_tokens;
    row.cached_tokens += sample.cached_tokens;
    if (sample.first_token_ms < 0) continue;
    first.push_back(sample.first_token_ms - sample.sent_ms);
    if (sample.completion_tokens > sample.first_tokens) {
      per_token.push_back((sample.last_token_ms - sample.first_token_ms) /
                          (sample.completion_tokens - sample.first_tokens));
    }
    waiting.emplace_back(sample.sent_ms, sample.first_token_ms);
    answering.emplace_back(sample.first_token_ms, sample.ended_ms);
    if (sample.completion_tokens > 1) after_first += sample.completion_tokens - 1;
  }
  const double answered = row.requests - row.errors;
  if (answered > 0) {
    row.prompt_tokens = prompt / answered;
    row.answer_tokens = answer / answered;
  }
  row.ttft_p50_ms = QuantileOf(first, 0.5);
  row.ttft_p95_ms = QuantileOf(first, 0.95);
  row.ttft_max_ms = QuantileOf(first, 1);
  row.tpot_p50_ms = QuantileOf(per_token, 0.5);
  row.tpot_p95_ms = QuantileOf(per_token, 0.95);
  row.prefill_rate = PerSecond(computed, LengthOfUnion(std::move(waiting)));
  row.decode_rate = PerSecond(after_first, LengthOfUnion(std::move(answering)));
  row.total_rate = PerSecond(prompt + answer, end - begin);
  row.seconds = (end - begin) / 1000;
  return row;
}

std::string BenchPrompt(uint64_t seed, uint64_t number, uint32_t words, uint32_t shared_words) {
  std::string text;
  const uint32_t shared = std::min(shared_words, words);
  AppendWords(text, Mix(seed), shared);
  if (words == shared) return text;
  // Digits first: texts of sixteen words may begin alike.
  absl::StrAppend(&text, text.empty() ? "" : " ", Mix(seed ^ Mix(number + 1)) % 1'000'000);
  AppendWords(text, Mix(seed ^ Mix(number + 1)), words - shared - 1);
  return text;
}

}  // namespace macrame::cli
