#include "planner/prediction.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/advice.h"
#include "planner/chip_table.h"
#include "planner/planner.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

v1::PlanRequest OneStudio() {
  v1::PlanRequest request = Request(LargeModel("m", 40 * kGiB, 60), {Node("aaaa", 96 * kGiB)});
  request.mutable_nodes(0)->set_chip("Apple M3 Ultra");
  request.mutable_nodes(0)->set_gpu_cores(80);
  return request;
}

TEST(Prediction, PartsOfAStepAddUpToTheSpeed) {
  const v1::Prediction one = PlanModel(OneStudio()).plan().prediction();
  EXPECT_NEAR(one.weights_ms() + one.kv_ms() + one.overhead_ms() + one.communication_ms(),
              1000 / one.tokens_per_second(), 1e-6);
  EXPECT_EQ(one.communication_ms(), 0) << "one rank tells nobody anything";
}

TEST(Prediction, ALongerPromptTakesLongerThanInProportion) {
  v1::PlanRequest request = OneStudio();
  request.mutable_placement()->set_context_length(65536);
  const auto first_token = [&](uint32_t prompt) {
    request.mutable_placement()->set_prompt_tokens(prompt);
    return PlanModel(request).plan().prediction().first_token_ms();
  };
  EXPECT_GT(first_token(32768), 32 * first_token(1024)) << "attention grows with the square";
}

TEST(Prediction, UsersTogetherGetMoreThanOneButEachLess) {
  v1::PlanRequest request = OneStudio();
  request.mutable_placement()->set_users(8);
  const v1::Prediction eight = PlanModel(request).plan().prediction();
  EXPECT_GT(eight.users_tokens_per_second(), eight.tokens_per_second());
  EXPECT_LT(eight.users_tokens_per_second() / 8, eight.tokens_per_second());
}

TEST(Prediction, UsersBeyondThoseAnsweredAtOnceMakeItNoFaster) {
  v1::PlanRequest request = OneStudio();
  const auto together = [&](uint32_t users) {
    request.mutable_placement()->set_users(users);
    return PlanModel(request).plan().prediction().users_tokens_per_second();
  };
  EXPECT_GT(together(16), together(15));
  EXPECT_EQ(together(40), together(16));
}

TEST(Prediction, EnergyIsPowerOverSpeed) {
  v1::PlanRequest request = OneStudio();
  EXPECT_EQ(PlanModel(request).plan().prediction().joules_per_token(), 0) << "power is not known";
  request.mutable_nodes(0)->set_power_peak_watts(200);
  const v1::Prediction known = PlanModel(request).plan().prediction();
  EXPECT_NEAR(known.joules_per_token(), 200 / known.tokens_per_second(), 1e-9);
}

// Of a pipeline's stages one works at a time for one user.
TEST(Prediction, StagesThatWaitDrawTheirIdlePower) {
  v1::PlanRequest request =
      Request(LargeModel("m", 40 * kGiB, 60), {Node("aaaa", 30 * kGiB), Node("bbbb", 30 * kGiB)});
  for (v1::PlannerNode& node : *request.mutable_nodes()) {
    node.set_power_peak_watts(200);
    node.set_power_idle_watts(10);
  }
  request.mutable_placement()->set_parallelism(v1::PARALLELISM_PIPELINE);
  const v1::Plan pipeline = PlanModel(request).plan();
  ASSERT_EQ(pipeline.pp(), 2u);
  EXPECT_NEAR(pipeline.prediction().power_watts(), 210, 1);
  request.mutable_placement()->set_parallelism(v1::PARALLELISM_TENSOR);
  const v1::Plan tensor = PlanModel(request).plan();
  ASSERT_EQ(tensor.tp(), 2u);
  EXPECT_NEAR(tensor.prediction().power_watts(), 400, 1e-6);
}

TEST(Prediction, RangesAreOfPlansWhoseSpeedsWerePublished) {
  v1::PlanRequest request = OneStudio();
  const v1::Prediction one = PlanModel(request).plan().prediction();
  EXPECT_GT(one.published_figures(), 50u);
  EXPECT_LT(one.tokens_per_second_low(), one.tokens_per_second());
  EXPECT_GT(one.tokens_per_second_high(), one.tokens_per_second());
  EXPECT_LT(one.first_token_ms_low(), one.first_token_ms());
  EXPECT_GT(one.first_token_ms_high(), one.first_token_ms());
  request.mutable_nodes(0)->set_chip("NVIDIA H100 80GB HBM3");
  const v1::Prediction other = PlanModel(request).plan().prediction();
  EXPECT_EQ(other.published_figures(), 0u);
  EXPECT_EQ(other.tokens_per_second_low(), 0);
}

// 40 GiB over 3,350 GB/s; it was 11.5 tokens/s when 200 GB/s were taken of any GPU.
TEST(Prediction, AGpuOfTheTableIsAsFastAsItsMakerSays) {
  v1::PlanRequest request = OneStudio();
  v1::PlannerNode& node = *request.mutable_nodes(0);
  node.set_chip("NVIDIA H100 80GB HBM3");
  node.set_gpu_cores(1);
  const v1::Plan known = PlanModel(request).plan();
  EXPECT_GT(known.prediction().tokens_per_second(), 40);
  const auto is_said = [](const v1::Plan& plan) {
    return std::any_of(plan.reasons().begin(), plan.reasons().end(), [](const v1::Reason& reason) {
      return reason.message().find("are assumed") != std::string::npos;
    });
  };
  EXPECT_FALSE(is_said(known));
  node.set_chip("Moore Threads MTT S4000");
  const v1::Plan assumed = PlanModel(request).plan();
  EXPECT_TRUE(is_said(assumed));
  EXPECT_LT(assumed.prediction().tokens_per_second(), 10);
  node.set_memory_bandwidth(768e9);
  EXPECT_FALSE(is_said(PlanModel(request).plan())) << "the node says it";
}

