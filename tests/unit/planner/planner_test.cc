#include "planner/planner.h"

#include <gtest/gtest.h>

#include <functional>

#include "planner/memory_model.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

std::vector<v1::PlannerNode> ThreeNodes() {
  return {Node("aaaa", 8 * kGiB), Node("bbbb", 8 * kGiB), Node("cccc", 8 * kGiB)};
}

bool Rejected(const v1::PlanResult& result, const std::string& subject, const std::string& code) {
  for (const v1::Rejection& rejection : result.rejections()) {
    if (rejection.subject() == subject && rejection.reason().code() == code) return true;
  }
  return false;
}

TEST(Planner, ASmallModelGoesToOneNodeAndSaysWhy) {
  const v1::PlanResult result = PlanModel(Request(SmallModel(), ThreeNodes()));
  ASSERT_TRUE(result.has_plan()) << result.failure().message();
  const v1::Plan& plan = result.plan();
  EXPECT_EQ(plan.world_size(), 1u);
  EXPECT_EQ(plan.backend(), "single");
  EXPECT_EQ(plan.assignments(0).node_id(), "aaaa") << "the first of equals";
  EXPECT_EQ(plan.context_length(), 1024u);
  EXPECT_EQ(plan.snapshot_revision(), 7u);
  EXPECT_NE(plan.reasons(0).message().find("fits on one node"), std::string::npos);
  EXPECT_TRUE(Rejected(result, "pipeline parallel over 3", "NOT_CHOSEN"));
  EXPECT_TRUE(Rejected(result, "tensor parallel over 3", "HEADS_INDIVISIBLE"));
}

// The whole text of the first reason of which `part` is a part.
std::string ReasonWith(const v1::Plan& plan, const std::string& part) {
  for (const v1::Reason& reason : plan.reasons()) {
    if (reason.message().find(part) != std::string::npos) return reason.message();
  }
  return "";
}

TEST(Planner, OneLineSaysWhetherAnotherNodeHelpsOrOnlyLetsItFit) {
  std::vector<v1::PlannerNode> nodes;
  for (const char* id : {"aaaa", "bbbb", "cccc", "dddd"}) {
    nodes.push_back(Node(id, 96 * kGiB));
    nodes.back().set_chip("Apple M3 Ultra");
    nodes.back().set_gpu_cores(80);
  }
  v1::PlanRequest request = Request(LargeModel("m", 150 * kGiB, 60), nodes);
  AddMesh({"aaaa", "bbbb", "cccc", "dddd"}, &request);
  const v1::Plan plan = PlanModel(request).plan();
  const std::string line = ReasonWith(plan, "one user would get");
  EXPECT_EQ(line.find("one user would get: 1 node: does not fit, 2 nodes: "), 0u) << line;
  EXPECT_NE(line.find(" tokens/s (no faster), 4 nodes: "), std::string::npos)
      << "three do not divide the heads: " << line;
  EXPECT_NE(line.find(" %)"), std::string::npos) << line;
  request.mutable_nodes()->DeleteSubrange(1, 3);
  *request.mutable_model() = SmallModel();
  EXPECT_EQ(ReasonWith(PlanModel(request).plan(), "one user would get"), "")
      << "there is no other node";
}

TEST(Planner, NodesThatCannotMeetAreNotSaidToBeTooSmall) {
  v1::PlanRequest request = Request(SmallModel(), {Node("aaaa", 8 * kGiB), Node("bbbb", 8 * kGiB)});
  AddLink("aaaa", "bbbb", {}, v1::LINK_MEDIUM_ETHERNET, &request);
  const v1::Plan plan = PlanModel(request).plan();
  EXPECT_NE(ReasonWith(plan, "2 nodes: not possible"), "");
  EXPECT_NE(ReasonWith(plan, "no way to divide it"), "");
}

