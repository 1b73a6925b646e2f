#include "runtime/serving/device_choice.h"

#include "runtime/serving/sampling/row_sampling.h"

namespace macrame::runtime::engine {
namespace {

bool ChangesLogits(const GenerationJob& job) {
  const LogitRules& rules = job.rules;
  return rules.repetition_penalty != 1.0 || rules.presence_penalty != 0.0 ||
         rules.frequency_penalty != 0.0 || !rules.biases.empty() || job.limits.min_tokens > 0;
}

bool ReplacesTokens(const markup::SteeringPlan& plan) {
  return !plan.begin.empty() || !plan.call.empty() || !plan.call_after_reasoning.empty() ||
         plan.reasoning_tokens_max.has_value();
}

}  // namespace

std::optional<RowChoice> DeviceChoiceOf(const GenerationJob& job) {
  const bool needs_host = job.embedding.has_value() || ChangesLogits(job) ||
                          ReplacesTokens(job.shape.steering) ||
                          job.shape.structure.constraint != nullptr;
  RowSampling first;
  first.traits = job.sampling;
  first.position = job.limits.prompt_tokens;
  first.top_logprobs = job.top_logprobs;
  if (needs_host || !CanChooseOnDevice(first)) return std::nullopt;
  return ChoiceOf(first);
}

}  // namespace macrame::runtime::engine
