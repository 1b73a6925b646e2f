#include "planner/constraints.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "planner/chip_table.h"
#include "planner/planner.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

std::string RefusalOf(const Shape& shape, const v1::ModelDescription& model, size_t nodes,
                      bool uneven = false) {
  v1::PlannerNode node = Node("a", kGiB);
  node.mutable_traits()->set_uneven_tensor(uneven);
  const std::vector<Candidate> candidates(nodes, CandidateOf(node));
  for (const ShapeConstraint& constraint : ShapeConstraints()) {
    if (auto reason = constraint.refuse(shape, model, candidates)) return reason->code();
  }
  return "";
}

TEST(Constraints, TensorDegreesThatCutHeadsOrGroups) {
  const v1::ModelDescription model = SmallModel();
  EXPECT_EQ(RefusalOf({2, 1}, model, 8), "");
  EXPECT_EQ(RefusalOf({4, 1}, model, 8), "");
  EXPECT_EQ(RefusalOf({3, 1}, model, 8), "HEADS_INDIVISIBLE");
  EXPECT_EQ(RefusalOf({8, 1}, model, 8), "HEADS_INDIVISIBLE");
  v1::ModelDescription coarse = model;
  coarse.mutable_quantization()->set_group_size(128);
  EXPECT_EQ(RefusalOf({2, 1}, coarse, 8), "");
  EXPECT_EQ(RefusalOf({4, 1}, coarse, 8), "GROUPS_INDIVISIBLE");
}

TEST(Constraints, SlicesOfUnequalWidthAllowMoreDegrees) {
  EXPECT_EQ(SliceCount(SmallModel()), 4u) << "4 key-value heads, widths of 4 and 12 groups";
  EXPECT_EQ(RefusalOf({3, 1}, SmallModel(), 8, true), "");
  EXPECT_EQ(RefusalOf({8, 1}, SmallModel(), 8, true), "") << "four ranks have no heads";
  v1::ModelDescription coarse = SmallModel();
  coarse.mutable_quantization()->set_group_size(128);
  EXPECT_EQ(RefusalOf({4, 1}, coarse, 8, true), "");
}

TEST(Constraints, SlicesAreAsManyAsTheBoundAllows) {
  v1::ModelDescription model = LargeModel("m", kGiB, 4);
  const auto slices = [&](uint32_t heads) {
    model.set_attention_heads(heads);
    model.set_kv_heads(heads);
    model.set_head_dim(64);
    model.set_intermediate_size(heads * 64);
    return SliceCount(model);
  };
  EXPECT_EQ(slices(64), 64u);
  EXPECT_EQ(slices(128), 64u);
  EXPECT_EQ(slices(130), 26u) << "2 x 13, not what is left when 130 is divided by 2, then by 5";
  EXPECT_EQ(slices(67), 1u);
}

TEST(Constraints, PipelinesNeedNodesAndLayers) {
  EXPECT_EQ(RefusalOf({1, 7}, SmallModel(), 8), "TOO_FEW_LAYERS");
  EXPECT_EQ(RefusalOf({1, 4}, SmallModel(), 3), "TOO_FEW_NODES");
  EXPECT_EQ(RefusalOf({2, 2}, SmallModel(), 4), "ENGINE_LIMIT");
}

v1::ModelDescription ForMlxLm(bool tensor) {
  v1::ModelDescription model = SmallModel();
  model.set_architecture("martian");
  model.set_engine("mlx-lm");
  model.mutable_splits()->set_tensor(tensor);
  return model;
}

