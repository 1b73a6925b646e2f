// How whole experts fall on ranks, against counting by hand and against throwing dice; and which
// way plans deal experts out.

#include "planner/expert_skew.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "planner/cost_model.h"
#include "planner/planner.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

using Holders = std::vector<ExpertHolder>;

TEST(ExpertSkew, IsWhatCountingByHandGives) {
  // Of 6 pairs of 4 experts 2 lie on one of two ranks: 2 with a chance of a third, else 1.
  EXPECT_NEAR(SlowestHolder(Holders{{2}, {2}}, 2), 4.0 / 3, 1e-12);
  // 3 of 6 pairs have the single one.
  EXPECT_NEAR(SlowestHolder(Holders{{3}, {1}}, 2), 1.5, 1e-12);
  EXPECT_NEAR(SlowestHolder(Holders{{1}, {1}, {1}, {1}}, 2), 1, 1e-12);
  // The second takes three times as long: (2, 0), (1, 1), (0, 2) take 2, 3 and 6.
  EXPECT_NEAR(SlowestHolder(Holders{{2, 1}, {2, 3}}, 2), (1 * 2 + 4 * 3 + 1 * 6) / 6.0, 1e-12);
  EXPECT_NEAR(SlowestHolder(Holders{{2}, {2}}, 1.5), (1 + 4.0 / 3) / 2, 1e-12)
      << "between one and two draws";
}

TEST(ExpertSkew, AllOrNoneAreNoChance) {
  EXPECT_NEAR(SlowestHolder(Holders{{5}, {3}}, 8), 5, 1e-12);
  EXPECT_NEAR(SlowestHolder(Holders{{50}, {30}}, 80), 50, 1e-9);
  EXPECT_EQ(SlowestHolder(Holders{{5}, {3}}, 0), 0);
  EXPECT_NEAR(SlowestHolder(Holders{{4}, {0}}, 3), 3, 1e-12) << "a rank without experts";
  EXPECT_EQ(SkewOf(Holders{{8}}, 2, 1).read, 1) << "one rank waits for nobody";
}

// What steps of `tokens` really make of it: distinct experts and choices on the fullest rank.
struct Thrown {
  double read = 0, work = 0;
};
Thrown Throw(const std::vector<uint32_t>& held, uint32_t active, int tokens) {
  constexpr int kSteps = 4000;
  std::mt19937 random(11);
  std::vector<size_t> rank_of;
  for (size_t rank = 0; rank < held.size(); ++rank) {
    rank_of.insert(rank_of.end(), held[rank], rank);
  }
  std::vector<uint32_t> experts(rank_of.size());
  std::iota(experts.begin(), experts.end(), 0U);
  Thrown thrown;
  for (int step = 0; step < kSteps; ++step) {
    std::set<uint32_t> read;
    std::vector<int> work(held.size());
    for (int token = 0; token < tokens; ++token) {
      for (uint32_t i = 0; i < active; ++i) {
        std::uniform_int_distribution<size_t> pick(i, experts.size() - 1);
        std::swap(experts[i], experts[pick(random)]);
        read.insert(experts[i]);
        ++work[rank_of[experts[i]]];
      }
    }
    std::vector<int> distinct(held.size());
    for (const uint32_t expert : read) ++distinct[rank_of[expert]];
    thrown.read += *std::max_element(distinct.begin(), distinct.end());
    thrown.work += *std::max_element(work.begin(), work.end());
  }
  return {thrown.read / kSteps, thrown.work / kSteps};
}

TEST(ExpertSkew, IsWhatThrowingDiceGives) {
  const std::vector<std::vector<uint32_t>> splits = {
      {64, 64}, {32, 32, 32, 32}, std::vector<uint32_t>(8, 16), {80, 32, 16}};
  for (const std::vector<uint32_t>& held : splits) {
    Holders holders;
    for (const uint32_t experts : held) holders.push_back({experts});
    const double most = *std::max_element(held.begin(), held.end()) / 128.0;
    for (const int tokens : {1, 2, 8, 32}) {
      const Thrown thrown = Throw(held, 8, tokens);
      const ExpertSkew skew = SkewOf(holders, 8, tokens);
      const double draws = 128 * ExpertShareRead(128, 8, tokens);
      EXPECT_NEAR(skew.read * most * draws, thrown.read, 0.03 * thrown.read)
          << held.size() << " ranks, " << tokens << " tokens";
      EXPECT_NEAR(skew.work * most * 8 * tokens, thrown.work, 0.06 * thrown.work)
          << held.size() << " ranks, " << tokens << " tokens";
    }
  }
}

