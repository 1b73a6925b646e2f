#pragma once

// How long a step will take, learnt from those that were measured. Pure.
//
// A step's time is taken as a sum: a fixed part, a part for each token of a running answer, one for
// each token of a prompt, and one for each earlier position that a token looks at. Each measured
// step corrects the four costs along what it consisted of (normalised least mean squares), so what
// a step did not use keeps its cost: an hour of decoding does not unlearn what prompts cost. Costs
// are never negative; one slow step (a busy machine) counts at most three times its prediction.

#include <array>
#include <cstdint>

#include "proto/monotonic_time.h"

namespace macrame::runtime::engine {

struct StepWork {
  uint32_t decode_tokens = 0;
  uint32_t prefill_tokens = 0;
  uint64_t attended = 0;  // sum over all tokens of their positions

  // The tokens of positions [begin, begin + count).
  static uint64_t Attended(uint64_t begin, uint64_t count) {
    return count * begin + count * (count + 1) / 2;
  }
};

class StepCost {
 public:
  // Before anything is measured, a step takes no more than `first_tokens` prompt tokens; after
  // that at most twice as many as the largest step measured.
  explicit StepCost(uint32_t first_tokens) : prefill_seen_max_(first_tokens / 2) {}

  void Learn(const StepWork& work, Duration measured);
  Duration Predict(const StepWork& work) const;
  // Whether enough was measured to be held to it.
  bool is_trusted() const { return measured_ >= kTrustedSteps; }
  // How many prompt tokens from position `begin` on fit beside `work` into `budget`, at most
  // `tokens_max`; 0 when none.
  uint32_t TokensWithin(const StepWork& work, uint32_t begin, Duration budget,
                        uint32_t tokens_max) const;

 private:
  static constexpr size_t kParts = 4;
  static constexpr uint64_t kTrustedSteps = 8;  // before that a slow step may be the truth
  static std::array<double, kParts> Parts(const StepWork& work);
  double PredictUs(const StepWork& work) const;

  std::array<double, kParts> cost_us_{};
  uint64_t measured_ = 0;
  uint32_t prefill_seen_max_;
};

}  // namespace macrame::runtime::engine
