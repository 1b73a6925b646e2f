#include "runtime/serving/draft_gate.h"

#include <algorithm>

namespace macrame::runtime::engine {
namespace {

constexpr double kRateGain = 1.0 / 8.0;  // of the newest draft

}  // namespace

DraftGate::DraftGate(double rate, uint32_t tokens)
    : rate_(rate), next_try_(tokens + kTryPauseMin) {}

void DraftGate::OnTry(uint32_t tokens) {
  next_try_ = tokens + pause_;
  pause_ = std::min(2 * pause_, kTryPauseMax);
}

void DraftGate::OnPaid(uint32_t tokens) {
  pause_ = kTryPauseMin;
  next_try_ = tokens + pause_;
}

void DraftGate::OnVerified(bool is_right) { rate_ += kRateGain * ((is_right ? 1.0 : 0.0) - rate_); }

}  // namespace macrame::runtime::engine
