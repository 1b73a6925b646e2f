// Which answers' tokens the device may choose, and how.

#include "runtime/serving/device_choice.h"

#include <gtest/gtest.h>

#include <functional>

#include "runtime/serving/sampling/token_constraint.h"

namespace macrame::runtime::engine {
namespace {

GenerationJob Job() {
  GenerationJob job;
  job.prompt = {1, 2, 3};
  job.limits.prompt_tokens = 3;
  return job;
}

class Anything : public TokenConstraint {
 public:
  std::unique_ptr<TokenConstraint> Fork() const override { return std::make_unique<Anything>(); }
  absl::Status Mask(std::span<const int32_t>, std::span<float>) override {
    return absl::OkStatus();
  }
  absl::Status Take(int32_t) override { return absl::OkStatus(); }
  size_t Admitted(std::span<const int32_t> tokens) override { return tokens.size(); }
  bool is_over() const override { return false; }
};

TEST(DeviceChoice, WhatASamplerTakesIsHandedOver) {
  EXPECT_EQ(DeviceChoiceOf(Job())->temperature, 0.0);
  GenerationJob job = Job();
  job.sampling.temperature = 0.7;
  job.sampling.top_k = 40;
  job.sampling.top_p = 0.9;
  job.sampling.min_p = 0.05;
  job.sampling.seed = 1234567890123;
  // What ends an answer changes none of its tokens.
  job.stops = {"stop"};
  job.limits.end_tokens = {5};
  job.shape.steering.ends_with_first_call = true;
  job.shape.steering.think_open = 9;
  const auto choice = DeviceChoiceOf(job);
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(*choice, (RowChoice{0.7, 40, 0.9, 0.05, 1234567890123, 3}));
}

TEST(DeviceChoice, WhatNeedsTheHostForEachTokenStaysThere) {
  const std::vector<std::function<void(GenerationJob&)>> needs = {
      [](GenerationJob& job) { job.rules.repetition_penalty = 1.1; },
      [](GenerationJob& job) { job.rules.presence_penalty = 0.1; },
      [](GenerationJob& job) { job.rules.frequency_penalty = -0.1; },
      [](GenerationJob& job) {
        job.rules.biases = {{3, 1.0F}};
      },
      [](GenerationJob& job) { job.limits.min_tokens = 1; },
      [](GenerationJob& job) { job.top_logprobs = 0; },
      [](GenerationJob& job) {
        job.sampling.temperature = 1.0;
        job.sampling.typical_p = 0.9;
      },
      [](GenerationJob& job) { job.shape.steering.begin = {4}; },
      [](GenerationJob& job) { job.shape.steering.call = {4}; },
      [](GenerationJob& job) { job.shape.steering.call_after_reasoning = {4}; },
      [](GenerationJob& job) { job.shape.steering.reasoning_tokens_max = 100; },
      [](GenerationJob& job) {
        job.shape.structure.constraint = std::make_shared<const Anything>();
      },
      [](GenerationJob& job) {
        job.embedding = EmbeddingPlan{Pooling::kMean, 0};
      },
  };
  for (size_t i = 0; i < needs.size(); ++i) {
    GenerationJob job = Job();
    needs[i](job);
    EXPECT_FALSE(DeviceChoiceOf(job).has_value()) << i;
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
