// How gangs are judged: a step is its stages and hops, widths stay within budgets, and nothing that
// a node can't hold is said to fit.

#include "planner/gang.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "planner/layer_balance.h"
#include "planner/saturating.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

// A judge refers to all of these.
struct Made {
  v1::PlanRequest request;
  std::vector<Candidate> candidates;
  std::optional<LinkCosts> links;
  std::optional<GangJudge> judge;

  Made(v1::PlanRequest from, const ServingLoad& load) : request(std::move(from)) {
    for (const v1::PlannerNode& node : request.nodes()) candidates.push_back(CandidateOf(node));
    links.emplace(request, candidates);
    judge.emplace(request.model(), candidates, *links, load, CostParameters());
  }
};

struct Picker {
  std::mt19937_64 random;
  uint32_t operator()(uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random() % (high - low + 1));
  }
};

v1::PlanRequest RandomRequest(Picker& pick) {
  std::vector<v1::PlannerNode> nodes;
  const bool alike = pick(0, 2) == 0, uneven = pick(0, 3) > 0;
  for (uint32_t i = pick(2, 6); i > 0; --i) {
    v1::PlannerNode node = Node(absl::StrCat("node-", i), (alike ? 24 : pick(6, 40)) * kGiB);
    node.set_chip(alike || pick(0, 1) == 0 ? "Apple M4 Max" : "Apple M1");
    node.set_gpu_cores(alike ? 40 : pick(0, 1) * pick(4, 40));
    node.mutable_traits()->set_uneven_tensor(uneven);
    node.mutable_traits()->set_whole_experts(uneven);
    nodes.push_back(std::move(node));
  }
  const uint64_t bytes = pick(4, 60) * kGiB;
  return Request(
      pick(0, 1) == 0 ? LargeModel("m", bytes, pick(2, 30)) : MixtureModel("m", bytes, pick(2, 30)),
      nodes);
}

// Each of these nodes is a stage, as full as the others; nothing: it does not fit.
std::optional<Gang> ChainOf(GangJudge& judge) {
  const auto count = static_cast<uint32_t>(judge.candidates().size());
  const uint32_t layers = judge.model().layer_count();
  const auto fill = [&](uint32_t stage, uint32_t begin, uint32_t end) {
    return judge.Fill(stage, {}, begin, end, end == layers, stage == 0);
  };
  const auto ends = BalanceLayers(count, layers, fill, 1);
  if (!ends.has_value()) return {};
  Gang gang;
  for (uint32_t i = 0; i < count; ++i) {
    gang.stages.push_back({{i}, {1}, 1, i == 0 ? 0 : (*ends)[i - 1], (*ends)[i]});
  }
  return gang;
}

TEST(GangJudge, AStepIsItsStagesAndTheHopsBetweenThem) {
  int chains = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Picker pick{std::mt19937_64(seed)};
    Made made(RandomRequest(pick), {pick(100, 9000), pick(1, 8)});
    const auto gang = ChainOf(*made.judge);
    if (!gang.has_value()) continue;
    ++chains;
    const StepModel& decode = made.judge->DecodeOf(pick(1, 5));
    double sum = 0, slowest = 0;
    for (size_t i = 0; i < gang->stages.size(); ++i) {
      const double hop = i == 0 ? 0
                                : made.links->HopUs(gang->fabric, gang->stages[i - 1].nodes,
                                                    gang->stages[i].nodes, decode.HopBytes(), {});
      const StepTime stage = made.judge->StageStep(gang->stages[i], gang->fabric, decode);
      sum += stage.total_us() + hop;
      slowest = std::max(slowest, stage.total_us() + hop);
    }
    const StepTime step = made.judge->Step(*gang, decode);
    EXPECT_NEAR(step.total_us(), sum, 1e-9 * sum);
    EXPECT_NEAR(step.slowest_stage_us, slowest, 1e-9 * slowest);
    EXPECT_LE(made.judge->WorstFill(*gang), 1);
    // As many users as stages keep each of them at work, and none is served slower than alone.
    const double alone = made.judge->TokensPerSecond(*gang, 1);
    for (uint32_t users = 1; users <= gang->pp(); ++users) {
      const double all = made.judge->TokensPerSecond(*gang, users);
      EXPECT_GE(all, alone * (1 - 1e-9));
      EXPECT_LE(all / users, alone * (1 + 1e-9));
    }
  }
  EXPECT_GT(chains, 100);
}

