#include "cli/load_check.h"

#include <gtest/gtest.h>

namespace macrame::cli {
namespace {

constexpr uint64_t kGiBytes = 1ULL << 30;

// Two Macs that hold 10 GiB each and were predicted 30 tokens/s over JACCL.
class LoadChecks : public ::testing::Test {
 protected:
  LoadChecks() {
    v1::Plan& plan = *deployment.mutable_plan();
    plan.set_backend("jaccl");
    plan.mutable_prediction()->set_tokens_per_second(30);
    for (const char* name : {"desk", "shelf"}) {
      v1::Assignment& part = *plan.add_assignments();
      part.set_rank(plan.assignments_size() - 1);
      part.set_hostname(name);
      part.set_node_id(std::string("id-") + name);
      part.mutable_need()->set_weights_bytes(10 * kGiBytes);
      part.mutable_need()->set_total_bytes(12 * kGiBytes);
      v1::RankStatus& rank = *deployment.add_ranks();
      rank.set_rank(part.rank());
      rank.set_phase(v1::RANK_PHASE_READY);
      rank.set_memory_bytes(10 * kGiBytes + (200 << 20));
      rank.mutable_device_proof()->set_layers(2);
      rank.mutable_device_proof()->set_rows(32);
      rank.mutable_device_proof()->set_rows_agreeing(31);
      v1::NodeStatus& node = *cluster.add_nodes();
      node.mutable_identity()->set_node_id(part.node_id());
      node.mutable_inventory()->set_gpu_cores(40);
      node.mutable_load()->set_cpu_busy_ratio(0.04);
      trial.gpu_busy[part.node_id()] = 0.9;
    }
    trial.first_text_ms = 60;
    trial.tokens_per_second = 28;
    trial.group.emplace();
    v1::VerifyGroupResponse& group = *trial.group->mutable_group();
    group.set_backend("jaccl");
    group.set_group_size(2);
    group.set_sum_correct(true);
    group.add_timings()->set_us_p50(31);
  }

  LoadCheck Find(const std::string& what) {
    for (const LoadCheck& check : CheckLoad(deployment, cluster, trial)) {
      if (check.what == what) return check;
    }
    ADD_FAILURE() << "no check of " << what;
    return {};
  }

