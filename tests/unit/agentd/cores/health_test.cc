#include "agentd/cores/health.h"

#include <gtest/gtest.h>

#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

v1::ClusterStatus Pair() {
  v1::ClusterStatus status;
  status.mutable_coordinator()->set_term(1);
  for (const char* name : {"ada", "bess"}) {
    v1::NodeStatus& node = *status.add_nodes();
    node.mutable_identity()->set_node_id(std::string(32, name[0]));
    node.mutable_identity()->set_hostname(name);
    node.set_state(v1::NODE_STATE_ALIVE);
  }
  v1::DeploymentStatus& deployment = *status.add_deployments();
  deployment.mutable_deployment()->set_name("m");
  deployment.set_state(v1::DEPLOYMENT_STATE_READY);
  return status;
}

TEST(Health, AllUpIsHealthyAndListsNothing) {
  v1::ClusterStatus status = Pair();
  JudgeHealth({}, &status);
  EXPECT_TRUE(status.healthy());
  EXPECT_EQ(status.problems_size(), 0);
}

TEST(Health, ANodeThatWasStoppedInOrderIsMissed) {
  v1::ClusterStatus status = Pair();
  status.mutable_nodes(1)->set_state(v1::NODE_STATE_LEFT);
  JudgeHealth({}, &status);
  EXPECT_FALSE(status.healthy());
  ASSERT_EQ(status.problems_size(), 1);
  EXPECT_EQ(status.problems(0).code(), "NODE_LEFT");
  EXPECT_EQ(status.problems(0).message(), "bess was stopped in order");
  EXPECT_NE(status.problems(0).remedy().find("nodes forget bess"), std::string::npos);
}

TEST(Health, ADeadNodeIsAProblemWithWordsEvenJustAfterItsDeath) {
  v1::ClusterStatus status = Pair();
  status.mutable_nodes(1)->set_state(v1::NODE_STATE_DEAD);
  JudgeHealth({}, &status);
  ASSERT_EQ(status.problems_size(), 1);
  EXPECT_EQ(status.problems(0).code(), "NODE_DEAD");
  EXPECT_EQ(status.problems(0).message(), "bess is dead");
}

TEST(Health, WhatIsServedByLessThanWasAskedForIsNotHealthy) {
  v1::ClusterStatus status = Pair();
  *status.mutable_deployments(0)->mutable_degraded() = MakeReason("TOO_FEW_NODES", "2 of 3");
  JudgeHealth({}, &status);
  EXPECT_FALSE(status.healthy());
  ASSERT_EQ(status.problems_size(), 1);
  EXPECT_EQ(status.problems(0).message(), "2 of 3");
}

TEST(Health, AModelThatIsNotServedSaysWhy) {
  v1::ClusterStatus status = Pair();
  status.mutable_deployments(0)->set_state(v1::DEPLOYMENT_STATE_PENDING);
  *status.mutable_deployments(0)->mutable_failure() =
      MakeReason("TOKENIZER_INVALID", "no such pre-tokenizer");
  JudgeHealth({}, &status);
  EXPECT_FALSE(status.healthy()) << "though the code alone would be a notice";
  ASSERT_EQ(status.problems_size(), 1);
  EXPECT_EQ(status.problems(0).message(), "'m' is not served: no such pre-tokenizer");
}

TEST(Health, ACordonedNodeIsListedAndSpoilsNothing) {
  v1::ClusterStatus status = Pair();
  status.mutable_nodes(1)->mutable_cordon()->set_node_id(std::string(32, 'b'));
  JudgeHealth({}, &status);
  EXPECT_TRUE(status.healthy());
  ASSERT_EQ(status.problems_size(), 1);
  EXPECT_EQ(status.problems(0).code(), "NODE_CORDONED");
  EXPECT_EQ(status.problems(0).message(), "bess is cordoned: nothing new is placed on it");
  EXPECT_NE(status.problems(0).remedy().find("uncordon bess"), std::string::npos);
  v1::ClusterStatus draining = Pair();
  draining.mutable_nodes(1)->mutable_cordon()->set_drain(true);
  draining.mutable_nodes(1)->set_ranks_running(2);
  JudgeHealth({}, &draining);
  EXPECT_EQ(draining.problems(0).message(), "bess is being drained: 2 ranks still to leave it");
}

TEST(Health, NoticesAreListedAndSpoilNothingOthersDo) {
  v1::ClusterStatus status = Pair();
  const v1::Reason open = MakeReason("GATEWAY_OPEN", "the HTTP API is open");
  JudgeHealth({open, open}, &status);
  EXPECT_TRUE(status.healthy());
  EXPECT_EQ(status.problems_size(), 1) << "said once";
  v1::ClusterStatus apart = Pair();
  JudgeHealth({MakeReason("PEER_REFUSED", "cleo is refused")}, &apart);
  EXPECT_FALSE(apart.healthy());
  v1::ClusterStatus alone = Pair();
  alone.clear_coordinator();
  JudgeHealth({}, &alone);
  EXPECT_FALSE(alone.healthy());
}

TEST(Health, TheDoctorHasTheSameListAndDoesNotSayThatAllIsWell) {
  v1::Diagnosis diagnosis;
  diagnosis.set_conclusion(
      "These serve over Ethernet; no hardware for RDMA, and nothing is wrong.");
  diagnosis.add_findings()->mutable_reason()->set_code("NODE_DEAD");
  diagnosis.mutable_findings(0)->mutable_reason()->set_node_id("cc");
  diagnosis.mutable_findings(0)->set_severity(v1::SEVERITY_WARNING);
  AddProblems({MakeReason("NODE_DEAD", "cleo is dead", "cc"),
               MakeReason("SEND_REFUSED", "a firewall drops UDP 8888", "aa"),
               MakeReason("LISTENER_FAILED", "nobody can connect", "aa")},
              {}, &diagnosis);
  ASSERT_EQ(diagnosis.findings_size(), 3) << "the dead node is known";
  EXPECT_EQ(diagnosis.findings(0).reason().code(), "LISTENER_FAILED");
  EXPECT_EQ(diagnosis.findings(0).severity(), v1::SEVERITY_ERROR);
  for (const v1::Finding& finding : diagnosis.findings()) {
    if (finding.reason().code() == "SEND_REFUSED") {
      EXPECT_EQ(finding.severity(), v1::SEVERITY_WARNING);
    }
  }
  EXPECT_EQ(diagnosis.conclusion().find("nothing is wrong"), std::string::npos);
  EXPECT_NE(diagnosis.conclusion().find("2 problems of nodes or models"), std::string::npos)
      << diagnosis.conclusion();
  v1::Diagnosis well;
  well.set_conclusion("and nothing is wrong.");
  AddProblems({}, {}, &well);
  EXPECT_EQ(well.conclusion(), "and nothing is wrong.");
}

TEST(Health, OnlyProblemsOfTheNodesThatWereAskedForAndOfAll) {
  v1::Diagnosis diagnosis;
  AddProblems({MakeReason("LISTENER_FAILED", "nobody can connect", "aa"),
               MakeReason("NO_COORDINATOR", "none is agreed on")},
              {"bb"}, &diagnosis);
  ASSERT_EQ(diagnosis.findings_size(), 1);
  EXPECT_EQ(diagnosis.findings(0).reason().code(), "NO_COORDINATOR");
}

}  // namespace
}  // namespace macrame::agentd
