// Rules that every plan keeps, on clusters and models made from seeds.

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "planner/memory_model.h"
#include "planner/planner.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

constexpr uint32_t kSeeds = 2000;

uint64_t Pick(std::mt19937_64& random, uint64_t low, uint64_t high) {
  return std::uniform_int_distribution<uint64_t>(low, high)(random);
}

v1::ModelDescription RandomModel(std::mt19937_64& random) {
  const uint32_t layers = static_cast<uint32_t>(Pick(random, 1, 40));
  v1::ModelDescription model = LargeModel("model", Pick(random, 1, 64) * kGiB, layers);
  model.set_kv_heads(1u << Pick(random, 0, 4));
  model.set_attention_heads(model.kv_heads() * static_cast<uint32_t>(Pick(random, 1, 6)));
  model.set_tied_embeddings(Pick(random, 0, 1) == 1);
  if (model.tied_embeddings()) model.set_head_bytes(0);
  if (Pick(random, 0, 2) == 0) model.set_sliding_window(1024);
  for (uint32_t i = 0; i < layers; ++i) {  // layers of a mixed quantisation differ
    const uint64_t bytes = model.layer_bytes(static_cast<int>(i)) * Pick(random, 2, 10) / 4;
    model.set_layer_bytes(static_cast<int>(i), bytes);
    model.set_layer_divisible_bytes(static_cast<int>(i), bytes * Pick(random, 0, 100) / 100);
  }
  return model;
}

v1::PlanRequest RandomRequest(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<v1::PlannerNode> nodes;
  const uint64_t count = Pick(random, 1, 7);
  for (uint64_t i = 0; i < count; ++i) {
    v1::PlannerNode node = Node("node-" + std::to_string(i), Pick(random, 1, 40) * kGiB);
    if (Pick(random, 0, 3) == 0) node.set_gpu_cores(0);
    if (Pick(random, 0, 9) == 0) node.set_schedulable(false);
    if (Pick(random, 0, 9) == 0) node.set_memory_reserved_bytes(Pick(random, 0, 20) * kGiB);
    nodes.push_back(node);
  }
  v1::PlanRequest request = Request(RandomModel(random), nodes);
  request.mutable_placement()->set_parallelism(static_cast<v1::Parallelism>(Pick(random, 0, 2)));
  if (Pick(random, 0, 1) == 0) {
    request.mutable_placement()->set_world_size(static_cast<uint32_t>(Pick(random, 1, count)));
  }
  request.mutable_placement()->set_context_length(static_cast<uint32_t>(Pick(random, 1, 32768)));
  request.set_recovering(Pick(random, 0, 4) == 0);
  return request;
}

void CheckPlan(const v1::PlanRequest& request, const v1::Plan& plan) {
  ASSERT_EQ(static_cast<uint32_t>(plan.assignments_size()), plan.world_size());
  ASSERT_EQ(plan.world_size(), plan.tp() * plan.pp());
  std::map<std::string, const v1::PlannerNode*> nodes;
  for (const v1::PlannerNode& node : request.nodes()) nodes[node.node_id()] = &node;
  std::map<std::pair<uint32_t, uint32_t>, int> held;  // (layer, slice) -> ranks
  uint32_t embeddings = 0, heads = 0, rank = 0;
  std::map<std::string, int> used;
  for (const v1::Assignment& assignment : plan.assignments()) {
    EXPECT_EQ(assignment.rank(), rank++);
    ASSERT_EQ(nodes.count(assignment.node_id()), 1u);
    EXPECT_TRUE(nodes[assignment.node_id()]->schedulable());
    EXPECT_EQ(++used[assignment.node_id()], 1) << "two ranks on one node";
    EXPECT_LT(assignment.layer_begin(), assignment.layer_end());
    for (uint32_t layer = assignment.layer_begin(); layer < assignment.layer_end(); ++layer) {
      ++held[{layer, assignment.tp_rank()}];
    }
    EXPECT_LE(assignment.need().total_bytes(), assignment.budget_bytes());
    EXPECT_LE(assignment.budget_bytes(), nodes[assignment.node_id()]->memory_usable_bytes());
    embeddings += assignment.holds_embedding() ? 1 : 0;
    heads += assignment.holds_head() ? 1 : 0;
  }
  EXPECT_EQ(held.size(), size_t{request.model().layer_count()} * plan.tp());
  for (const auto& [part, ranks] : held) EXPECT_EQ(ranks, 1) << "layer " << part.first;
  EXPECT_EQ(embeddings, plan.tp());
  EXPECT_EQ(heads, 1u) << "logits are computed once";
  EXPECT_TRUE(plan.assignments(0).holds_embedding());
}