  v1::DeploymentStatus deployment;
  v1::ClusterStatus cluster;
  LoadTrial trial;
};

TEST_F(LoadChecks, AnotherEngineThanPlannedFails) {
  v1::Reason& engine = *deployment.mutable_plan()->add_reasons();
  engine.set_code("ENGINE");
  engine.set_message("served by Macrame's own engine (llama): one node alone; pipelines");
  EXPECT_EQ(Find("engine").verdict, LoadVerdict::kPassed);
  EXPECT_EQ(Find("engine").measured, "Macrame's own");
  EXPECT_EQ(Find("engine").expected, engine.message());
  deployment.mutable_ranks(0)->set_engine("mlx-lm");
  EXPECT_EQ(Find("engine").verdict, LoadVerdict::kFailed);
  EXPECT_EQ(Find("engine").measured, "mlx-lm");
}

TEST_F(LoadChecks, AllPassWhenAllIsAsPlanned) {
  for (const LoadCheck& check : CheckLoad(deployment, cluster, trial)) {
    EXPECT_EQ(check.verdict, LoadVerdict::kPassed) << check.what << ": " << check.measured;
  }
}

TEST_F(LoadChecks, ANodeThatHoldsTooMuchOrTooLittleIsNamed) {
  deployment.mutable_ranks(1)->set_memory_bytes(3 * kGiBytes);
  EXPECT_EQ(Find("memory of shelf").verdict, LoadVerdict::kFailed);
  EXPECT_EQ(Find("memory of shelf").measured, "3.0 GiB");
  EXPECT_EQ(Find("memory of desk").verdict, LoadVerdict::kPassed);
  deployment.mutable_ranks(0)->set_memory_bytes(14 * kGiBytes);
  EXPECT_EQ(Find("memory of desk").verdict, LoadVerdict::kFailed);
}

TEST_F(LoadChecks, AGpuThatSleepsFailsAndOneThatIsNotKnownDoesNot) {
  trial.gpu_busy["id-desk"] = 0.02;
  trial.gpu_busy.erase("id-shelf");
  EXPECT_EQ(Find("GPU of desk").verdict, LoadVerdict::kFailed);
  EXPECT_EQ(Find("GPU of shelf").verdict, LoadVerdict::kUnknown);
}

TEST_F(LoadChecks, WhatALoadProvedOfAGpuIsShown) {
  EXPECT_EQ(Find("layers of desk").verdict, LoadVerdict::kPassed);
  EXPECT_EQ(Find("layers of desk").measured, "31 of 32 rows agree");
  deployment.mutable_ranks(0)->mutable_device_proof()->set_layers(0);
  EXPECT_EQ(Find("layers of desk").verdict, LoadVerdict::kUnknown) << "too large";
  deployment.mutable_ranks(0)->clear_device_proof();
  EXPECT_EQ(Find("layers of desk").verdict, LoadVerdict::kUnknown);
  // A processor needs no proof against itself.
  cluster.mutable_nodes(0)->mutable_inventory()->set_gpu_cores(0);
  for (const LoadCheck& check : CheckLoad(deployment, cluster, trial)) {
    EXPECT_NE(check.what, "layers of desk");
  }
}

TEST_F(LoadChecks, MuchSlowerThanPredictedFails) {
  trial.tokens_per_second = 12;
  EXPECT_EQ(Find("speed").verdict, LoadVerdict::kFailed);
  deployment.mutable_plan()->clear_prediction();
  EXPECT_EQ(Find("speed").verdict, LoadVerdict::kUnknown);
}

TEST_F(LoadChecks, AMachineThatDidSomethingElseIsNamedAndFailsNothing) {
  EXPECT_EQ(Find("load of desk").verdict, LoadVerdict::kPassed);
  EXPECT_EQ(Find("load of desk").measured, "processor 4% busy");
  v1::NodeLoad& load = *cluster.mutable_nodes(0)->mutable_load();
  load.set_cpu_busy_ratio(0.97);
  load.set_requests_running(2);
  EXPECT_EQ(Find("load of desk").verdict, LoadVerdict::kNoted);
  EXPECT_EQ(Find("load of desk").measured, "processor 97% busy, 2 requests under way");
  EXPECT_EQ(Find("load of shelf").verdict, LoadVerdict::kPassed);
  EXPECT_EQ(Find("speed").measured, "28.0 tokens/s") << "fast enough all the same";
  trial.tokens_per_second = 12;
  EXPECT_EQ(Find("speed").verdict, LoadVerdict::kFailed);
  EXPECT_EQ(Find("speed").measured, "12.0 tokens/s, while desk was busy with something else");
  cluster.mutable_nodes(1)->clear_load();
  EXPECT_EQ(Find("load of shelf").verdict, LoadVerdict::kUnknown);
}

TEST_F(LoadChecks, ASilentFallbackToTcpOrASlowLinkFails) {
  trial.group->mutable_group()->mutable_timings(0)->set_us_p50(900);
  EXPECT_EQ(Find("links").verdict, LoadVerdict::kFailed);
  trial.group->mutable_group()->mutable_timings(0)->set_us_p50(31);
  trial.group->mutable_group()->set_backend("ring");
  EXPECT_EQ(Find("links").verdict, LoadVerdict::kFailed);
}

TEST_F(LoadChecks, ALargeModelHasTimeForItsFirstText) {
  trial.first_text_ms = 250;
  EXPECT_EQ(Find("first text").verdict, LoadVerdict::kFailed);
  deployment.mutable_plan()->mutable_prediction()->set_tokens_per_second(5);
  EXPECT_EQ(Find("first text").verdict, LoadVerdict::kPassed);
}

}  // namespace
}  // namespace macrame::cli