TEST(Constraints, AnEngineIsGivenOnlySplitsThatItServes) {
  EXPECT_EQ(RefusalOf({1, 1}, ForMlxLm(false), 4), "");
  EXPECT_EQ(RefusalOf({2, 1}, ForMlxLm(false), 4), "ENGINE_LIMIT");
  EXPECT_EQ(RefusalOf({2, 1}, ForMlxLm(true), 4), "");
  EXPECT_EQ(RefusalOf({1, 2}, ForMlxLm(true), 4), "ENGINE_LIMIT");
  Candidate candidate = CandidateOf(Node("a", kGiB));
  candidate.traits.set_uneven_tensor(true);
  candidate.traits.set_tensor_in_pipeline(true);
  Candidate own = candidate;
  KeepToSplits(SmallModel(), own);
  EXPECT_TRUE(own.traits.uneven_tensor() && own.traits.tensor_in_pipeline());
  KeepToSplits(ForMlxLm(true), candidate);
  EXPECT_FALSE(candidate.traits.uneven_tensor() || candidate.traits.tensor_in_pipeline());
}

// Too large for one of these nodes: two that have the engine divide it, evenly, or nothing does.
TEST(Constraints, ModelsOfTheSecondEngineGoToNodesThatHaveIt) {
  std::vector<v1::PlannerNode> nodes;
  for (const char* name : {"aaaa", "bbbb", "cccc"}) {
    nodes.push_back(Node(name, 6 * kGiB));
    nodes.back().mutable_traits()->set_uneven_tensor(true);
  }
  nodes[0].add_engine_names("mlx-lm");
  nodes[2].add_engine_names("mlx-lm");
  v1::ModelDescription model = LargeModel("m", 8 * kGiB, 4);
  model.set_architecture("martian");
  model.set_engine("mlx-lm");
  model.mutable_splits()->set_tensor(true);
  const v1::PlanResult planned = PlanModel(Request(model, nodes));
  ASSERT_TRUE(planned.has_plan()) << planned.failure().message();
  EXPECT_EQ(planned.plan().tp(), 2u);
  for (const v1::Assignment& part : planned.plan().assignments()) {
    EXPECT_NE(part.node_id(), "bbbb");
    EXPECT_EQ((part.slice_end() - part.slice_begin()) * 2, part.slice_count());
  }
  bool is_named = false;
  for (const v1::Rejection& rejection : planned.rejections()) {
    is_named |= rejection.reason().code() == "ENGINE_MISSING" &&
                rejection.reason().message() ==
                    "host-bbbb (bbbb) has no mlx-lm, which serves martian models";
  }
  EXPECT_TRUE(is_named);
  model.mutable_splits()->set_tensor(false);
  EXPECT_FALSE(PlanModel(Request(model, nodes)).has_plan());
}

// No cable would help.
TEST(Constraints, TheSecondEngineIsNotPlannedOverVerbs) {
  std::vector<v1::PlannerNode> nodes;
  for (const char* name : {"aaaa", "bbbb"}) {
    nodes.push_back(Node(name, 6 * kGiB));
    nodes.back().add_engine_names("mlx-lm");
  }
  v1::ModelDescription model = LargeModel("m", 8 * kGiB, 4);
  model.set_architecture("martian");
  model.set_engine("mlx-lm");
  model.mutable_splits()->set_tensor(true);
  v1::PlanRequest request = Request(model, nodes);
  ASSERT_TRUE(PlanModel(request).has_plan());
  request.mutable_placement()->set_world_size(2);
  request.mutable_placement()->set_transport("verbs");
  const v1::PlanResult refused = PlanModel(request);
  EXPECT_EQ(refused.failure().code(), "ENGINE_LIMIT") << refused.failure().message();
  EXPECT_EQ(refused.failure().message(),
            "ranks of mlx-lm have no verbs between them: its groups are MLX's, over jaccl or the "
            "ring");
  EXPECT_EQ(refused.failure().remedy(), "leave out --transport, or ask for --transport ring");
}

v1::PlanResult PlanWithKvBits(uint32_t bits, const std::vector<v1::PlannerNode>& nodes) {
  v1::PlanRequest request = Request(SmallModel(), nodes);
  request.mutable_placement()->set_kv_bits(bits);
  return PlanModel(request);
}

