#include "planner/expert_skew.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "planner/cost_model.h"

namespace macrame::planner {
namespace {

constexpr double kSameTime = 1e-9;  // times closer than this part are one

double CountOf(std::span<const ExpertHolder> holders) {
  double count = 0;
  for (const ExpertHolder& holder : holders) count += holder.experts;
  return count;
}

// What an expert that is chosen takes the holder with most to do, on average over all experts.
double LargestMean(std::span<const ExpertHolder> holders) {
  double largest = 0;
  for (const ExpertHolder& holder : holders) {
    largest = std::max(largest, holder.us * holder.experts);
  }
  return largest / std::max(1.0, CountOf(holders));
}

double LogBinomial(double n, double k, double p) {
  return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) + k * std::log(p) +
         (n - k) * std::log1p(-p);
}

// The terms of the header's formula times p^k (1 - p)^(n - k), p = draws / count, which cancels out
// and keeps numbers near one: the same for every time that is asked for.
class DrawChances {
 public:
  DrawChances(std::span<const ExpertHolder> holders, uint32_t draws)
      : holders_(holders), draws_(draws) {
    const double count = CountOf(holders), p = draws / count;
    all_ = std::exp(LogBinomial(count, draws, p));
    for (const ExpertHolder& holder : holders) {
      std::vector<double>& chances = own_.emplace_back();
      for (uint32_t own = 0; own <= std::min(holder.experts, draws); ++own) {
        chances.push_back(std::exp(LogBinomial(holder.experts, own, p)));
      }
    }
  }

  // The probability that no holder takes longer than `us`.
  double NoneAbove(double us) const {
    std::vector<double> product(draws_ + 1, 0.0), next;
    product[0] = 1;
    for (size_t i = 0; i < holders_.size(); ++i) {
      const auto most = static_cast<uint32_t>(
          std::min<double>(std::min(holders_[i].experts, draws_),
                           std::floor(us / holders_[i].us * (1 + kSameTime))));
      next.assign(draws_ + 1, 0.0);
      for (uint32_t own = 0; own <= most; ++own) {
        for (uint32_t others = 0; others + own <= draws_; ++others) {
          next[others + own] += product[others] * own_[i][own];
        }
      }
      std::swap(product, next);
    }
    return std::min(1.0, product[draws_] / all_);
  }

 private:
  const std::span<const ExpertHolder> holders_;
  const uint32_t draws_;
  double all_ = 1;
  std::vector<std::vector<double>> own_;  // by holder and how many of its experts are drawn
};

// Of a whole number of draws, at most kExactDraws.
double ExactlySlowest(std::span<const ExpertHolder> holders, uint32_t draws) {
  if (draws == 0) return 0;
  if (draws >= CountOf(holders)) return LargestMean(holders) * CountOf(holders);
  std::vector<double> times = {0};
  for (const ExpertHolder& holder : holders) {
    for (uint32_t own = 1; own <= std::min(holder.experts, draws); ++own) {
      times.push_back(own * holder.us);
    }
  }
  std::sort(times.begin(), times.end());
  const DrawChances chances(holders, draws);
  double slowest = 0;
  for (size_t i = 0; i + 1 < times.size(); ++i) {
    if (times[i + 1] <= times[i] * (1 + kSameTime)) continue;
    slowest += (times[i + 1] - times[i]) * (1 - chances.NoneAbove(times[i]));
  }
  return slowest;
}

}  // namespace

double SlowestHolder(std::span<const ExpertHolder> holders, double draws) {
  const double count = CountOf(holders);
  const double drawn = std::clamp(draws, 0.0, count);
  if (drawn > kExactDraws) {
    const double excess = ExactlySlowest(holders, kExactDraws) - LargestMean(holders) * kExactDraws;
    const double wider = std::sqrt(drawn * (count - drawn) / (kExactDraws * (count - kExactDraws)));
    return LargestMean(holders) * drawn + excess * wider;
  }
  const double whole = std::floor(drawn), part = drawn - whole;
  const double fewer = ExactlySlowest(holders, static_cast<uint32_t>(whole));
  if (part == 0) return fewer;
  return fewer + part * (ExactlySlowest(holders, static_cast<uint32_t>(whole) + 1) - fewer);
}

ExpertSkew SkewOf(std::span<const ExpertHolder> holders, uint32_t active, double tokens) {
  const double count = CountOf(holders), mean = LargestMean(holders);
  if (count < 2 || mean <= 0 || active == 0 || active >= count || tokens <= 0) return {};
  const double draws = count * ExpertShareRead(static_cast<uint32_t>(count), active, tokens);
  ExpertSkew skew;
  skew.read = SlowestHolder(holders, draws) / (mean * draws);
  // Choices of different tokens don't exclude each other: their sums vary as much as so many
  // independent draws of `active` do.
  const double sample = std::min<double>(kExactDraws, std::max(1.0, std::floor(count / 2)));
  const double excess = SlowestHolder(holders, sample) - mean * sample;
  const double choices = tokens * active;
  const double wider = std::sqrt(choices * (count - active) / (sample * (count - sample)));
  skew.work = 1 + excess * wider / (mean * choices);
  return skew;
}

}  // namespace macrame::planner