TEST(Planner, TheWayThatIsNotTakenIsRefusedForItsTrueReason) {
  v1::PlanRequest request = Request(SmallModel(), ThreeNodes());
  request.mutable_placement()->set_world_size(3);
  EXPECT_EQ(ReasonWith(PlanModel(request).plan(), "pipeline parallel;"),
            "pipeline parallel; tensor parallel over 3 is not possible: 8 attention heads and 4 "
            "key-value heads can't be divided by 3, and the engine cuts layers into equal slices "
            "only");
  // Asked for: no other reason.
  request.mutable_placement()->set_parallelism(v1::PARALLELISM_PIPELINE);
  EXPECT_EQ(ReasonWith(PlanModel(request).plan(), "pipeline parallel"),
            "pipeline parallel was asked for");
  // By memory.
  v1::PlanRequest large =
      Request(LargeModel("m", 60 * kGiB, 60), {Node("aaaa", 64 * kGiB), Node("bbbb", 8 * kGiB)});
  large.mutable_placement()->set_world_size(2);
  EXPECT_NE(ReasonWith(PlanModel(large).plan(),
                       "tensor parallel over 2 is not possible: each of 2 "
                       "equal slices needs"),
            "");
}

TEST(Planner, WhatIsComparedIsWhatWasAskedFor) {
  std::vector<v1::PlannerNode> nodes = {Node("aaaa", 96 * kGiB), Node("bbbb", 96 * kGiB)};
  v1::PlanRequest request = Request(LargeModel("m", 60 * kGiB, 60), nodes);
  request.mutable_placement()->set_optimize(v1::OPTIMIZE_MEMORY);
  EXPECT_NE(ReasonWith(PlanModel(request).plan(), "a fullest node at"), "");
  request.mutable_placement()->set_optimize(v1::OPTIMIZE_THROUGHPUT);
  request.mutable_placement()->set_users(64);
  EXPECT_NE(ReasonWith(PlanModel(request).plan(), "tokens/s for all users, tensor"), "");
}

TEST(Planner, AWorldSizeThatIsAskedForIsMet) {
  v1::PlanRequest request = Request(SmallModel(), ThreeNodes());
  request.mutable_placement()->set_world_size(3);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_TRUE(result.has_plan()) << result.failure().message();
  const v1::Plan& plan = result.plan();
  EXPECT_EQ(plan.world_size(), 3u);
  EXPECT_EQ(plan.pp(), 3u);
  EXPECT_EQ(plan.tp(), 1u);
  EXPECT_EQ(plan.backend(), "ring");
  EXPECT_TRUE(plan.assignments(0).holds_embedding());
  EXPECT_FALSE(plan.assignments(0).holds_head());
  EXPECT_TRUE(plan.assignments(2).holds_head());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(plan.assignments(i).stage(), static_cast<uint32_t>(i));
    EXPECT_EQ(plan.assignments(i).layer_end() - plan.assignments(i).layer_begin(), 2u);
  }
}

TEST(Planner, TensorParallelIsTakenWhenAskedFor) {
  v1::PlanRequest request = Request(SmallModel(), ThreeNodes());
  request.mutable_placement()->set_parallelism(v1::PARALLELISM_TENSOR);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_TRUE(result.has_plan()) << result.failure().message();
  EXPECT_EQ(result.plan().tp(), 2u);
  EXPECT_EQ(result.plan().assignments(1).tp_rank(), 1u);
  EXPECT_EQ(result.plan().assignments(1).layer_end(), 6u);

  request.mutable_placement()->set_world_size(3);
  const v1::PlanResult refused = PlanModel(request);
  EXPECT_FALSE(refused.has_plan());
  EXPECT_EQ(refused.failure().code(), "HEADS_INDIVISIBLE");
}

// Four key-value heads over three ranks: alike nodes get alike parts, and a rank is counted with
// the two heads that one of them has.
TEST(Planner, AnEngineThatCutsUnevenlyDividesHeadsByAnyDegree) {
  std::vector<v1::PlannerNode> nodes = ThreeNodes();
  for (v1::PlannerNode& node : nodes) node.mutable_traits()->set_uneven_tensor(true);
  v1::PlanRequest request = Request(SmallModel(), nodes);
  request.mutable_placement()->set_parallelism(v1::PARALLELISM_TENSOR);
  request.mutable_placement()->set_world_size(3);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_TRUE(result.has_plan()) << result.failure().message();
  ASSERT_EQ(result.plan().tp(), 3u);
  for (const v1::Assignment& part : result.plan().assignments()) {
    EXPECT_EQ(part.slice_count(), 0u) << "equal parts";
    EXPECT_TRUE(part.holds_head());
    EXPECT_EQ(part.need().kv_cache_bytes(),
              6 * LayerKvBytes(SmallModel(), 0, {1, 2}, {1024, 1}, ComputeKind::kGpu));
    EXPECT_NEAR(static_cast<double>(part.need().embedding_bytes()),
                static_cast<double>(SmallModel().embedding_bytes()) / 3, 1);
  }
}

