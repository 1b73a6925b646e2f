#pragma once

// Which experts a token takes, and how much of each. Pure: the same scores give the same choice
// on every rank and whatever else is in the step.

#include <span>

#include "runtime/model/config/model_config.h"

namespace macrame::runtime::engine {

struct ExpertChoice {
  int expert = 0;
  float weight = 0.0F;
};

// `scores`: what the router gives for one token, a number for each of traits.count experts.
// `out`, traits.active of them, is in the order of the experts' numbers: those with the highest
// scores, of equal ones the first. A weight is the softmax of the scores, over all experts or over
// the chosen ones alone (traits.normalized). What is no number counts as the lowest. Where there
// are groups, those of all but the best count as zero, which is less than any share of a whole.
//
// RouterScores::kSigmoid: experts are chosen by the sigmoid of their score plus `bias`, which is
// empty or as long as `scores`, within the groups that the traits allow; the others count as zero.
// A weight is the sigmoid alone, or its share of the chosen ones' sum. All weights are multiplied
// by traits.weight_scale. RouterScores::kRootSoftplus: likewise, with the root of ln(1 + e^score).
void ChooseExperts(std::span<const float> scores, std::span<const float> bias,
                   const ExpertTraits& traits, std::span<ExpertChoice> out);

}  // namespace macrame::runtime::engine
