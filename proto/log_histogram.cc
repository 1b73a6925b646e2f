#include "proto/log_histogram.h"

#include <algorithm>
#include <cmath>

namespace macrame {
namespace {

uint32_t BucketOf(double value) {
  if (value < 1) return 0;
  const double index = std::floor(std::log(value) / std::log(LogHistogram::kGrowth)) + 1;
  return static_cast<uint32_t>(std::min<double>(index, LogHistogram::kBuckets - 1));
}

double BeginOf(uint32_t bucket) {
  return bucket == 0 ? 0 : std::pow(LogHistogram::kGrowth, bucket - 1);
}

double Finite(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

// Far beyond what any machine counts, so that sums of many histograms stay in range.
constexpr uint64_t kCountMax = uint64_t{1} << 56;

}  // namespace

void LogHistogram::Add(double value) {
  value = Finite(value);
  ++counts_[BucketOf(value)];
  min_ = count_ == 0 ? value : std::min(min_, value);
  max_ = std::max(max_, value);
  sum_ += value;
  ++count_;
}

void LogHistogram::Merge(const LogHistogram& other) {
  if (other.count_ == 0) return;
  for (uint32_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
  count_ += other.count_;
}

double LogHistogram::Quantile(double share) const {
  if (count_ == 0) return 0;
  const double wanted = std::clamp(share, 0.0, 1.0) * static_cast<double>(count_);
  double below = 0;
  for (uint32_t i = 0; i < kBuckets; ++i) {
    if (counts_[i] == 0) continue;
    const auto here = static_cast<double>(counts_[i]);
    if (below + here >= wanted) {
      const double begin = BeginOf(i), end = BeginOf(i + 1);
      const double inside = std::max(0.0, wanted - below) / here;
      return std::clamp(begin + (end - begin) * inside, min_, max_);
    }
    below += here;
  }
  return max_;
}

v1::LogHistogram LogHistogram::ToMessage() const {
  v1::LogHistogram message;
  for (uint32_t i = 0; i < kBuckets; ++i) {
    if (counts_[i] == 0) continue;
    message.add_buckets(i);
    message.add_counts(counts_[i]);
  }
  message.set_sum(sum_);
  message.set_min(min_);
  message.set_max(max_);
  return message;
}

LogHistogram LogHistogram::Of(const v1::LogHistogram& message) {
  LogHistogram histogram;
  const int pairs = std::min({message.buckets_size(), message.counts_size(), int{kBuckets}});
  for (int i = 0; i < pairs; ++i) {
    const uint32_t bucket = message.buckets(i);
    const uint64_t count = message.counts(i);
    if (bucket >= kBuckets || count > kCountMax) continue;
    histogram.counts_[bucket] += count;
    histogram.count_ += count;
  }
  if (histogram.count_ == 0) return histogram;
  histogram.sum_ = Finite(message.sum());
  histogram.min_ = Finite(message.min());
  histogram.max_ = std::max(histogram.min_, Finite(message.max()));
  return histogram;
}

}  // namespace macrame