TEST(Planner, NamedNodesAreTheOnlyOnesAndAWayToDivideUsesThemAll) {
  v1::PlanRequest request = Request(SmallModel(), ThreeNodes());
  request.mutable_placement()->add_node_ids("cccc");
  request.mutable_placement()->add_node_ids("host-bbbb");
  v1::PlanResult result = PlanModel(request);
  ASSERT_TRUE(result.has_plan()) << result.failure().message();
  EXPECT_EQ(result.plan().world_size(), 1u);
  EXPECT_EQ(result.plan().assignments(0).node_id(), "bbbb");
  EXPECT_TRUE(Rejected(result, "node host-aaaa (aaaa)", "NODE_EXCLUDED"));

  request.mutable_placement()->set_parallelism(v1::PARALLELISM_PIPELINE);
  result = PlanModel(request);
  ASSERT_TRUE(result.has_plan()) << result.failure().message();
  EXPECT_EQ(result.plan().world_size(), 2u);

  request.mutable_placement()->add_node_ids("bbbb");
  result = PlanModel(request);
  ASSERT_TRUE(result.has_plan()) << "naming a node twice asks for no more: "
                                 << result.failure().message();
  EXPECT_EQ(result.plan().world_size(), 2u);

  request.mutable_placement()->add_node_ids("dddd");
  result = PlanModel(request);
  EXPECT_EQ(result.failure().code(), "NODE_NOT_FOUND");
  EXPECT_NE(result.failure().message().find("dddd"), std::string::npos);
}

TEST(Planner, ANameThatMeansTwoNodesIsRefused) {
  std::vector<v1::PlannerNode> nodes = ThreeNodes();
  nodes[1].set_hostname(nodes[0].hostname());
  v1::PlanRequest request = Request(SmallModel(), nodes);
  request.mutable_placement()->add_node_ids("host-aaaa");
  EXPECT_EQ(PlanModel(request).failure().code(), "BAD_REQUEST");
}

TEST(Planner, NodesThatCannotTakeARankAreRejectedEachForItsReason) {
  std::vector<v1::PlannerNode> nodes = ThreeNodes();
  nodes.push_back(Node("dddd", kGiB));
  nodes.push_back(Node("eeee", kGiB));
  nodes[0].set_schedulable(false);
  nodes[1].set_has_model_files(false);
  nodes[2].clear_engine_names();
  nodes[3].set_memory_pressure(v1::MEMORY_PRESSURE_CRITICAL);
  const v1::PlanResult result = PlanModel(Request(SmallModel(), nodes));
  ASSERT_TRUE(result.has_plan()) << result.failure().message();
  EXPECT_EQ(result.plan().assignments(0).node_id(), "eeee");
  EXPECT_TRUE(Rejected(result, "node host-aaaa (aaaa)", "NODE_NOT_ALIVE"));
  EXPECT_TRUE(Rejected(result, "node host-bbbb (bbbb)", "MODEL_NOT_ON_NODE"));
  EXPECT_TRUE(Rejected(result, "node host-cccc (cccc)", "ENGINE_MISSING"));
  EXPECT_TRUE(Rejected(result, "node host-dddd (dddd)", "MEMORY_SHORT"));
}

TEST(Planner, WhenNoNodeHasTheFilesThatIsTheFailure) {
  std::vector<v1::PlannerNode> nodes = ThreeNodes();
  for (v1::PlannerNode& node : nodes) node.set_has_model_files(false);
  const v1::PlanResult result = PlanModel(Request(SmallModel(), nodes));
  EXPECT_FALSE(result.has_plan());
  EXPECT_EQ(result.failure().code(), "MODEL_NOT_ON_NODE");
  EXPECT_EQ(result.rejections_size(), 3);
}

TEST(Planner, FewerNodesThanRanksAskedFor) {
  v1::PlanRequest request = Request(SmallModel(), {Node("aaaa", 8 * kGiB), Node("bbbb", 8 * kGiB)});
  request.mutable_placement()->set_world_size(3);
  EXPECT_EQ(PlanModel(request).failure().code(), "TOO_FEW_NODES");
  request.set_recovering(true);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_TRUE(result.has_plan()) << result.failure().message();
  EXPECT_EQ(result.plan().world_size(), 2u);
  EXPECT_NE(result.plan().reasons(0).message().find("3 ranks were asked for"), std::string::npos);
}

