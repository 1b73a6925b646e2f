#pragma once

// A row of logits after a first look at it, and how tokens are found in it without a look at all of
// them. Pure.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "runtime/kernels/logit_scan.h"

namespace macrame::runtime::engine {

struct Candidate {
  float logit;
  int32_t token;
};

inline bool Likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

struct LogitRow {
  std::span<const float> logits;
  std::vector<float> highest_of_blocks;  // of each kLogitBlock logits
  kernels::LogitScan scan;

  std::span<const float> Block(size_t block) const {
    const size_t begin = block * kernels::kLogitBlock;
    return logits.subspan(begin, std::min(kernels::kLogitBlock, logits.size() - begin));
  }
};

LogitRow ScanRow(std::span<const float> logits);

// The tokens whose logit is at least `lowest`, by id. False when there are more than `most`: then
// some lack.
bool FindAtLeast(const LogitRow& row, float lowest, std::vector<Candidate>& found,
                 size_t most = std::numeric_limits<size_t>::max());

// A logit that at least `count` tokens reach, one or more: that of the count-th highest block,
// since each of the blocks up to it has such a token. -inf for more tokens than blocks.
float LogitOfAtLeast(const LogitRow& row, size_t count);

// The `count` likeliest tokens, in order.
std::vector<Candidate> FindLikeliest(const LogitRow& row, size_t count);

}  // namespace macrame::runtime::engine
