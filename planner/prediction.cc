#include "planner/prediction.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "proto/serving_limits.h"

namespace macrame::planner {
namespace {

constexpr double kMicrosecondsPerMillisecond = 1e3;

v1::SpeedCorrection* FindCorrection(v1::SpeedCorrections* corrections, const std::string& backend) {
  for (v1::SpeedCorrection& correction : *corrections->mutable_corrections()) {
    if (correction.backend() == backend) return &correction;
  }
  return nullptr;
}

double PeakWatts(const GangJudge& judge, const Gang& gang) {
  double watts = 0;
  for (const GangStage& stage : gang.stages) {
    for (const size_t node : stage.nodes) {
      const double peak = judge.candidates()[node].node->power_peak_watts();
      if (peak <= 0) return 0;
      watts += peak;
    }
  }
  return watts;
}

}  // namespace

v1::Prediction Predict(GangJudge& judge, const Gang& gang, const v1::PlanRequest& request) {
  const v1::PlacementOptions& placement = request.placement();
  const double correction = CorrectionOf(request.corrections(), BackendOf(gang));
  const StepTime step = judge.Step(gang, judge.DecodeOf(1));
  v1::Prediction prediction;
  prediction.set_correction(correction);
  prediction.set_tokens_per_second(TokensPerSecondOfOne(judge, request, gang));
  prediction.set_weights_ms(step.weights_us * correction / kMicrosecondsPerMillisecond);
  prediction.set_kv_ms(step.kv_us * correction / kMicrosecondsPerMillisecond);
  prediction.set_overhead_ms(step.overhead_us * correction / kMicrosecondsPerMillisecond);
  prediction.set_communication_ms(step.communication_us * correction / kMicrosecondsPerMillisecond);
  // Of more users than sequences the others wait.
  const uint32_t sequences = std::max(1u, judge.serving().sequences);
  const uint32_t users =
      std::min(sequences, std::max(1u, placement.users() > 0 ? placement.users() : sequences));
  prediction.set_users(users);
  // A gang answers so many at the same time; further ones take turns.
  prediction.set_users_tokens_per_second(
      judge.TokensPerSecond(gang, std::min(users, kAnsweredAtOnceMax)) / correction);
  const uint32_t prompt =
      std::min(judge.serving().context_tokens,
               placement.prompt_tokens() > 0 ? placement.prompt_tokens() : kPredictedPromptTokens);
  prediction.set_prompt_tokens(prompt);
  prediction.set_first_token_ms(judge.FirstTokenUs(gang, prompt) * correction /
                                kMicrosecondsPerMillisecond);
  prediction.set_power_watts(PeakWatts(judge, gang));
  prediction.set_joules_per_token(prediction.power_watts() / prediction.tokens_per_second());
  prediction.set_load_seconds(LoadSeconds(judge, gang, 0));
  return prediction;
}

double TokensPerSecondOfOne(GangJudge& judge, const v1::PlanRequest& request, const Gang& gang) {
  const double step_us = judge.Step(gang, judge.DecodeOf(1)).total_us();
  return kMicrosecondsPerSecond / (step_us * CorrectionOf(request.corrections(), BackendOf(gang)));
}

double LoadSeconds(GangJudge& judge, const Gang& gang, double disk_rate) {
  double seconds = 0;
  for (const GangStage& stage : gang.stages) {
    for (size_t i = 0; i < stage.nodes.size(); ++i) {
      const double measured = judge.candidates()[stage.nodes[i]].node->disk_bytes_per_second();
      const double rate = measured > 0 ? measured : disk_rate;
      if (!(rate > 0)) return 0;
      const v1::MemoryNeed need = judge.Need(stage.nodes[i], stage.SliceOf(i), stage.begin,
                                             stage.end, judge.HoldsHead(stage.nodes, i, stage.end));
      const double bytes = static_cast<double>(need.weights_bytes()) +
                           static_cast<double>(need.embedding_bytes()) +
                           static_cast<double>(need.head_bytes());
      seconds = std::max(seconds, bytes / rate);
    }
  }
  return seconds;
}

std::string SpeedText(double tokens_per_second) {
  return tokens_per_second >= 100 ? absl::StrFormat("%.0f tokens/s", tokens_per_second)
                                  : absl::StrFormat("%.1f tokens/s", tokens_per_second);
}

double CorrectionOf(const v1::SpeedCorrections& corrections, const std::string& backend) {
  double sum = 0;
  uint32_t samples = 0;
  for (const v1::SpeedCorrection& correction : corrections.corrections()) {
    if (correction.samples() < kCorrectionSamplesMin) continue;
    const double ratio =
        std::clamp(correction.measured_to_predicted(), kCorrectionMin, kCorrectionMax);
    if (correction.backend() == backend) return ratio;
    sum += ratio * correction.samples();
    samples += correction.samples();
  }
  return samples > 0 ? sum / samples : 1;
}

void Learn(v1::SpeedCorrections* corrections, const std::string& backend, double measured,
           double predicted, double applied) {
  if (measured <= 0 || predicted <= 0 || applied <= 0) return;
  const double ratio = predicted / measured * applied;
  if (ratio < kCorrectionMin || ratio > kCorrectionMax) return;
  v1::SpeedCorrection* correction = FindCorrection(corrections, backend);
  if (correction == nullptr) {
    correction = corrections->add_corrections();
    correction->set_backend(backend);
  }
  const uint32_t samples = std::min(correction->samples() + 1, kCorrectionSamplesMax);
  const double before = correction->measured_to_predicted();
  correction->set_measured_to_predicted(before + (ratio - before) / samples);
  correction->set_samples(samples);
}

}  // namespace macrame::planner
