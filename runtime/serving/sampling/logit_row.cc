#include "runtime/serving/sampling/logit_row.h"

#include <functional>

namespace macrame::runtime::engine {

LogitRow ScanRow(std::span<const float> logits) {
  constexpr size_t kBlock = kernels::kLogitBlock;
  LogitRow row{logits, std::vector<float>((logits.size() + kBlock - 1) / kBlock), {}};
  row.scan = kernels::ScanLogits(logits.data(), logits.size(), row.highest_of_blocks.data());
  return row;
}

bool FindAtLeast(const LogitRow& row, float lowest, std::vector<Candidate>& found, size_t most) {
  found.clear();
  for (size_t block = 0; block < row.highest_of_blocks.size(); ++block) {
    if (!(row.highest_of_blocks[block] >= lowest)) continue;
    const auto logits = row.Block(block);
    const size_t before = found.size();
    found.resize(before + logits.size());
    Candidate* at = found.data() + before;
    for (size_t i = 0; i < logits.size(); ++i) {
      *at = {logits[i], static_cast<int32_t>(block * kernels::kLogitBlock + i)};
      at += logits[i] >= lowest ? 1 : 0;  // a branch would be drafted wrongly
    }
    found.resize(static_cast<size_t>(at - found.data()));
    if (found.size() > most) return false;
  }
  return true;
}

float LogitOfAtLeast(const LogitRow& row, size_t count) {
  if (count > row.highest_of_blocks.size()) return -std::numeric_limits<float>::infinity();
  std::vector<float> highest = row.highest_of_blocks;
  const auto at = highest.begin() + static_cast<int64_t>(count) - 1;
  std::nth_element(highest.begin(), at, highest.end(), std::greater<>());
  return *at;
}

std::vector<Candidate> FindLikeliest(const LogitRow& row, size_t count) {
  std::vector<Candidate> candidates;
  if (count == 0) return candidates;
  FindAtLeast(row, LogitOfAtLeast(row, count), candidates);
  if (candidates.size() > count) {
    std::nth_element(candidates.begin(), candidates.begin() + static_cast<int64_t>(count),
                     candidates.end(), Likelier);
    candidates.resize(count);
  }
  std::sort(candidates.begin(), candidates.end(), Likelier);
  return candidates;
}

}  // namespace macrame::runtime::engine