TEST(Constraints, EightBitKeysAreForNodesOfThisVersion) {
  v1::PlannerNode older = Node("older", 64 * kGiB), mac = Node("mac", 4 * kGiB);
  mac.mutable_traits()->set_narrow_kv(true);
  mac.set_gpu_cores(40);
  EXPECT_EQ(PlanWithKvBits(0, {older}).plan().kv_bits(), 0u);
  const v1::PlanResult refused = PlanWithKvBits(8, {older});
  EXPECT_FALSE(refused.has_plan());
  EXPECT_EQ(refused.failure().code(), "KV_BITS_UNSUPPORTED");
  EXPECT_NE(refused.failure().message().find("older"), std::string::npos);
  EXPECT_NE(refused.failure().message().find("another version"), std::string::npos);
  EXPECT_NE(refused.failure().remedy().find("--kv-bits 16"), std::string::npos);
  const v1::PlanResult mixed = PlanWithKvBits(8, {older, mac});
  ASSERT_TRUE(mixed.has_plan()) << mixed.failure().message();
  EXPECT_EQ(mixed.plan().kv_bits(), 8u);
  ASSERT_EQ(mixed.plan().assignments_size(), 1);
  EXPECT_EQ(mixed.plan().assignments(0).node_id(), mac.node_id());
  EXPECT_EQ(mixed.rejections(0).reason().code(), "KV_BITS_UNSUPPORTED");
  const auto cache = [](const v1::PlanResult& result) {
    return result.plan().assignments(0).need().kv_cache_bytes();
  };
  EXPECT_LT(cache(mixed), cache(PlanWithKvBits(0, {mac})) * 6 / 10);
}

TEST(Constraints, FourBitKeysAreForNodesWithAGpu) {
  v1::PlannerNode box = Node("box", 64 * kGiB), mac = Node("mac", 4 * kGiB);
  for (v1::PlannerNode* node : {&box, &mac}) node->mutable_traits()->set_narrow_kv(true);
  box.set_gpu_cores(0);
  mac.set_gpu_cores(40);
  const v1::PlanResult refused = PlanWithKvBits(4, {box});
  EXPECT_EQ(refused.failure().code(), "KV_BITS_UNSUPPORTED");
  EXPECT_NE(refused.failure().message().find("its CPU"), std::string::npos);
  EXPECT_NE(refused.failure().remedy().find("--kv-bits 8"), std::string::npos);
  const v1::PlanResult planned = PlanWithKvBits(4, {box, mac});
  ASSERT_TRUE(planned.has_plan()) << planned.failure().message();
  EXPECT_EQ(planned.plan().kv_bits(), 4u);
  EXPECT_EQ(planned.plan().assignments(0).node_id(), mac.node_id());
}

TEST(Constraints, EightBitKeysAreProposedWhereTheyWouldFit) {
  v1::PlannerNode node = Node("box", 64 * kGiB);
  node.set_gpu_cores(0);
  node.mutable_traits()->set_narrow_kv(true);
  const auto plan = [&](uint32_t bits) {
    v1::PlanRequest request = Request(SmallModel(), {node});
    request.mutable_placement()->set_concurrent_sequences(1024);
    request.mutable_placement()->set_kv_bits(bits);
    return PlanModel(request);
  };
  const uint64_t wide = plan(0).plan().assignments(0).need().total_bytes();
  const uint64_t narrow = plan(8).plan().assignments(0).need().total_bytes();
  ASSERT_LT(narrow, wide);
  node.set_memory_usable_bytes((wide + narrow) / 2);
  node.set_memory_available_bytes((wide + narrow) / 2);
  EXPECT_TRUE(plan(8).has_plan());
  const v1::PlanResult short_of = plan(0);
  EXPECT_EQ(short_of.failure().code(), "MEMORY_SHORT");
  EXPECT_NE(short_of.failure().remedy().find("--kv-bits 8"), std::string::npos)
      << short_of.failure().remedy();
}

