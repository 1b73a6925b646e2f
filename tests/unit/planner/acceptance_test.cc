// Loads that people ran or tried on real Macs (P-1 to P-20), and placements that other planners get
// wrong: what this one must say to each. A Mac lets its GPU wire about three quarters of its
// memory.

#include <gtest/gtest.h>

#include "planner/offline/catalogue_entry.h"
#include "planner/offline/cluster_file.h"
#include "planner/planner.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

constexpr uint64_t kGB = 1'000'000'000;

v1::PlanRequest Cluster(const std::vector<uint64_t>& memory_gib, CableGraph cables,
                        const std::string& chip = "Apple M3 Ultra") {
  v1::PlanRequest request;
  for (size_t i = 0; i < memory_gib.size(); ++i) {
    v1::PlannerNode node = Node("mac-" + std::to_string(i), memory_gib[i] * kGiB / 4 * 3);
    node.set_chip(chip);
    node.set_gpu_cores(80);
    *request.add_nodes() = node;
  }
  AddCables(cables, &request);
  return request;
}

v1::PlanResult Plan(uint64_t weights_bytes, const std::vector<uint64_t>& memory_gib,
                    CableGraph cables = CableGraph::kMesh) {
  v1::PlanRequest request = Cluster(memory_gib, cables);
  *request.mutable_model() = MixtureModel("model", weights_bytes, 64);
  return PlanModel(request);
}

const v1::Rejection* Rejected(const v1::PlanResult& result, const std::string& subject) {
  for (const v1::Rejection& rejection : result.rejections()) {
    if (rejection.subject() == subject) return &rejection;
  }
  return nullptr;
}

uint32_t Layers(const v1::Plan& plan, int rank) {
  return plan.assignments(rank).layer_end() - plan.assignments(rank).layer_begin();
}

TEST(PlannerAcceptance, TrillionParametersAt4Bit) {
  EXPECT_FALSE(Plan(658 * kGB, {512}).has_plan()) << "P-1";
  EXPECT_EQ(Plan(658 * kGB, {512, 512}).plan().world_size(), 2u) << "P-2";
  EXPECT_FALSE(Plan(658 * kGB, {256, 256}).has_plan()) << "P-3";
  EXPECT_EQ(Plan(658 * kGB, {512, 512, 256, 256}).plan().tp(), 4u) << "P-4";
  // P-5: 86 % of all memory: refused, because the GPUs may not wire so much.
  const v1::PlanResult refused = Plan(658 * kGB, {512, 256});
  ASSERT_FALSE(refused.has_plan());
  EXPECT_NE(refused.failure().message().find("too little"), std::string::npos)
      << refused.failure().message();
}

TEST(PlannerAcceptance, DeepSeekAt4Bit) {
  EXPECT_EQ(Plan(378 * kGB, {512}).plan().world_size(), 1u) << "P-6";
  EXPECT_FALSE(Plan(378 * kGB, {256}).has_plan()) << "P-7";
  EXPECT_EQ(Plan(378 * kGB, {256, 256}).plan().world_size(), 2u) << "P-8";
}

TEST(PlannerAcceptance, Qwen235At8Bit) {
  EXPECT_EQ(Plan(242 * kGB, {512}).plan().world_size(), 1u) << "P-9";
  const v1::PlanResult refused = Plan(242 * kGB, {256});
  ASSERT_FALSE(refused.has_plan()) << "P-10";
  EXPECT_NE(refused.failure().remedy().find("bit copy"), std::string::npos)
      << refused.failure().remedy();
  EXPECT_TRUE(Plan(242 * kGB, {256, 256}).has_plan());
}

