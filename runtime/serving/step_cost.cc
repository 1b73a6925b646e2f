#include "runtime/serving/step_cost.h"

#include <algorithm>

namespace macrame::runtime::engine {
namespace {

constexpr double kGain = 0.5;  // of an error, corrected at once
constexpr double kSlowestFactor = 3.0;

// So that a usual step's parts are of a size, and none takes all of a correction.
constexpr double kDecodeUnit = 4.0;
constexpr double kPrefillUnit = 32.0;
constexpr double kAttendedUnit = 65536.0;

}  // namespace

std::array<double, StepCost::kParts> StepCost::Parts(const StepWork& work) {
  return {1.0, work.decode_tokens / kDecodeUnit, work.prefill_tokens / kPrefillUnit,
          static_cast<double>(work.attended) / kAttendedUnit};
}

double StepCost::PredictUs(const StepWork& work) const {
  const auto parts = Parts(work);
  double sum = 0.0;
  for (size_t i = 0; i < kParts; ++i) sum += cost_us_[i] * parts[i];
  return sum;
}

Duration StepCost::Predict(const StepWork& work) const {
  return Duration(static_cast<int64_t>(PredictUs(work)));
}

void StepCost::Learn(const StepWork& work, Duration measured) {
  const auto parts = Parts(work);
  const double predicted = PredictUs(work);
  double took = std::max(0.0, static_cast<double>(measured.count()));
  if (is_trusted()) took = std::min(took, kSlowestFactor * predicted + 1.0);
  double square = 0.0;
  for (const double part : parts) square += part * part;
  const double gain = measured_ == 0 ? 1.0 : kGain;
  for (size_t i = 0; i < kParts; ++i) {
    cost_us_[i] = std::max(0.0, cost_us_[i] + gain * (took - predicted) * parts[i] / square);
  }
  ++measured_;
  prefill_seen_max_ = std::max(prefill_seen_max_, work.prefill_tokens);
}

uint32_t StepCost::TokensWithin(const StepWork& work, uint32_t begin, Duration budget,
                                uint32_t tokens_max) const {
  const uint64_t grown = 2 * static_cast<uint64_t>(prefill_seen_max_);
  const uint64_t left = grown > work.prefill_tokens ? grown - work.prefill_tokens : 0;
  uint32_t low = 0;
  auto high = static_cast<uint32_t>(std::min<uint64_t>(tokens_max, left));
  if (measured_ == 0) return high;
  const auto budget_us = static_cast<double>(budget.count());
  while (low < high) {
    const uint32_t middle = low + (high - low + 1) / 2;
    StepWork more = work;
    more.prefill_tokens += middle;
    more.attended += StepWork::Attended(begin, middle);
    if (PredictUs(more) <= budget_us) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace macrame::runtime::engine
