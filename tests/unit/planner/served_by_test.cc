// Which engine serves a model and how it may be shared out, in words; and whether plans keep to it.

#include "planner/served_by.h"

#include <gtest/gtest.h>

#include "planner/constraints.h"
#include "planner/planner.h"
#include "proto/reason_codes.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

struct Ways {
  bool tensor = false, uneven = false, pipeline = false, both = false;
};

v1::ModelDescription Served(const Ways& ways) {
  v1::ModelDescription model = LargeModel("big", 30 * kGiB, 24);
  model.set_engine(kMlxLmEngine);
  v1::ServedSplits& splits = *model.mutable_splits();
  splits.set_tensor(ways.tensor);
  splits.set_uneven_tensor(ways.uneven);
  splits.set_pipeline(ways.pipeline);
  splits.set_tensor_in_pipeline(ways.both);
  return model;
}

// Four nodes whose engines can do everything, on each of which a third of it fits.
v1::PlanRequest OnFour(v1::ModelDescription model) {
  std::vector<v1::PlannerNode> nodes;
  for (const char* id : {"aaaa", "bbbb", "cccc", "dddd"}) {
    nodes.push_back(Node(id, 20 * kGiB));
    nodes.back().add_engine_names(kMlxLmEngine);
    nodes.back().mutable_traits()->set_uneven_tensor(true);
    nodes.back().mutable_traits()->set_tensor_in_pipeline(true);
    nodes.back().mutable_traits()->set_whole_experts(true);
  }
  v1::PlanRequest request = Request(std::move(model), std::move(nodes));
  AddMesh({"aaaa", "bbbb", "cccc", "dddd"}, &request);
  return request;
}

TEST(ServedBy, SaysTheEngineTheArchitectureAndEveryWay) {
  v1::ModelDescription own = LargeModel("big", kGiB, 4);
  v1::Reason reason = ServedBy(own);
  EXPECT_EQ(reason.code(), reasons::kEngine);
  EXPECT_EQ(reason.message(),
            "served by Macrame's own engine (llama): one node alone; tensor splits, uneven ones "
            "too; pipelines; pipelines of tensor splits");
  own.clear_architecture();
  EXPECT_EQ(ServedBy(own).message().find("()"), std::string::npos) << ServedBy(own).message();
  EXPECT_EQ(ServedBy(Served({})).message(), "served by mlx-lm (llama): one node alone");
  EXPECT_EQ(ServedBy(Served({.tensor = true})).message(),
            "served by mlx-lm (llama): one node alone; tensor splits of equal slices");
}

TEST(ServedBy, NoPlanAndNoAlternativeIsAWayThatIsNotServed) {
  for (int bits = 0; bits < 16; ++bits) {
    const Ways ways{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
    SCOPED_TRACE(testing::Message() << SplitsText(SplitsOf(Served(ways))));
    const v1::PlanRequest request = OnFour(Served(ways));
    const v1::PlanResult result = PlanModel(request);
    // It fits on no node alone.
    EXPECT_EQ(result.has_plan(), ways.tensor || ways.pipeline || ways.both)
        << result.failure().message();
    const auto is_served = [&](const Shape& shape) { return ServesShape(request.model(), shape); };
    if (result.has_plan()) {
      const v1::Plan& plan = result.plan();
      EXPECT_TRUE(is_served({plan.tp(), plan.pp()})) << plan.tp() << "x" << plan.pp();
      for (const v1::Assignment& part : plan.assignments()) {
        EXPECT_TRUE(ways.uneven || part.slice_count() == 0) << "slices of unequal width";
        EXPECT_FALSE(part.whole_experts());
      }
    } else {
      EXPECT_FALSE(result.failure().message().empty());
    }
    for (const v1::Rejection& rejection : result.rejections()) {
      if (!rejection.has_prediction()) continue;
      EXPECT_TRUE(ways.tensor || rejection.subject().find("tensor") == std::string::npos ||
                  ways.both)
          << rejection.subject();
      EXPECT_TRUE(ways.pipeline || rejection.subject().find("pipeline") == std::string::npos)
          << rejection.subject();
    }
  }
}

// What would be faster with one more cable is a way that the engine serves too.
TEST(ServedBy, NoCableIsPraisedForAWayThatIsNotServed) {
  v1::PlanRequest request = OnFour(Served({.pipeline = true}));
  request.clear_links();
  for (v1::PlannerNode& node : *request.mutable_nodes()) node.set_chip("Apple M3 Ultra");
  const v1::PlanResult result = PlanModel(request);
  ASSERT_TRUE(result.has_plan()) << result.failure().message();
  ASSERT_GT(result.plan().pp(), 1u);
  for (const v1::Reason& reason : result.plan().reasons()) {
    EXPECT_EQ(reason.message().find("tensor parallel over 2)"), std::string::npos)
        << reason.message();
  }
}

}  // namespace
}  // namespace macrame::planner