TEST(GangJudge, LongerPromptsTakeLongerToTheirFirstToken) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Picker pick{std::mt19937_64(seed)};
    Made made(RandomRequest(pick), {100'000, 1});
    const auto gang = ChainOf(*made.judge);
    if (!gang.has_value()) continue;
    double before = 0;
    for (const uint32_t prompt : {0u, 1u, 2u, 255u, 256u, 257u, 4096u, 100'000u}) {
      const double us = made.judge->FirstTokenUs(*gang, prompt);
      EXPECT_TRUE(std::isfinite(us));
      EXPECT_GE(us, before) << prompt;
      before = us;
    }
  }
}

TEST(GangJudge, WidthsShareAllSlicesAndStayWithinEachBudget) {
  int found = 0, none = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Picker pick{std::mt19937_64(seed)};
    Made made(RandomRequest(pick), {pick(100, 9000), 1});
    GangJudge& judge = *made.judge;
    const auto count = static_cast<uint32_t>(made.candidates.size());
    std::vector<size_t> nodes(count);
    std::iota(nodes.begin(), nodes.end(), size_t{0});
    const bool uneven = MayCutUnevenly(made.candidates, count);
    const uint32_t slices = SlicesFor(judge.model(), count, uneven);
    const uint32_t layers = judge.model().layer_count();
    for (const bool even_fill : {false, true}) {
      const auto widths = judge.Widths(nodes, slices, 0, layers, 1, even_fill);
      ++(widths.has_value() ? found : none);
      GangStage stage{nodes, std::vector<uint32_t>(count, slices / count), slices, 0, layers};
      const bool equal_fits =
          slices > 0 && slices % count == 0 && judge.StageFill(stage, 0, layers) <= 1;
      if (equal_fits) {
        EXPECT_TRUE(widths.has_value()) << "equal slices would fit";
      }
      if (!widths.has_value()) continue;
      EXPECT_EQ(std::accumulate(widths->begin(), widths->end(), 0u), slices);
      EXPECT_GE(*std::min_element(widths->begin(), widths->end()), 1u);
      if (!uneven) {
        EXPECT_EQ(*widths, stage.widths) << "the engine cuts equal slices only";
      }
      const double equal_fill = judge.StageFill(stage, 0, layers);
      stage.widths = *widths;
      EXPECT_LE(judge.StageFill(stage, 0, layers), 1);
      if (even_fill && equal_fits) {
        EXPECT_LE(judge.StageFill(stage, 0, layers), equal_fill * (1 + 1e-12));
      }
    }
    EXPECT_FALSE(judge.Widths(nodes, count - 1, 0, layers, 1, false).has_value())
        << "fewer slices than ranks";
  }
  EXPECT_GT(found, 200);
  EXPECT_GT(none, 200);
}

TEST(GangJudge, WhatIsNeededIsTheSameInItemsAndInAll) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Picker pick{std::mt19937_64(seed)};
    ServingLoad load{pick(100, 9000), pick(1, 8)};
    load.draft_bytes = pick(0, 1) * pick(1, 1000) * (kGiB / 100);
    load.strictness = static_cast<v1::Strictness>(pick(0, 2));
    Made made(RandomRequest(pick), load);
    const uint32_t layers = made.request.model().layer_count();
    for (size_t node = 0; node < made.candidates.size(); ++node) {
      const uint32_t of = pick(1, 8), begin = pick(0, layers - 1), end = pick(begin + 1, layers);
      const Slice slice{pick(1, of), of};
      for (const bool entry : {false, true}) {
        const v1::MemoryNeed need = made.judge->Need(node, slice, begin, end, true, entry);
        EXPECT_EQ(need.total_bytes(), made.judge->NeedBytes(node, slice, begin, end, true, entry));
        EXPECT_EQ(need.draft_bytes(), entry ? load.draft_bytes : 0);
        EXPECT_NEAR(made.judge->Fill(node, slice, begin, end, true, entry),
                    static_cast<double>(need.total_bytes()) /
                        static_cast<double>(made.candidates[node].budget_bytes),
                    1e-12);
      }
    }
  }
}

TEST(GangJudge, ANodeThatCannotEnterOrGivesNothingHoldsNothing) {
  ServingLoad load{1000, 1};
  load.draft_bytes = kGiB;
  Made made(Request(LargeModel("m", 2 * kGiB, 8), {Node("aaaa", 40 * kGiB), Node("bbbb", 0)}),
            load);
  made.candidates[0].may_enter = false;
  EXPECT_EQ(made.judge->NeedBytes(0, {}, 0, 8, true, true), kBytesMax);
  EXPECT_GT(made.judge->Fill(0, {}, 0, 8, true, true), 1);
  EXPECT_LE(made.judge->Fill(0, {}, 0, 8, true, false), 1) << "as another rank it may serve";
  EXPECT_GT(made.judge->Fill(1, {}, 0, 1, false), 1) << "a budget of nothing";
}

TEST(GangJudge, OfATokensExpertsTheFullestRankHoldsBetweenItsShareAndAll) {
  Made made(
      Request(MixtureModel("m", 8 * kGiB, 8), {Node("aaaa", 40 * kGiB), Node("bbbb", 40 * kGiB),
                                               Node("cccc", 40 * kGiB), Node("dddd", 40 * kGiB)}),
      {1000, 1});
  const double active = made.request.model().experts_active();
  GangStage stage{{0}, {1}, 1, 0, 8, true};
  EXPECT_NEAR(made.judge->MostChosenExperts(stage), active, 1e-9) << "one rank holds all";
  stage = {{0, 1}, {6, 6}, 12, 0, 8, true};
  const double of_two = made.judge->MostChosenExperts(stage);
  EXPECT_GT(of_two, active / 2);
  EXPECT_LT(of_two, active);
  stage = {{0, 1, 2, 3}, {3, 3, 3, 3}, 12, 0, 8, true};
  const double of_four = made.judge->MostChosenExperts(stage);
  EXPECT_GT(of_four, active / 4);
  EXPECT_LT(of_four, of_two);
  stage.widths = {9, 1, 1, 1};
  EXPECT_GT(made.judge->MostChosenExperts(stage), of_two) << "three quarters lie on one";
}

}  // namespace
}  // namespace macrame::planner