TEST(PlannerAcceptance, OneTerabyteOnlyUnevenly) {
  const v1::PlanResult result = Plan(1000 * kGB, {512, 512, 256, 256});
  ASSERT_TRUE(result.has_plan()) << "P-11: " << result.failure().message();
  EXPECT_EQ(result.plan().world_size(), 4u);
  EXPECT_EQ(result.plan().tp(), 1u);
  uint32_t large = 0, small = 0;
  for (int i = 0; i < 4; ++i) {
    const bool is_large = result.plan().assignments(i).budget_bytes() > 300 * kGiB;
    (is_large ? large : small) += Layers(result.plan(), i);
  }
  EXPECT_GT(large, small);
  const v1::Rejection* equal = Rejected(result, "tensor parallel over 4");
  ASSERT_NE(equal, nullptr);
  EXPECT_EQ(equal->reason().code(), "MEMORY_SHORT");
  EXPECT_NE(equal->reason().message().find("equal slices only"), std::string::npos)
      << equal->reason().message();

  // Eighths are what its heads can be cut into: three and three, one and one.
  v1::PlanRequest request = Cluster({512, 512, 256, 256}, CableGraph::kMesh);
  *request.mutable_model() = MixtureModel("model", 900 * kGB, 64);
  for (v1::PlannerNode& node : *request.mutable_nodes()) {
    node.mutable_traits()->set_uneven_tensor(true);
  }
  const v1::Plan uneven = PlanModel(request).plan();
  EXPECT_EQ(uneven.tp(), 4u) << "an engine that can cut unevenly does";
  EXPECT_GT(uneven.assignments(0).slice_end() - uneven.assignments(0).slice_begin(),
            uneven.assignments(3).slice_end() - uneven.assignments(3).slice_begin());
}