TEST(Planner, RecoveringServesInAnotherWayRatherThanNot) {
  v1::PlanRequest request = Request(SmallModel(), ThreeNodes());
  request.mutable_placement()->set_parallelism(v1::PARALLELISM_TENSOR);
  request.mutable_placement()->set_world_size(4);
  request.set_recovering(true);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_TRUE(result.has_plan()) << result.failure().message();
  EXPECT_EQ(result.plan().tp(), 2u) << "three do not divide the heads";
}

TEST(Planner, ARecoveringDeploymentForgetsNamedNodesThatAreGone) {
  v1::PlanRequest request = Request(SmallModel(), {Node("aaaa", 8 * kGiB)});
  request.mutable_placement()->add_node_ids("aaaa");
  request.mutable_placement()->add_node_ids("gone");
  request.mutable_placement()->set_parallelism(v1::PARALLELISM_PIPELINE);
  EXPECT_EQ(PlanModel(request).failure().code(), "NODE_NOT_FOUND");
  request.set_recovering(true);
  EXPECT_TRUE(PlanModel(request).has_plan());
}

TEST(Planner, TooLargeAModelSaysWhatWouldHelp) {
  v1::PlanRequest request = Request(LargeModel("big", 30 * kGiB, 40), ThreeNodes());
  const v1::PlanResult result = PlanModel(request);
  ASSERT_FALSE(result.has_plan());
  EXPECT_EQ(result.failure().code(), "MEMORY_SHORT");
  EXPECT_NE(result.failure().message().find("host-bbbb (bbbb) 8.0 GiB"), std::string::npos)
      << result.failure().message();
  EXPECT_NE(result.failure().remedy().find("8-bit copy"), std::string::npos)
      << result.failure().remedy();
  EXPECT_NE(result.failure().remedy().find("more free memory"), std::string::npos);
}

// What is advised is what would do: three quarters of a Mac are its GPU's, two thirds of a small
// one.
TEST(Planner, AMachineThatIsTooSmallIsToldWhichWouldDo) {
  for (const uint64_t gib : {16, 24, 64}) {
    v1::PlannerNode node = Node("a", gib <= 36 ? gib * kGiB / 3 * 2 : gib * kGiB / 4 * 3);
    node.set_memory_total_bytes(gib * kGiB);
    v1::PlanRequest request = Request(LargeModel("m", (gib - 2) * kGiB, 40), {node});
    const std::string remedy = PlanModel(request).failure().remedy();
    const size_t at = remedy.find("a machine of at least ");
    ASSERT_NE(at, std::string::npos) << remedy;
    const uint64_t wanted = std::stoul(remedy.substr(at + 22));
    v1::PlannerNode& larger = *request.mutable_nodes(0);
    larger.set_memory_total_bytes(wanted * kGiB);
    larger.set_memory_usable_bytes(wanted <= 36 ? wanted * kGiB / 3 * 2 : wanted * kGiB / 4 * 3);
    larger.set_memory_available_bytes(larger.memory_usable_bytes());
    EXPECT_TRUE(PlanModel(request).has_plan()) << remedy << "\n"
                                               << PlanModel(request).failure().message();
  }
}

TEST(Planner, AFullestNodeAsEmptyGoesToTheFasterPlan) {
  v1::PlanRequest request = Request(LargeModel("m", 200 * kGiB, 64),
                                    {Node("aaaa", 384 * kGiB), Node("bbbb", 384 * kGiB),
                                     Node("cccc", 384 * kGiB), Node("dddd", 384 * kGiB)});
  for (v1::PlannerNode& node : *request.mutable_nodes()) node.set_chip("Apple M3 Ultra");
  request.mutable_placement()->set_optimize(v1::OPTIMIZE_MEMORY);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_TRUE(result.has_plan());
  for (const v1::Rejection& other : result.rejections()) {
    const bool as_empty =
        other.reason().message().find("its fullest node to 14 %") != std::string::npos;
    if (!as_empty) continue;
    EXPECT_LE(other.prediction().tokens_per_second(),
              result.plan().prediction().tokens_per_second())
        << other.subject();
  }
}

