#pragma once

// A gang's speed in the words of a plan, and the corrections that this cluster's own speeds put on
// it.

#include <optional>
#include <string>
#include <string_view>

#include "macrame/v1/plan.pb.h"
#include "planner/gang.h"

namespace macrame::planner {

inline constexpr uint32_t kPredictedPromptTokens = 1024;

// Ways to run a model on GPUs of Macs, whose published speeds the model of costs is held against.
enum class PlanKind { kOneNode, kTensorOfTwo, kTensorOfMore, kTensorOverTcp, kPipeline };
std::string_view NameOf(PlanKind kind);
// Nothing where no speeds were published of such: other machines, chips in no table.
std::optional<PlanKind> KindOf(const GangJudge& judge, const Gang& gang);

// Of published figures of one kind, none left out: between which shares of what is predicted nine
// of ten lie. Of fewer than ten figures all do. tests/bench/planner --calibration holds this table
// to the figures themselves.
struct PublishedSpread {
  uint32_t figures = 0;
  double low = 0;
  double high = 0;
};
PublishedSpread SpeedSpread(PlanKind kind);
// Of the time to first token, in whatever way the nodes share the work.
PublishedSpread FirstTokenSpread();

// `users` and `prompt_tokens` as in PlacementOptions (0: their defaults).
v1::Prediction Predict(GangJudge& judge, const Gang& gang, const v1::PlanRequest& request);

// Of that, one user's speed alone.
double TokensPerSecondOfOne(GangJudge& judge, const v1::PlanRequest& request, const Gang& gang);

// Reading its part of the weights, for the node that takes longest: all read at the same time.
// Where a disk's speed is not known `disk_rate` is taken, in bytes a second; 0: then the answer is
// 0, not known.
double LoadSeconds(GangJudge& judge, const Gang& gang, double disk_rate);

// "31.6 tokens/s", with as many digits as an estimate bears.
std::string SpeedText(double tokens_per_second);

// A correction is believed from so many samples on: one answer is not a speed yet.
inline constexpr uint32_t kCorrectionSamplesMin = 3;

// Of a step's time: measured / predicted. A backend that was not measured is taken to err like
// those that were, or what was only measured slow would always look worse than what never was; 1
// while nothing is known.
double CorrectionOf(const v1::SpeedCorrections& corrections, const std::string& backend);

// Samples that a correction remembers, about: newer ones weigh more.
inline constexpr uint32_t kCorrectionSamplesMax = 20;
// A ratio outside of these is another fault than an estimate's and is not learnt. The lower one has
// room for gangs whose ranks stand on one machine: a small model over two took 0.18 of the time
// that hops over TCP were assumed to need.
inline constexpr double kCorrectionMin = 0.02;
inline constexpr double kCorrectionMax = 10;

// Learns from one measurement: tokens a second that a gang over `backend` generated for one
// sequence, and what was predicted with the correction `applied` at that time.
void Learn(v1::SpeedCorrections* corrections, const std::string& backend, double measured,
           double predicted, double applied);

}  // namespace macrame::planner