TEST(Prediction, ADiscreteGpuKeepsSomeOfItsMemory) {
  v1::PlannerNode node = Node("aaaa", 24 * kGiB);
  node.set_memory_total_bytes(24 * kGiB);
  node.set_chip("NVIDIA GeForce RTX 4090");
  EXPECT_EQ(BudgetBytes(node), 22 * kGiB);
  node.set_memory_usable_bytes(21 * kGiB);
  EXPECT_EQ(BudgetBytes(node), 21 * kGiB) << "more than that is kept already";
  node.set_memory_usable_bytes(24 * kGiB);
  node.set_memory_limit_is_configured(true);
  EXPECT_EQ(BudgetBytes(node), 24 * kGiB);
  node.set_memory_limit_is_configured(false);
  node.set_chip("Apple M4 Max");
  EXPECT_EQ(BudgetBytes(node), 24 * kGiB);
}

TEST(Prediction, GpusAreFoundByWhatTheirDriversCallThem) {
  const auto bandwidth = [](const char* name) {
    const Gpu* gpu = FindGpu(name);
    return gpu == nullptr ? 0 : gpu->bandwidth_gb_s;
  };
  EXPECT_EQ(bandwidth("NVIDIA GeForce RTX 4090"), 1008);
  EXPECT_EQ(bandwidth("NVIDIA GeForce RTX 4090 Laptop GPU"), 576);
  EXPECT_EQ(bandwidth("NVIDIA GeForce RTX 5090 Laptop GPU"), 0) << "it is not the card";
  EXPECT_EQ(bandwidth("NVIDIA A100-SXM4-40GB"), 1555);
  EXPECT_EQ(bandwidth("NVIDIA A100-SXM4-80GB"), 2039);
  EXPECT_EQ(bandwidth("Tesla V100-SXM2-32GB"), 900);
  EXPECT_EQ(bandwidth("AMD Instinct MI300X"), 5300);
  EXPECT_EQ(bandwidth("NVIDIA H100 PCIe"), 2000);
  EXPECT_EQ(bandwidth("NVIDIA GeForce RTX 40900"), 0);
  EXPECT_EQ(bandwidth("Apple M4"), 0);
}

TEST(Prediction, LoadingReadsAllThatARankHoldsOfTheFiles) {
  v1::PlanRequest request = OneStudio();
  EXPECT_EQ(PlanModel(request).plan().prediction().load_seconds(), 0) << "no disk is known";
  const std::vector<Candidate> candidates = {CandidateOf(request.nodes(0))};
  const LinkCosts links(request, candidates);
  GangJudge judge(request.model(), candidates, links, {4096, 1}, CostParameters());
  const Gang gang{{GangStage{{0}, {1}, 1, 0, 60}}, {}};
  const double bytes = static_cast<double>(ModelBytes(request.model()));
  EXPECT_NEAR(LoadSeconds(judge, gang, 2e9), bytes / 2e9, 0.001) << "embedding and head too";
  request.mutable_nodes(0)->set_disk_bytes_per_second(5e9);
  EXPECT_NEAR(LoadSeconds(judge, gang, 2e9), bytes / 5e9, 0.001) << "a known disk's own speed";
  EXPECT_NEAR(PlanModel(request).plan().prediction().load_seconds(), bytes / 5e9, 0.001);
}

TEST(Prediction, MeasuredSpeedsCorrectTheNextPrediction) {
  v1::PlanRequest request = OneStudio();
  const double before = PlanModel(request).plan().prediction().tokens_per_second();
  for (int i = 0; i < 10; ++i)
    Learn(request.mutable_corrections(), "single", before / 2, before, 1);
  const v1::Prediction after = PlanModel(request).plan().prediction();
  EXPECT_NEAR(after.tokens_per_second(), before / 2, before * 0.01);
  EXPECT_NEAR(after.correction(), 2, 0.01);
  Learn(request.mutable_corrections(), "single", before / 1000, before, 1);
  EXPECT_NEAR(CorrectionOf(request.corrections(), "single"), 2, 0.01) << "another fault's doing";
  Learn(request.mutable_corrections(), "single", 0, before, 1);
}

TEST(Prediction, OneAnswerIsNotASpeedYet) {
  v1::SpeedCorrections corrections;
  Learn(&corrections, "ring", 10, 20, 1);
  EXPECT_EQ(CorrectionOf(corrections, "ring"), 1);
  for (uint32_t i = 1; i < kCorrectionSamplesMin; ++i) Learn(&corrections, "ring", 10, 20, 1);
  EXPECT_NEAR(CorrectionOf(corrections, "ring"), 2, 1e-9);
}

TEST(Prediction, WhatWasNotMeasuredErrsLikeWhatWas) {
  v1::SpeedCorrections corrections;
  for (int i = 0; i < 5; ++i) Learn(&corrections, "ring", 10, 30, 1);
  EXPECT_NEAR(CorrectionOf(corrections, "single"), 3, 1e-9)
      << "else a single node would look three times as good as before, and gangs would move to it";
  for (int i = 0; i < 5; ++i) Learn(&corrections, "single", 10, 10, 1);
  EXPECT_NEAR(CorrectionOf(corrections, "single"), 1, 1e-9);
  EXPECT_NEAR(CorrectionOf(corrections, "ring"), 3, 1e-9);
}

}  // namespace
}  // namespace macrame::planner