TEST(ExpertSkew, ManyTokensEvenTheLoadOut) {
  const Holders holders(8, ExpertHolder{32});
  double before = 100;
  for (const double tokens : {1, 2, 4, 8, 16, 64, 256}) {
    const ExpertSkew skew = SkewOf(holders, 8, tokens);
    EXPECT_LT(skew.read, before) << tokens;
    EXPECT_GE(skew.read, 1);
    before = skew.read;
  }
  EXPECT_LT(SkewOf(holders, 8, 256).work, 1.2) << "a chunk of a prompt";
  EXPECT_GT(SkewOf(holders, 8, 1).work, 2) << "a token";
}

// Four machines without GPUs, a tensor split over all of them; 4 bits in groups of 64.
v1::PlanRequest FourRanks(uint32_t width, uint64_t memory = 200 * kGiB) {
  v1::ModelDescription model = MixtureModel("mixture", 100'000'000'000, 40);
  model.set_intermediate_size(width);
  model.mutable_quantization()->set_bits(4);
  model.mutable_quantization()->set_group_size(64);
  std::vector<v1::PlannerNode> nodes;
  for (int i = 0; i < 4; ++i) {
    nodes.push_back(Node("node-" + std::to_string(i), memory));
    nodes.back().set_gpu_cores(0);
    nodes.back().set_cpu_cores(16);
    nodes.back().set_memory_bandwidth(60e9);
    nodes.back().mutable_traits()->set_uneven_tensor(true);
    nodes.back().mutable_traits()->set_whole_experts(true);
  }
  v1::PlanRequest request = Request(std::move(model), std::move(nodes));
  request.mutable_placement()->set_parallelism(v1::PARALLELISM_TENSOR);
  request.mutable_placement()->set_world_size(4);
  return request;
}

std::string ReasonsOf(const v1::Plan& plan) {
  std::string text;
  for (const v1::Reason& reason : plan.reasons()) text += reason.message() + "\n";
  return text;
}

bool DealsWhole(const v1::PlanResult& result) {
  EXPECT_TRUE(result.has_plan()) << result.failure().message();
  if (!result.has_plan()) return false;
  const bool whole = result.plan().assignments(0).whole_experts();
  for (const v1::Assignment& part : result.plan().assignments()) {
    EXPECT_EQ(part.whole_experts(), whole) << "the same for all ranks";
  }
  return whole;
}

// 8 groups: each rank computes 2 of the 8, a quarter. Of 8 whole experts the fullest of four ranks
// has 3.5, which is 0.44.
TEST(ExpertCut, WidthsThatDivideAreCut) {
  const v1::PlanResult result = PlanModel(FourRanks(512));
  EXPECT_FALSE(DealsWhole(result));
  const std::string reasons = ReasonsOf(result.plan());
  EXPECT_NE(reasons.find("each expert is cut by width"), std::string::npos) << reasons;
  EXPECT_NE(reasons.find("of a token's 8 experts 3.5 on average"), std::string::npos) << reasons;
}

// 2 groups over four ranks: some have half of each expert, others nothing; 0.5 is more than 0.44.
TEST(ExpertCut, ExpertsTooNarrowToCutAreDealtOut) {
  const v1::PlanResult result = PlanModel(FourRanks(128));
  EXPECT_TRUE(DealsWhole(result));
  const std::string reasons = ReasonsOf(result.plan());
  EXPECT_NE(reasons.find("ranks hold whole experts"), std::string::npos) << reasons;
  EXPECT_NE(reasons.find("up to 1 of 2 groups of 64 columns"), std::string::npos) << reasons;
}

// 11 groups: up to 3 of them, 0.27. One token's whole experts take 0.44, those of 128 users 0.25.
TEST(ExpertCut, ManyUsersEvenWholeExpertsOut) {
  v1::PlanRequest request = FourRanks(704);
  EXPECT_FALSE(DealsWhole(PlanModel(request)));
  request.mutable_placement()->set_optimize(v1::OPTIMIZE_THROUGHPUT);
  request.mutable_placement()->set_users(16);
  request.mutable_placement()->set_concurrent_sequences(128);
  const v1::PlanResult many = PlanModel(request);
  EXPECT_EQ(DealsWhole(many), true) << ReasonsOf(many.plan());
}

// Half of each expert does not fit where a quarter of them does.
TEST(ExpertCut, TheOneThatFitsIsTaken) {
  v1::PlanRequest request = FourRanks(128, 40 * kGiB);
  const v1::PlanResult result = PlanModel(request);
  EXPECT_TRUE(DealsWhole(result));
  for (const v1::Assignment& part : result.plan().assignments()) {
    EXPECT_LE(part.need().total_bytes(), part.budget_bytes());
  }
  request.mutable_nodes(2)->mutable_traits()->clear_whole_experts();
  EXPECT_FALSE(PlanModel(request).has_plan()) << "each engine has to know how";
}

TEST(ExpertCut, OthersEnginesCutByWidthAlone) {
  v1::PlanRequest request = FourRanks(128);
  request.mutable_nodes(3)->mutable_traits()->clear_whole_experts();
  EXPECT_FALSE(DealsWhole(PlanModel(request)));
  request = FourRanks(128);
  request.mutable_model()->set_engine("mlx-lm");
  request.mutable_model()->mutable_splits()->set_tensor(true);
  for (v1::PlannerNode& node : *request.mutable_nodes()) node.add_engine_names("mlx-lm");
  const v1::PlanResult second = PlanModel(request);
  if (second.has_plan()) {
    EXPECT_FALSE(DealsWhole(second));
  }
  request = FourRanks(128);
  request.mutable_model()->set_experts(0);
  request.mutable_model()->clear_layer_expert_bytes();
  EXPECT_FALSE(DealsWhole(PlanModel(request))) << "a dense model has none";
}

// A GPU computes a token's every choice, whoever holds it: few tokens gain nothing there.
TEST(ExpertCut, OnGpusOneUsersTokensAreCutByWidth) {
  v1::PlanRequest request = FourRanks(128);
  for (v1::PlannerNode& node : *request.mutable_nodes()) node.set_gpu_cores(40);
  EXPECT_FALSE(DealsWhole(PlanModel(request)));
}

// The plan in force stays as it was cut.
TEST(ExpertCut, APlanInForceKeepsItsCut) {
  v1::PlanRequest request = FourRanks(128);
  const v1::Plan first = PlanModel(request).plan();
  *request.mutable_current() = first;
  const v1::Plan second = PlanModel(request).plan();
  EXPECT_NE(ReasonsOf(second).find("it is where it runs now"), std::string::npos);
  EXPECT_TRUE(second.assignments(3).whole_experts());
  for (v1::PlannerNode& node : *request.mutable_nodes()) {
    node.mutable_traits()->clear_whole_experts();
  }
  EXPECT_FALSE(DealsWhole(PlanModel(request))) << "an engine that can't any more";
}

// Bytes: uneven slices hold their part of the experts, rounded up to whole ones.
TEST(ExpertCut, MemoryCountsWholeExperts) {
  v1::ModelDescription model = MixtureModel("mixture", 100'000'000'000, 40);
  const Slice slice{3, 8, /*whole_experts=*/true};
  EXPECT_EQ(CutOf(model, slice).experts, 48u);
  EXPECT_EQ(CutOf(model, slice).inner, model.intermediate_size());
  model.set_experts(10);  // 3.75 of them: up to 4
  const auto experts = static_cast<double>(model.layer_expert_bytes(0));
  const auto others = static_cast<double>(model.layer_divisible_bytes(0)) - experts;
  const auto whole = static_cast<double>(model.layer_bytes(0) - model.layer_divisible_bytes(0));
  EXPECT_NEAR(static_cast<double>(LayerWeightBytes(model, 0, slice)),
              whole + others * 3 / 8 + experts * 0.4, 1e3);
  uint32_t held = 0;
  for (const uint32_t first : {0, 3, 6})
    held += ExpertsHeld(model, first, {first < 6 ? 3u : 2u, 8});
  EXPECT_EQ(held, 10u);
  model.set_layer_expert_bytes(1, 0);  // a dense layer beside: cut by width as ever
  EXPECT_EQ(LayerWeightBytes(model, 1, slice), LayerWeightBytes(model, 1, {3, 8}));
}

}  // namespace
}  // namespace macrame::planner