TEST(PlanModel, ANodeThatLimitsModelsItselfIsToldWhichSettingToRaise) {
  v1::PlannerNode node = Node("a", 20 * kGiB);
  node.set_memory_total_bytes(128 * kGiB);
  node.set_memory_available_bytes(100 * kGiB);
  node.set_memory_limit_is_configured(true);
  node.clear_gpu_cores();
  const v1::PlanResult result = PlanModel(Request(LargeModel("m", 40 * kGiB, 40), {node}));
  EXPECT_NE(result.failure().remedy().find("models_memory_max_mib: "), std::string::npos)
      << result.failure().remedy();
}

TEST(Planner, ACopyWithFewerBitsHasGroupsLikeTheModelsOwn) {
  v1::PlanRequest request = Request(LargeModel("big", 36 * kGiB, 40), ThreeNodes());
  const auto remedy = [&](uint32_t group) {
    request.mutable_model()->mutable_quantization()->set_bits(8);
    request.mutable_model()->mutable_quantization()->set_group_size(group);
    return PlanModel(request).failure().remedy();
  };
  // Scale and bias are half a bit of each weight in groups of 64, a whole one in groups of 32.
  EXPECT_NE(remedy(64).find("4-bit copy of the model (19.1 GiB"), std::string::npos) << remedy(64);
  EXPECT_NE(remedy(32).find("4-bit copy of the model (20.0 GiB"), std::string::npos) << remedy(32);
}

TEST(Planner, TooLongAContextSaysWhichWouldFit) {
  v1::PlanRequest request = Request(LargeModel("big", 10 * kGiB, 40), {Node("aaaa", 16 * kGiB)});
  request.mutable_placement()->set_context_length(131'072);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_FALSE(result.has_plan());
  EXPECT_NE(result.failure().remedy().find("a context of "), std::string::npos)
      << result.failure().remedy();
  // What is advised is true.
  const std::string& remedy = result.failure().remedy();
  const uint32_t advised =
      static_cast<uint32_t>(std::stoul(remedy.substr(remedy.find("a context of ") + 13)));
  request.mutable_placement()->set_context_length(advised);
  EXPECT_TRUE(PlanModel(request).has_plan());
  request.mutable_placement()->set_context_length(advised + 256);
  EXPECT_FALSE(PlanModel(request).has_plan());
}

TEST(Planner, AContextBeyondTheModelsOwnIsRefused) {
  v1::PlanRequest request = Request(SmallModel(), ThreeNodes());
  request.mutable_placement()->set_context_length(1025);
  EXPECT_EQ(PlanModel(request).failure().code(), "BAD_REQUEST");
}

TEST(Planner, RdmaLinksMakeTensorTheFirstChoice) {
  v1::PlanRequest request =
      Request(LargeModel("m", 40 * kGiB, 60), {Node("aaaa", 96 * kGiB), Node("bbbb", 96 * kGiB)});
  for (v1::PlannerNode& node : *request.mutable_nodes()) node.set_chip("Apple M3 Ultra");
  request.mutable_placement()->set_world_size(2);
  EXPECT_EQ(PlanModel(request).plan().parallelism(), v1::PARALLELISM_PIPELINE);
  AddMesh({"aaaa", "bbbb"}, &request);
  const v1::Plan plan = PlanModel(request).plan();
  EXPECT_EQ(plan.parallelism(), v1::PARALLELISM_TENSOR);
  EXPECT_EQ(plan.backend(), "jaccl");
  EXPECT_EQ(plan.backend_topology(), "mesh");
}

TEST(Planner, ManyRanksThatAreAskedForAreLookedForOnManyNodes) {
  std::vector<v1::PlannerNode> nodes;
  for (int i = 0; i < 12; ++i) nodes.push_back(Node("node-" + std::to_string(i), 24 * kGiB));
  v1::PlanRequest request = Request(LargeModel("m", 20 * kGiB, 60), nodes);
  request.mutable_placement()->set_world_size(10);
  request.mutable_placement()->set_parallelism(v1::PARALLELISM_PIPELINE);
  EXPECT_EQ(PlanModel(request).plan().pp(), 10u);
  request.mutable_placement()->set_world_size(8);
  request.mutable_placement()->set_parallelism(v1::PARALLELISM_TENSOR);
  EXPECT_EQ(PlanModel(request).plan().tp(), 8u);
}

// Six larger machines that reach nobody hide seven that reach each other.
TEST(Planner, APartOfTheClusterThatIsCutOffIsLookedAt) {
  std::vector<v1::PlannerNode> nodes;
  for (int i = 0; i < 6; ++i) nodes.push_back(Node("lone-" + std::to_string(i), 40 * kGiB));
  for (int i = 0; i < 7; ++i) nodes.push_back(Node("part-" + std::to_string(i), 24 * kGiB));
  v1::PlanRequest request = Request(LargeModel("m", 60 * kGiB, 60), nodes);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t j = 0; j < std::min<size_t>(i, 6); ++j) {
      AddLink(nodes[i].node_id(), nodes[j].node_id(), {}, v1::LINK_MEDIUM_ETHERNET, &request);
    }
  }
  const v1::PlanResult few = PlanModel(request);
  ASSERT_TRUE(few.has_plan()) << few.failure().message();
  EXPECT_LT(few.plan().world_size(), 5u);
  EXPECT_EQ(few.plan().assignments(0).node_id(), "part-0");
  *request.mutable_model() = LargeModel("m", 140 * kGiB, 60);
  const v1::PlanResult seven = PlanModel(request);
  ASSERT_TRUE(seven.has_plan()) << "more stages than a short list has: "
                                << seven.failure().message();
  EXPECT_EQ(seven.plan().world_size(), 7u);
}

