#include "planner/prediction.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "planner/chip_table.h"
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

// While one sequence is generated: of several stages one works at a time, each for its part of a
// step, and the others idle.
double WattsOfOne(GangJudge& judge, const Gang& gang) {
  const StepModel& decode = judge.DecodeOf(1);
  std::vector<double> stage_us;
  double all_us = 0;
  for (const GangStage& stage : gang.stages) {
    stage_us.push_back(judge.StageStep(stage, gang.fabric, decode).total_us());
    all_us += stage_us.back();
  }
  double watts = 0;
  for (size_t i = 0; i < gang.stages.size(); ++i) {
    for (const size_t node : gang.stages[i].nodes) {
      const v1::PlannerNode& machine = *judge.candidates()[node].node;
      const double peak = machine.power_peak_watts();
      if (peak <= 0) return 0;
      const double idle = std::min(peak, machine.power_idle_watts());
      watts += idle + (peak - idle) * stage_us[i] / all_us;
    }
  }
  return watts;
}

void SetRanges(const GangJudge& judge, const Gang& gang, v1::Prediction* prediction) {
  const std::optional<PlanKind> kind = KindOf(judge, gang);
  if (!kind.has_value()) return;
  const PublishedSpread speed = SpeedSpread(*kind), first = FirstTokenSpread();
  prediction->set_published_figures(speed.figures);
  // What is predicted lies between, however few the figures are.
  prediction->set_tokens_per_second_low(prediction->tokens_per_second() * std::min(1.0, speed.low));
  prediction->set_tokens_per_second_high(prediction->tokens_per_second() *
                                         std::max(1.0, speed.high));
  prediction->set_first_token_ms_low(prediction->first_token_ms() * first.low);
  prediction->set_first_token_ms_high(prediction->first_token_ms() * first.high);
}

}  // namespace

v1::Prediction Predict(GangJudge& judge, const Gang& gang, const v1::PlanRequest& request) {
  const v1::PlacementOptions& placement = request.placement();
  const double correction = CorrectionOf(request.corrections(), NameOf(BackendOf(gang)));
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
  prediction.set_power_watts(WattsOfOne(judge, gang));
  prediction.set_joules_per_token(prediction.power_watts() / prediction.tokens_per_second());
  prediction.set_load_seconds(LoadSeconds(judge, gang, 0));
  SetRanges(judge, gang, &prediction);
  return prediction;
}

std::string_view NameOf(PlanKind kind) {
  switch (kind) {
    case PlanKind::kOneNode:
      return "one Mac";
    case PlanKind::kTensorOfTwo:
      return "tensor splits of two over RDMA";
    case PlanKind::kTensorOfMore:
      return "tensor splits of more over RDMA";
    case PlanKind::kTensorOverTcp:
      return "tensor splits over TCP";
    default:
      return "pipelines";
  }
}

std::optional<PlanKind> KindOf(const GangJudge& judge, const Gang& gang) {
  for (const GangStage& stage : gang.stages) {
    for (const size_t node : stage.nodes) {
      const Candidate& candidate = judge.candidates()[node];
      if (candidate.kind != ComputeKind::kGpu) return std::nullopt;
      if (FindChip(candidate.node->chip()) == nullptr) return std::nullopt;
    }
  }
  if (gang.ranks() == 1) return PlanKind::kOneNode;
  if (gang.pp() > 1) return PlanKind::kPipeline;
  if (!gang.fabric.is_rdma()) return PlanKind::kTensorOverTcp;
  return gang.tp() == 2 ? PlanKind::kTensorOfTwo : PlanKind::kTensorOfMore;
}

PublishedSpread SpeedSpread(PlanKind kind) {
  switch (kind) {
    case PlanKind::kOneNode:
      return {112, 0.82, 1.19};
    case PlanKind::kTensorOfTwo:
      return {21, 0.46, 1.02};
    case PlanKind::kTensorOfMore:
      return {9, 0.45, 1.10};
    case PlanKind::kTensorOverTcp:
      return {2, 1.06, 1.08};
    default:
      return {11, 0.61, 1.31};
  }
}

PublishedSpread FirstTokenSpread() { return {27, 0.59, 1.55}; }

double TokensPerSecondOfOne(GangJudge& judge, const v1::PlanRequest& request, const Gang& gang) {
  const double step_us = judge.Step(gang, judge.DecodeOf(1)).total_us();
  return kMicrosecondsPerSecond /
         (step_us * CorrectionOf(request.corrections(), NameOf(BackendOf(gang))));
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
  constexpr double kWithoutTenths = 99.95;  // a tenth would be rounded to 100.0
  return tokens_per_second >= kWithoutTenths ? absl::StrFormat("%.0f tokens/s", tokens_per_second)
                                             : absl::StrFormat("%.1f tokens/s", tokens_per_second);
}

double CorrectionOf(const v1::SpeedCorrections& corrections, const std::string& backend) {
  double sum = 0, samples = 0;
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
  const double ratio = predicted / measured * applied;
  const bool is_speed = measured > 0 && predicted > 0 && applied > 0;
  if (!is_speed || !(ratio >= kCorrectionMin && ratio <= kCorrectionMax)) return;
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