TEST(PlannerAcceptance, MinisOf24GiB) {
  const v1::PlanResult fits = Plan(40'500'000'000, {24, 24, 24});
  ASSERT_TRUE(fits.has_plan()) << "P-12: " << fits.failure().message();
  EXPECT_EQ(fits.plan().pp(), 3u);
  const v1::PlanResult refused = Plan(65'600'000'000, {24, 24, 24});
  ASSERT_FALSE(refused.has_plan()) << "P-13";
  EXPECT_NE(refused.failure().remedy().find("8-bit copy"), std::string::npos);
  EXPECT_FALSE(Plan(228 * kGB, {24, 24, 24}).has_plan()) << "P-14";
}

TEST(PlannerAcceptance, LargeOnSeveral) {
  EXPECT_EQ(Plan(74'400'000'000, {64, 64}).plan().world_size(), 2u) << "P-15";
  EXPECT_TRUE(Plan(713 * kGB, {512, 512, 512, 512}).has_plan()) << "P-16";
  EXPECT_FALSE(Plan(713 * kGB, {192, 192, 192, 192}).has_plan()) << "P-17";
  EXPECT_TRUE(Plan(378 * kGB, {192, 192, 192, 192}).has_plan()) << "P-17";
}

TEST(PlannerAcceptance, Thunderbolt4PairNeverUsesJaccl) {
  v1::PlanRequest request = Cluster({128, 128}, CableGraph::kNone);
  request.mutable_nodes(0)->set_chip("Apple M3 Max");
  request.mutable_nodes(1)->set_chip("Apple M4 Max");
  AddLink("mac-0", "mac-1", {"ring"}, v1::LINK_MEDIUM_THUNDERBOLT, &request);
  *request.mutable_model() = MixtureModel("MiniMax-M2.5-6bit", 186 * kGB, 62);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_TRUE(result.has_plan()) << "P-18: " << result.failure().message();
  EXPECT_EQ(result.plan().backend(), "ring");
  EXPECT_EQ(result.plan().world_size(), 2u);
}

TEST(PlannerAcceptance, ARingOfFourIsNoMesh) {
  const v1::PlanResult result = Plan(1000 * kGB, {512, 512, 512, 512}, CableGraph::kRing);
  ASSERT_TRUE(result.has_plan()) << "P-19: " << result.failure().message();
  EXPECT_EQ(result.plan().backend(), "jaccl");
  EXPECT_EQ(result.plan().backend_topology(), "ring");
  // The two cables that a mesh would take make it faster, and can be had.
  const v1::PlanResult mesh = Plan(1000 * kGB, {512, 512, 512, 512});
  EXPECT_EQ(mesh.plan().backend_topology(), "mesh");
  EXPECT_GT(mesh.plan().prediction().tokens_per_second(),
            result.plan().prediction().tokens_per_second());
}

TEST(PlannerAcceptance, ThreeWithRdmaAgainstFourWithout) {
  v1::PlanRequest request = Cluster({256, 256, 256, 256}, CableGraph::kNone);
  request.mutable_nodes(3)->set_chip("Apple M2 Ultra");
  for (v1::PlannerNode& node : *request.mutable_nodes()) {
    node.mutable_traits()->set_uneven_tensor(true);
  }
  AddMesh({"mac-0", "mac-1", "mac-2"}, &request);
  for (const char* other : {"mac-0", "mac-1", "mac-2"}) {
    AddLink(other, "mac-3", {"ring"}, v1::LINK_MEDIUM_THUNDERBOLT, &request);
  }
  *request.mutable_model() = MixtureModel("model", 400 * kGB, 64);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_TRUE(result.has_plan()) << "P-20: " << result.failure().message();
  EXPECT_EQ(result.plan().tp(), 3u);
  EXPECT_EQ(result.plan().backend(), "jaccl");
  const v1::Rejection* four = Rejected(result, "tensor parallel over 4");
  ASSERT_NE(four, nullptr);
  EXPECT_LT(four->prediction().tokens_per_second(), result.plan().prediction().tokens_per_second());
}

// ---- Placements that sink other planners.

TEST(PlannerPlacement, ATinyNodeBesideALargeOneIsNotHandedHalf) {
  v1::PlanRequest request = Cluster({512, 32}, CableGraph::kMesh);
  *request.mutable_model() = MixtureModel("model", 400 * kGB, 64);
  request.mutable_placement()->set_parallelism(v1::PARALLELISM_TENSOR);
  const v1::PlanResult even = PlanModel(request);
  ASSERT_FALSE(even.has_plan());
  EXPECT_EQ(even.failure().code(), "MEMORY_SHORT");
  EXPECT_EQ(even.failure().node_id(), "mac-1");
  for (v1::PlannerNode& node : *request.mutable_nodes()) {
    node.mutable_traits()->set_uneven_tensor(true);
  }
  const v1::PlanResult uneven = PlanModel(request);
  EXPECT_FALSE(uneven.has_plan()) << "an eighth is more than 24 GiB still";
  EXPECT_NE(uneven.failure().message().find("8ths"), std::string::npos)
      << uneven.failure().message();
}

TEST(PlannerPlacement, ThreeModelsInARowSeeWhatIsPromisedToTheFirst) {
  v1::PlanRequest request = Cluster({64, 64}, CableGraph::kNone);
  *request.mutable_model() = LargeModel("model", 40 * kGB, 60);
  request.mutable_placement()->set_world_size(1);
  std::vector<std::string> nodes;
  for (int i = 0; i < 2; ++i) {
    const v1::PlanResult result = PlanModel(request);
    ASSERT_TRUE(result.has_plan()) << result.failure().message();
    nodes.push_back(result.plan().assignments(0).node_id());
    for (v1::PlannerNode& node : *request.mutable_nodes()) {
      if (node.node_id() != nodes.back()) continue;
      // Promised, and not taken yet: the free memory is as before.
      node.set_memory_reserved_bytes(result.plan().assignments(0).need().total_bytes());
    }
  }
  EXPECT_NE(nodes[0], nodes[1]);
  EXPECT_EQ(PlanModel(request).failure().code(), "MEMORY_SHORT");
}

TEST(PlannerPlacement, AChainWhoseMiddleIsNeededUsesAllThree) {
  const v1::PlanResult result = Plan(500 * kGB, {256, 256, 256}, CableGraph::kChain);
  ASSERT_TRUE(result.has_plan()) << result.failure().message();
  EXPECT_EQ(result.plan().world_size(), 3u);
}

TEST(PlannerPlacement, SmallerNodesWithCablesBeatLargerOnesWithout) {
  v1::PlanRequest request = Cluster({256, 256, 512, 512}, CableGraph::kNone);
  AddMesh({"mac-0", "mac-1"}, &request);
  *request.mutable_model() = MixtureModel("model", 300 * kGB, 64);
  const v1::Plan plan = PlanModel(request).plan();
  EXPECT_EQ(plan.tp(), 2u);
  EXPECT_EQ(plan.backend(), "jaccl");
  for (const v1::Assignment& part : plan.assignments()) {
    EXPECT_LT(part.budget_bytes(), 200 * kGiB) << part.node_id();
  }
}

TEST(PlannerPlacement, ACableThatOnlyOneEndCanUseIsNone) {
  v1::PlanRequest request = Cluster({256, 256}, CableGraph::kNone);
  AddLink("mac-0", "mac-1", {"ring", "jaccl"}, v1::LINK_MEDIUM_THUNDERBOLT, &request);
  request.mutable_links(1)->mutable_backends()->RemoveLast();
  *request.mutable_model() = MixtureModel("model", 300 * kGB, 64);
  EXPECT_EQ(PlanModel(request).plan().backend(), "ring");
}

TEST(PlannerPlacement, AnEthernetPairIsTakenBeforeAWifiPair) {
  v1::PlanRequest request = Cluster({64, 64, 64, 64}, CableGraph::kNone);
  const std::vector<std::string> ids = {"mac-0", "mac-1", "mac-2", "mac-3"};
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = i + 1; j < 4; ++j) {
      const bool wired = i >= 2;
      AddLink(ids[i], ids[j], {"ring"}, wired ? v1::LINK_MEDIUM_ETHERNET : v1::LINK_MEDIUM_WIFI,
              &request);
    }
  }
  *request.mutable_model() = LargeModel("model", 60 * kGB, 60);
  const v1::Plan plan = PlanModel(request).plan();
  ASSERT_EQ(plan.world_size(), 2u);
  EXPECT_EQ(plan.assignments(0).node_id(), "mac-2");
  EXPECT_EQ(plan.assignments(1).node_id(), "mac-3");
}

TEST(PlannerPlacement, ALeafBesideAMeshIsLeftOutWhenItWouldSlowTheRest) {
  v1::PlanRequest request = Cluster({512, 512, 512, 512}, CableGraph::kNone);
  for (v1::PlannerNode& node : *request.mutable_nodes()) {
    node.mutable_traits()->set_uneven_tensor(true);
  }
  AddMesh({"mac-0", "mac-1", "mac-2"}, &request);
  AddLink("mac-2", "mac-3", {"ring", "jaccl"}, v1::LINK_MEDIUM_THUNDERBOLT, &request);
  *request.mutable_model() = MixtureModel("model", 600 * kGB, 64);
  const v1::Plan plan = PlanModel(request).plan();
  EXPECT_EQ(plan.tp(), 3u);
  for (const v1::Assignment& part : plan.assignments()) EXPECT_NE(part.node_id(), "mac-3");
}

TEST(PlannerPlacement, ProcessorsBesideGpusGetWhatTheGpusCannotHold) {
  v1::PlanRequest request = Cluster({64, 64}, CableGraph::kNone);
  v1::PlannerNode box = Node("box", 128 * kGiB);
  box.set_gpu_cores(0);
  box.set_cpu_cores(16);
  *request.add_nodes() = box;
  *request.mutable_model() = LargeModel("model", 80 * kGB, 80);
  const v1::Plan plan = PlanModel(request).plan();
  EXPECT_EQ(plan.world_size(), 2u);
  for (const v1::Assignment& part : plan.assignments()) {
    EXPECT_NE(part.node_id(), "box") << "two GPUs hold it and are faster";
  }
  *request.mutable_model() = LargeModel("model", 100 * kGB, 80);
  const v1::Plan larger = PlanModel(request).plan();
  ASSERT_EQ(larger.world_size(), 3u) << "mostly on the GPUs, rather than alone on the processors";
  for (int i = 0; i < 3; ++i) {
    if (larger.assignments(i).node_id() != "box") continue;
    EXPECT_LT(Layers(larger, i), 20u);
  }
}

TEST(PlannerPlacement, DedicatedAndExcludedNodesAreLeftAlone) {
  v1::PlanRequest request = Cluster({512, 512, 512}, CableGraph::kMesh);
  request.mutable_nodes(0)->set_tenant("law");
  request.mutable_placement()->add_excluded_node_ids("mac-1");
  *request.mutable_model() = MixtureModel("model", 300 * kGB, 64);
  EXPECT_EQ(PlanModel(request).plan().assignments(0).node_id(), "mac-2");
  request.mutable_placement()->set_tenant("law");
  EXPECT_EQ(PlanModel(request).plan().tp(), 2u) << "the tenant's own and the common one";
}

TEST(PlannerPlacement, APlanInForceStaysUnlessAnotherIsWorthTheMove) {
  v1::PlanRequest request = Cluster({512, 512}, CableGraph::kNone);
  *request.mutable_model() = MixtureModel("model", 300 * kGB, 64);
  *request.mutable_current() = PlanModel(request).plan();
  ASSERT_EQ(request.current().world_size(), 1u);
  request.mutable_nodes(0)->set_memory_reserved_bytes(kGiB);  // the other one is emptier now
  v1::PlanResult result = PlanModel(request);
  EXPECT_EQ(result.plan().assignments(0).node_id(), request.current().assignments(0).node_id());
  EXPECT_NE(result.plan().reasons(0).message().find("where it runs now"), std::string::npos);
  AddMesh({"mac-0", "mac-1"}, &request);
  EXPECT_EQ(PlanModel(request).plan().tp(), 2u) << "a cable makes it so much faster";
}

TEST(PlannerPlacement, AnExactFitWithoutRoomForTheCacheIsRefused) {
  v1::PlanRequest request = Cluster({64}, CableGraph::kNone);
  *request.mutable_model() = LargeModel("model", 44 * kGiB, 60);
  EXPECT_TRUE(PlanModel(request).has_plan());
  request.mutable_placement()->set_context_length(131'072);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_FALSE(result.has_plan());
  EXPECT_NE(result.failure().remedy().find("a context of "), std::string::npos);
}

TEST(PlannerPlacement, TheGoalDecidesBetweenLatencyThroughputAndMemory) {
  v1::PlanRequest request = Cluster({512, 512}, CableGraph::kNone);
  *request.mutable_model() = LargeModel("model", 100 * kGB, 80);
  EXPECT_EQ(PlanModel(request).plan().world_size(), 1u);
  request.mutable_placement()->set_optimize(v1::OPTIMIZE_MEMORY);
  EXPECT_EQ(PlanModel(request).plan().world_size(), 2u);
  request.mutable_placement()->set_optimize(v1::OPTIMIZE_THROUGHPUT);
  request.mutable_placement()->set_users(64);
  const v1::Plan plan = PlanModel(request).plan();
  EXPECT_EQ(plan.pp(), 2u) << "both nodes work at the same time";
}

TEST(PlannerPlacement, ProcessorsAreNotUsedToEmptyGpus) {
  v1::PlanRequest request = Cluster({512, 512}, CableGraph::kMesh);
  v1::PlannerNode box = Node("box", 768 * kGiB);
  box.set_gpu_cores(0);
  box.set_cpu_cores(16);
  *request.add_nodes() = box;
  *request.mutable_model() = MixtureModel("model", 250 * kGB, 94);
  request.mutable_placement()->set_optimize(v1::OPTIMIZE_MEMORY);
  const v1::PlanResult result = PlanModel(request);
  for (const v1::Assignment& part : result.plan().assignments()) {
    EXPECT_NE(part.node_id(), "box") << "ten times slower, for an emptier node";
  }
  const v1::Rejection* box_out = Rejected(result, "node host-box (box)");
  ASSERT_NE(box_out, nullptr);
  EXPECT_NE(box_out->reason().message().find("on its processors"), std::string::npos);
  // Unless it is asked for, or the GPUs do not hold the model.
  request.mutable_placement()->add_node_ids("box");
  EXPECT_TRUE(PlanModel(request).has_plan());
  request.mutable_placement()->clear_node_ids();
  *request.mutable_model() = MixtureModel("model", 1000 * kGB, 94);
  EXPECT_TRUE(PlanModel(request).has_plan());
}

TEST(PlannerPlacement, AFurtherNodeIsNotTakenToEmptyTheOthersByAHair) {
  v1::PlanRequest request = Cluster({512, 512, 512}, CableGraph::kMesh);
  v1::PlannerNode air = Node("air", 8 * kGiB);
  air.set_chip("Apple M2");
  *request.add_nodes() = air;
  *request.mutable_model() = LargeModel("model", 300 * kGB, 80);
  request.mutable_placement()->set_optimize(v1::OPTIMIZE_MEMORY);
  EXPECT_EQ(PlanModel(request).plan().world_size(), 3u);
}

TEST(PlannerPlacement, StagesThatAreEquallyFastShareTheirLayers) {
  v1::PlanRequest request = Cluster({512, 512}, CableGraph::kNone);
  v1::PlannerNode laptop = Node("laptop", 96 * kGiB);
  laptop.set_chip("Apple M4 Max");
  *request.add_nodes() = laptop;
  *request.mutable_model() = LargeModel("model", 40 * kGB, 80);
  request.mutable_placement()->set_world_size(3);
  const v1::Plan plan = PlanModel(request).plan();
  ASSERT_EQ(plan.pp(), 3u);
  std::vector<uint32_t> of_studios;
  for (int i = 0; i < 3; ++i) {
    if (plan.assignments(i).node_id() != "laptop") of_studios.push_back(Layers(plan, i));
  }
  ASSERT_EQ(of_studios.size(), 2u);
  EXPECT_LE(std::max(of_studios[0], of_studios[1]), 42u) << of_studios[0] << " " << of_studios[1];
}

TEST(PlannerPlacement, ANodeThatIsAskedForAndExcludedIsLeftOut) {
  v1::PlanRequest request = Cluster({512, 512, 512}, CableGraph::kMesh);
  *request.mutable_model() = MixtureModel("model", 300 * kGB, 64);
  for (const char* id : {"mac-0", "mac-1", "mac-2"}) request.mutable_placement()->add_node_ids(id);
  request.mutable_placement()->add_excluded_node_ids("mac-1");
  request.mutable_placement()->set_parallelism(v1::PARALLELISM_TENSOR);
  const v1::PlanResult result = PlanModel(request);
  ASSERT_TRUE(result.has_plan()) << result.failure().message();
  EXPECT_EQ(result.plan().tp(), 2u) << "all that were named, but for the one that is excluded";
  const v1::Rejection* out = Rejected(result, "node host-mac-1 (mac-1)");
  ASSERT_NE(out, nullptr);
  EXPECT_NE(out->reason().message().find("asked for and excluded as well"), std::string::npos);
  request.mutable_placement()->add_excluded_node_ids("mac-0");
  request.mutable_placement()->add_excluded_node_ids("mac-2");
  const v1::Reason none = PlanModel(request).failure();
  EXPECT_EQ(none.code(), "BAD_REQUEST");
  EXPECT_EQ(none.remedy(), "exclude fewer nodes, or ask for others");
  request.mutable_placement()->clear_excluded_node_ids();
  request.mutable_placement()->set_world_size(4);
  const v1::Reason many = PlanModel(request).failure();
  EXPECT_EQ(many.code(), "BAD_REQUEST");
  EXPECT_NE(many.message().find("4 ranks were asked for on 3 nodes"), std::string::npos);
}

TEST(PlannerPlacement, TheOnlyNodeThatWasAskedForFailsForItsOwnReason) {
  v1::PlanRequest request = Cluster({512, 512}, CableGraph::kNone);
  *request.mutable_model() = MixtureModel("model", 300 * kGB, 64);
  request.mutable_nodes(1)->set_has_model_files(false);
  request.mutable_placement()->add_node_ids("mac-1");
  EXPECT_EQ(PlanModel(request).failure().code(), "MODEL_NOT_ON_NODE");
}

TEST(PlannerPlacement, MoreUsersThanSequencesAreToldThatTheyWait) {
  v1::PlanRequest request = Cluster({512}, CableGraph::kNone);
  *request.mutable_model() = MixtureModel("model", 300 * kGB, 64);
  request.mutable_placement()->set_users(10);
  request.mutable_placement()->set_concurrent_sequences(4);
  const auto says = [&] {
    const v1::PlanResult result = PlanModel(request);
    for (const v1::Reason& reason : result.plan().reasons()) {
      if (reason.remedy() == "ask for 10 sequences at once") return true;
    }
    return false;
  };
  EXPECT_TRUE(says());
  const auto at_once = [&] { return PlanModel(request).plan().prediction().users(); };
  EXPECT_EQ(at_once(), 4u) << "no speed is predicted that no memory is planned for";
  request.mutable_placement()->set_concurrent_sequences(10);
  EXPECT_FALSE(says());
  EXPECT_EQ(at_once(), 10u);
}

TEST(PlannerPlacement, UsersAreServedAtOnceUnlessFewerSequencesAreAskedFor) {
  v1::PlanRequest request = Cluster({512}, CableGraph::kNone);
  *request.mutable_model() = MixtureModel("model", 300 * kGB, 64);
  const auto cache = [&] {
    return PlanModel(request).plan().assignments(0).need().kv_cache_bytes();
  };
  const uint64_t one = cache();
  request.mutable_placement()->set_users(10);
  EXPECT_EQ(cache(), 10 * one);
  EXPECT_EQ(PlanModel(request).plan().concurrent_sequences(), 10u);
  request.mutable_placement()->set_users(100'000);
  EXPECT_EQ(PlanModel(request).failure().code(), "BAD_REQUEST");
}

}  // namespace
}  // namespace macrame::planner
