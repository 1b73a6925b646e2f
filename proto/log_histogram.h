#pragma once

// How values of very different size are spread, in little room: buckets whose borders grow by a
// fifth, so that a quantile is right to within a tenth whatever the size. Bounded, mergeable, pure.
//
// Bucket 0 holds values below 1; bucket i holds [1.2^(i-1), 1.2^i); the last one holds what is
// beyond, from about 3e12 on.

#include <array>
#include <cstdint>

#include "macrame/v1/rank.pb.h"

namespace macrame {

class LogHistogram {
 public:
  static constexpr uint32_t kBuckets = 160;
  static constexpr double kGrowth = 1.2;

  // Negative values and NaN count as 0.
  void Add(double value);
  void Merge(const LogHistogram& other);

  uint64_t count() const { return count_; }
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  double max() const { return max_; }
  double min() const { return min_; }
  // Of what was added; 0 when that is nothing. `share` in [0, 1].
  double Quantile(double share) const;

  v1::LogHistogram ToMessage() const;
  // What makes no sense in it (from another version, another machine) is left out.
  static LogHistogram Of(const v1::LogHistogram& message);

 private:
  std::array<uint64_t, kBuckets> counts_{};
  uint64_t count_ = 0;
  double sum_ = 0, min_ = 0, max_ = 0;
};

}  // namespace macrame
