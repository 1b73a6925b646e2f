#include "runtime/serving/sampling/row_sampling.h"

#include <atomic>

namespace macrame::runtime::engine {

std::vector<absl::StatusOr<int32_t>> SampleRows(std::span<const float> logits,
                                                std::span<const RowSampling> rows,
                                                kernels::ThreadPool* pool) {
  std::vector<absl::StatusOr<int32_t>> results(rows.size());
  if (rows.empty()) return results;
  const size_t width = logits.size() / rows.size();
  // Where rows begin that rest on no draft: each with those behind it is one piece of work.
  std::vector<size_t> begins;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (row == 0 || !rows[row - 1].draft.has_value()) begins.push_back(row);
  }
  const auto sample_from = [&](size_t row) {
    while (rows[row].is_wanted) {
      const RowSampling& how = rows[row];
      results[row] = SampleToken(logits.subspan(row * width, width), how.traits, how.position);
      if (!how.draft.has_value() || !results[row].ok() || *results[row] != *how.draft) return;
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
