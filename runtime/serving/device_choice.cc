#include "runtime/serving/device_choice.h"

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
  const SamplingTraits& sampling = job.sampling;
  const bool needs_host = job.embedding.has_value() || job.top_logprobs.has_value() ||
                          ChangesLogits(job) || ReplacesTokens(job.shape.steering) ||
                          job.shape.structure.constraint != nullptr;
  if (needs_host || sampling.typical_p < 1.0) return std::nullopt;
  RowChoice choice;
  choice.temperature = sampling.temperature;
  choice.top_k = sampling.top_k;
  choice.top_p = sampling.top_p;
  choice.min_p = sampling.min_p;
  choice.seed = sampling.seed;
  choice.position = job.limits.prompt_tokens;
  return choice;
}

}  // namespace macrame::runtime::engine
