#include "planner/constraints.h"

#include <gtest/gtest.h>

#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

std::string RefusalOf(const Shape& shape, const v1::ModelDescription& model, uint32_t nodes) {
  for (const ShapeConstraint& constraint : ShapeConstraints()) {
    if (auto reason = constraint.refuse(shape, model, nodes)) return reason->code();
  }
  return "";
}

TEST(Constraints, TensorDegreesThatCutHeadsOrGroups) {
  const v1::ModelDescription model = SmallModel();
  EXPECT_EQ(RefusalOf({v1::PARALLELISM_TENSOR, 2}, model, 8), "");
  EXPECT_EQ(RefusalOf({v1::PARALLELISM_TENSOR, 4}, model, 8), "");
  EXPECT_EQ(RefusalOf({v1::PARALLELISM_TENSOR, 3}, model, 8), "HEADS_INDIVISIBLE");
  EXPECT_EQ(RefusalOf({v1::PARALLELISM_TENSOR, 8}, model, 8), "HEADS_INDIVISIBLE");
  v1::ModelDescription coarse = model;
  coarse.mutable_quantization()->set_group_size(128);
  EXPECT_EQ(RefusalOf({v1::PARALLELISM_TENSOR, 2}, coarse, 8), "");
  EXPECT_EQ(RefusalOf({v1::PARALLELISM_TENSOR, 4}, coarse, 8), "GROUPS_INDIVISIBLE");
}

TEST(Constraints, PipelinesNeedNodesAndLayers) {
  EXPECT_EQ(RefusalOf({v1::PARALLELISM_PIPELINE, 7}, SmallModel(), 8), "TOO_FEW_LAYERS");
  EXPECT_EQ(RefusalOf({v1::PARALLELISM_PIPELINE, 4}, SmallModel(), 3), "TOO_FEW_NODES");
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