TEST(Constraints, ChipsSayHowFastTheyAre) {
  v1::PlannerNode node = Node("a", kGiB);
  node.set_chip("Apple M4 Max");
  node.set_gpu_cores(32);
  EXPECT_EQ(SpeedOf(node).bandwidth, 410e9);
  node.set_gpu_cores(40);
  EXPECT_EQ(SpeedOf(node).bandwidth, 546e9);
  node.set_memory_bandwidth(500e9);
  EXPECT_EQ(SpeedOf(node).bandwidth, 500e9) << "what was measured wins";
  EXPECT_EQ(FindChip("4x M3 Ultra 512GB")->name, "Apple M3 Ultra");
  EXPECT_EQ(FindChip("Xeon"), nullptr);
  EXPECT_EQ(FindChip("2 x mac-mini-m4-pro-64gb")->name, "Apple M4 Pro");
  EXPECT_EQ(FindChip("apple m1")->name, "Apple M1");
  EXPECT_EQ(FindChip("AM1 Max2"), nullptr);
}

TEST(Constraints, ChipsAreFoundAsPeopleWriteThem) {
  for (const auto& [text, name] :
       std::map<std::string, std::string>{{"m4max", "Apple M4 Max"},
                                          {"M5ultra", "Apple M5 Ultra"},
                                          {"4xM3 Ultra", "Apple M3 Ultra"},
                                          {"4xm3ultra", "Apple M3 Ultra"},
                                          {"4×M3 Ultra", "Apple M3 Ultra"},
                                          {"Apple M3  Ultra", "Apple M3 Ultra"},
                                          {"macbook-pro-m5max-128gb", "Apple M5 Max"},
                                          {"apple_m2_pro", "Apple M2 Pro"},
                                          {"AppleM1", "Apple M1"},
                                          {"maxM4", ""},
                                          {"0x4xM3", ""},
                                          {"M4Maxx", ""},
                                          {"M40", ""}}) {
    const Chip* chip = FindChip(text);
    EXPECT_EQ(chip == nullptr ? "" : chip->name, name) << text;
  }
  for (const char* other : {"Intel(R) Core(TM) m3-7Y32 CPU @ 1.10GHz", "Tesla M4", "Quadro M6000",
                            "Quadro M6", "AMD Radeon Pro M5", "NVIDIA M4", "Cortex-M3"}) {
    EXPECT_EQ(FindChip(other), nullptr) << other;
  }
}

TEST(Constraints, BudgetIsWhatIsNeitherPromisedNorInUse) {
  v1::PlannerNode node = Node("a", 10 * kGiB);
  EXPECT_EQ(BudgetBytes(node), 10 * kGiB);
  node.set_memory_reserved_bytes(4 * kGiB);
  EXPECT_EQ(BudgetBytes(node), 6 * kGiB);
  node.set_memory_available_bytes(2 * kGiB);
  EXPECT_EQ(BudgetBytes(node), 2 * kGiB);
  node.set_memory_reserved_bytes(40 * kGiB);
  EXPECT_EQ(BudgetBytes(node), 0u);
}

TEST(Constraints, DescriptionsThatMakeNoSenseAreRefused) {
  EXPECT_FALSE(ValidateModel(SmallModel()).has_value());
  v1::ModelDescription model = SmallModel();
  model.add_layer_bytes(1);
  EXPECT_TRUE(ValidateModel(model).has_value());
  model = SmallModel();
  model.set_layer_divisible_bytes(0, model.layer_bytes(0) + 1);
  EXPECT_TRUE(ValidateModel(model).has_value());
  model = SmallModel();
  model.set_layer_bytes(0, ~0ULL);
  EXPECT_TRUE(ValidateModel(model).has_value());
  EXPECT_TRUE(ValidateModel(v1::ModelDescription()).has_value());
}

TEST(Constraints, NodesAreNamedByIdHostOrTheIdsBeginning) {
  const v1::PlannerNode node = Node("3fa94c21", kGiB);
  EXPECT_TRUE(Names("3fa94c21", node));
  EXPECT_TRUE(Names("host-3fa94c21", node));
  EXPECT_TRUE(Names("3fa9", node));
  EXPECT_FALSE(Names("3fa", node)) << "too short to mean anything";
  EXPECT_FALSE(Names("", node));
  EXPECT_FALSE(Names("3fa94c215", node));
}

}  // namespace
}  // namespace macrame::planner