TEST(Planner, AWholeNameMeansThatNodeAlone) {
  std::vector<v1::PlannerNode> nodes = {Node("node-1", 8 * kGiB), Node("node-10", 64 * kGiB)};
  v1::PlanRequest request = Request(SmallModel(), nodes);
  request.mutable_placement()->add_node_ids("node-1");
  EXPECT_EQ(PlanModel(request).plan().assignments(0).node_id(), "node-1");
  request.mutable_placement()->clear_node_ids();
  request.mutable_placement()->add_excluded_node_ids("node-1");
  EXPECT_EQ(PlanModel(request).plan().assignments(0).node_id(), "node-10");
  request.mutable_placement()->add_excluded_node_ids("nobody");
  EXPECT_EQ(PlanModel(request).failure().code(), "NODE_NOT_FOUND");
}

TEST(Planner, APlanInForceThatMakesNoSenseIsNotBelieved) {
  v1::PlanRequest request = Request(SmallModel(), ThreeNodes());
  request.mutable_placement()->set_world_size(2);
  const v1::Plan good = PlanModel(request).plan();
  const auto spoil = [&](const std::function<void(v1::Plan*)>& how) {
    *request.mutable_current() = good;
    how(request.mutable_current());
    const v1::PlanResult result = PlanModel(request);
    EXPECT_TRUE(result.has_plan());
    EXPECT_EQ(result.plan().reasons(0).message().find("where it runs"), std::string::npos);
  };
  spoil([](v1::Plan* plan) { plan->mutable_assignments(0)->set_layer_end(77); });
  spoil([](v1::Plan* plan) { plan->mutable_assignments(0)->set_layer_begin(5); });
  spoil([](v1::Plan* plan) { plan->mutable_assignments(1)->set_slice_count(4); });
  spoil([](v1::Plan* plan) { plan->mutable_assignments(1)->set_node_id("aaaa"); });
  spoil([](v1::Plan* plan) { plan->mutable_assignments(1)->set_node_id("gone"); });
  spoil([](v1::Plan* plan) {
    plan->set_tp(0x80000000);
    plan->set_pp(0x80000000);
  });
  *request.mutable_current() = good;
  EXPECT_NE(PlanModel(request).plan().reasons(0).message().find("where it runs"),
            std::string::npos);
}

TEST(Planner, NonsenseIsRefusedWithAReason) {
  EXPECT_EQ(PlanModel(v1::PlanRequest()).failure().code(), "MODEL_CONFIG_INVALID");
  EXPECT_EQ(PlanModel(Request(SmallModel(), {})).failure().code(), "TOO_FEW_NODES");
  v1::PlanRequest request = Request(SmallModel(), ThreeNodes());
  request.mutable_placement()->set_world_size(0xffffffff);
  EXPECT_EQ(PlanModel(request).failure().code(), "TOO_FEW_NODES");
  request.mutable_placement()->set_world_size(0);
  request.mutable_placement()->set_concurrent_sequences(0xffffffff);
  EXPECT_EQ(PlanModel(request).failure().code(), "BAD_REQUEST");
}

}  // namespace
}  // namespace macrame::planner
