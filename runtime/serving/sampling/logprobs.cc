#include "runtime/serving/sampling/logprobs.h"

#include <cmath>

#include "runtime/serving/sampling/logit_row.h"

namespace macrame::runtime::engine {

ChosenLogprob LogprobsOf(std::span<const float> logits, int32_t token, uint32_t top) {
  const LogitRow row = ScanRow(logits);
  double sum = 0.0;
  for (size_t block = 0; block < row.highest_of_blocks.size(); ++block) {
    const auto part = row.Block(block);
    sum += kernels::SumOfExps(part.data(), part.size(), row.scan.highest, 1.0);
  }
  const double of_sum = std::log(sum);
  const auto logprob = [&](float logit) {
    const auto value = static_cast<float>(double{logit} - row.scan.highest - of_sum);
    return value > kLogprobMin ? value : kLogprobMin;  // NaN, too
  };
  ChosenLogprob chosen;
  chosen.logprob = logprob(logits[static_cast<size_t>(token)]);
  for (const Candidate& candidate : FindLikeliest(row, top)) {
    chosen.top.push_back({candidate.token, logprob(candidate.logit)});
  }
  return chosen;
}

}  // namespace macrame::runtime::engine