TEST(PlannerProperty, EveryLayerOnceAndNoRankOverItsBudget) {
  uint32_t plans = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const v1::PlanRequest request = RandomRequest(seed);
    const v1::PlanResult result = PlanModel(request);
    ASSERT_NE(result.has_plan(), result.has_failure());
    if (!result.has_plan()) {
      EXPECT_FALSE(result.failure().message().empty());
      continue;
    }
    ++plans;
    CheckPlan(request, result.plan());
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(plans, kSeeds / 5) << "the generator makes too few that fit";
  EXPECT_LT(plans, kSeeds - kSeeds / 5) << "the generator makes too few that don't";
}

TEST(PlannerProperty, TheSameRequestGivesTheSameBytes) {
  for (uint64_t seed = 0; seed < kSeeds / 10; ++seed) {
    const v1::PlanRequest request = RandomRequest(seed);
    EXPECT_EQ(PlanModel(request).SerializeAsString(), PlanModel(request).SerializeAsString());
  }
}

TEST(PlannerProperty, RenamingNodesRenamesThePlan) {
  for (uint64_t seed = 0; seed < kSeeds / 2; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const v1::PlanRequest request = RandomRequest(seed);
    v1::PlanRequest renamed = request;
    std::map<std::string, std::string> names;
    for (int i = 0; i < renamed.nodes_size(); ++i) {
      std::string& id = names[request.nodes(i).node_id()];
      id = "other-" + std::to_string(100 - i);
      renamed.mutable_nodes(i)->set_node_id(id);
      renamed.mutable_nodes(i)->set_hostname("x" + id);
    }
    const v1::PlanResult before = PlanModel(request);
    const v1::PlanResult after = PlanModel(renamed);
    ASSERT_EQ(before.has_plan(), after.has_plan());
    ASSERT_EQ(before.plan().assignments_size(), after.plan().assignments_size());
    for (int i = 0; i < before.plan().assignments_size(); ++i) {
      v1::Assignment expected = before.plan().assignments(i);
      expected.set_hostname("x" + names[expected.node_id()]);
      expected.set_node_id(names[expected.node_id()]);
      EXPECT_EQ(expected.SerializeAsString(), after.plan().assignments(i).SerializeAsString());
    }
  }
}

TEST(PlannerProperty, MoreMemoryNeverTurnsAFitIntoNone) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    v1::PlanRequest request = RandomRequest(seed);
    if (!PlanModel(request).has_plan()) continue;
    std::mt19937_64 random(seed + 1'000'000);
    const int node =
        static_cast<int>(Pick(random, 0, static_cast<uint64_t>(request.nodes_size()) - 1));
    const uint64_t more = Pick(random, 1, 64 * kGiB);
    v1::PlannerNode* grown = request.mutable_nodes(node);
    grown->set_memory_usable_bytes(grown->memory_usable_bytes() + more);
    grown->set_memory_available_bytes(grown->memory_available_bytes() + more);
    EXPECT_TRUE(PlanModel(request).has_plan());
  }
}

TEST(PlannerProperty, AShorterContextNeverTurnsAFitIntoNone) {
  for (uint64_t seed = 0; seed < kSeeds / 2; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    v1::PlanRequest request = RandomRequest(seed);
    if (!PlanModel(request).has_plan() || request.placement().context_length() < 2) continue;
    request.mutable_placement()->set_context_length(request.placement().context_length() / 2);
    EXPECT_TRUE(PlanModel(request).has_plan());
  }
}

}  // namespace
}  // namespace macrame::planner
