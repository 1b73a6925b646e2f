#include "runtime/serving/sampling/row_sampling.h"

#include <algorithm>
#include <atomic>
#include <cmath>

namespace macrame::runtime::engine {
namespace {

// A draw may fall behind the last token that has a chance, by a rounding; that may not have a
// place.
int32_t WithPlace(int32_t token, std::span<const float> row) {
  if (std::isfinite(row[static_cast<size_t>(token)])) return token;
  const auto better = [](float a, float b) { return std::isnan(a) || a < b; };
  return static_cast<int32_t>(std::max_element(row.begin(), row.end(), better) - row.begin());
}

}  // namespace

bool CanChooseOnDevice(const RowSampling& how) {
  const bool is_typical = how.traits.temperature > 0.0 && how.traits.typical_p < 1.0;
  const bool is_changed = how.processor != nullptr && how.processor->changes_next();
  return !is_typical && !is_changed && how.structure == nullptr && !how.top_logprobs.has_value();
}

RowChoice ChoiceOf(const RowSampling& how) {
  const SamplingTraits& traits = how.traits;
  return {.temperature = traits.temperature,
          .top_k = traits.top_k,
          .top_p = traits.top_p,
          .min_p = traits.min_p,
          .seed = traits.seed,
          .position = how.position};
}

absl::StatusOr<SampledToken> SampleRow(std::span<const float> logits, const RowSampling& how,
                                       std::span<const int32_t> ahead) {
  thread_local std::vector<float> scratch;
  std::span<const float> row =
      how.processor == nullptr ? logits : how.processor->Process(logits, ahead, scratch);
  SampledToken sampled;
  if (how.structure != nullptr) {
    if (row.data() != scratch.data()) scratch.assign(row.begin(), row.end());
    const auto held = how.structure->Mask(ahead, scratch);
    if (!held.ok()) return held.status();
    sampled.is_held = *held;
    row = scratch;
  }
  const auto token = SampleToken(row, how.traits, how.position);
  if (!token.ok()) return token.status();
  sampled.token = sampled.is_held ? WithPlace(*token, row) : *token;
  if (how.top_logprobs.has_value()) {
    sampled.logprob = LogprobsOf(logits, sampled.token, *how.top_logprobs);
  }
  return sampled;
}

std::vector<absl::StatusOr<SampledToken>> SampleRows(std::span<const float> logits,
                                                     std::span<const RowSampling> rows,
                                                     kernels::ThreadPool* pool) {
  std::vector<absl::StatusOr<SampledToken>> results(rows.size());
  if (rows.empty()) return results;
  const size_t width = logits.size() / rows.size();
  // Where rows begin that rest on no draft: each with those behind it is one piece of work.
  std::vector<size_t> begins;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (row == 0 || !rows[row - 1].draft.has_value()) begins.push_back(row);
  }
  const auto sample_from = [&](size_t row) {
    std::vector<int32_t> ahead;
    while (rows[row].is_wanted) {
      const RowSampling& how = rows[row];
      results[row] = SampleRow(logits.subspan(row * width, width), how, ahead);
      if (!how.draft.has_value() || !results[row].ok()) return;
      if (results[row]->token != *how.draft) return;
      ahead.push_back(*how.draft);
      if (++row == rows.size()) return;
    }
  };
  if (pool == nullptr || begins.size() == 1 || logits.size() < kPooledLogitsMin) {
    for (const size_t row : begins) sample_from(row);
    return results;
  }
  std::atomic<size_t> next = 0;
  pool->Run([&](int, int) {
    for (size_t i = next++; i < begins.size(); i = next++) sample_from(begins[i]);
  });
  return results;
}

}  // namespace macrame::runtime::engine
