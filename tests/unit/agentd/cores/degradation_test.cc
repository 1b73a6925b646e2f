#include "agentd/cores/degradation.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

// One model, predicted 30 tokens/s, that answers with `rate`.
v1::ClusterStatus Serving(double rate, uint64_t answers) {
  v1::ClusterStatus status;
  v1::NodeStatus& node = *status.add_nodes();
  node.mutable_identity()->set_node_id("aaaa");
  v1::DeploymentStatus& deployment = *status.add_deployments();
  deployment.mutable_deployment()->set_name("m");
  deployment.set_state(v1::DEPLOYMENT_STATE_READY);
  deployment.mutable_plan()->mutable_prediction()->set_tokens_per_second(30);
  deployment.mutable_plan()->add_assignments()->set_node_id("aaaa");
  deployment.mutable_plan()->mutable_assignments(0)->set_hostname("desk");
  v1::RankStatus& rank = *deployment.add_ranks();
  rank.set_decode_step_us(1e6 / rate);
  rank.set_decode_answers(answers);
  return status;
}

TEST(Degradation, AGangAtAThirdOfItsPredictedSpeedIsSaidWithBothFigures) {
  const std::vector<v1::Reason> found = FindDegradation(Serving(10, 5));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].code(), "SLOWER_THAN_PREDICTED");
  EXPECT_NE(found[0].message().find("10.0 tokens/s"), std::string::npos) << found[0].message();
  EXPECT_NE(found[0].message().find("30.0 were predicted"), std::string::npos);
  EXPECT_NE(found[0].remedy().find("model check m"), std::string::npos);
}

TEST(Degradation, OneSlowAnswerOrAModestErrorIsNotSaid) {
  EXPECT_TRUE(FindDegradation(Serving(10, 1)).empty());
  EXPECT_TRUE(FindDegradation(Serving(20, 9)).empty());
}

TEST(Degradation, AThrottledNodeUnderAGangIsNamed) {
  v1::ClusterStatus status = Serving(30, 9);
  status.mutable_nodes(0)->mutable_load()->set_thermal_state(v1::THERMAL_STATE_THROTTLED);
  const std::vector<v1::Reason> found = FindDegradation(status);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].code(), "THERMAL");
  EXPECT_EQ(found[0].node_id(), "aaaa");
  status.mutable_deployments(0)->mutable_plan()->clear_assignments();
  EXPECT_TRUE(FindDegradation(status).empty()) << "it serves nothing";
}

// Of all warnings of links, that one says why the next model will hang.
TEST(Degradation, AWedgedGpuIsNamedWhetherItsNodeServesOrNot) {
  v1::ClusterStatus status = Serving(30, 9);
  v1::GroupVerdict& group = *status.mutable_links()->mutable_group();
  group.add_warnings()->set_code("MAY_SLEEP");
  v1::Reason& wedged = *group.add_warnings();
  wedged.set_code("GPU_WEDGED");
  wedged.set_node_id("bbbb");
  const std::vector<v1::Reason> found = FindDegradation(status);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].code(), "GPU_WEDGED");
  EXPECT_EQ(found[0].node_id(), "bbbb");
}

TEST(Degradation, WhatIsNotReadyIsSaidElsewhere) {
  v1::ClusterStatus status = Serving(1, 9);
  status.mutable_deployments(0)->set_state(v1::DEPLOYMENT_STATE_BACKING_OFF);
  EXPECT_TRUE(FindDegradation(status).empty());
}

}  // namespace
}  // namespace macrame::agentd
