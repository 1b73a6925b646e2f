// What a node says of files that it can't use reaches the plan's reader.

#include "agentd/cores/node_refusals.h"

#include <gtest/gtest.h>

#include "planner/planner.h"
#include "proto/reasons.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::agentd {
namespace {

// Of two nodes with mlx-lm, the one whose mlx-lm does not know the architecture lists no files.
v1::PlanRequest OldMlxLm() {
  std::vector<v1::PlannerNode> nodes = {planner::Node("aaaa", 64 * planner::kGiB),
                                        planner::Node("bbbb", 64 * planner::kGiB)};
  for (v1::PlannerNode& node : nodes) node.add_engine_names("mlx-lm");
  nodes[1].set_has_model_files(false);
  v1::ModelDescription model = planner::SmallModel();
  model.set_architecture("martian");
  model.set_engine("mlx-lm");
  return planner::Request(model, nodes);
}

v1::Reason ReasonOfNode(const v1::PlanResult& result, const std::string& node) {
  for (const v1::Rejection& rejection : result.rejections()) {
    if (rejection.reason().node_id() == node) return rejection.reason();
  }
  return {};
}

TEST(NodeRefusals, ANodeWhoseEngineIsTooOldSaysSo) {
  v1::PlanResult result = planner::PlanModel(OldMlxLm());
  ASSERT_TRUE(result.has_plan()) << result.failure().message();
  ASSERT_EQ(ReasonOfNode(result, "bbbb").code(), "MODEL_NOT_ON_NODE");
  v1::Reason old = MakeReason("MODEL_ARCHITECTURE_UNKNOWN",
                              "nor has mlx-lm 0.20.1 (/opt/python) a model_type 'martian'");
  old.set_remedy("update mlx-lm");
  NameNodeRefusals({{"bbbb", old}}, &result);
  const v1::Reason told = ReasonOfNode(result, "bbbb");
  EXPECT_EQ(told.code(), "MODEL_ARCHITECTURE_UNKNOWN");
  EXPECT_NE(told.message().find("bbbb"), std::string::npos) << told.message();
  EXPECT_NE(told.message().find("mlx-lm 0.20.1"), std::string::npos) << told.message();
  EXPECT_EQ(told.remedy(), "update mlx-lm");
}

TEST(NodeRefusals, ANodeWithoutTheFilesIsSaidToHaveNone) {
  v1::PlanResult result = planner::PlanModel(OldMlxLm());
  NameNodeRefusals({{"bbbb", MakeReason("MODEL_NOT_FOUND", "no folder has it")},
                    {"aaaa", MakeReason("MODEL_FILE_BROKEN", "cut short")}},
                   &result);
  EXPECT_EQ(ReasonOfNode(result, "bbbb").code(), "MODEL_NOT_ON_NODE");
  EXPECT_EQ(ReasonOfNode(result, "aaaa").code(), "");
}

}  // namespace
}  // namespace macrame::agentd
