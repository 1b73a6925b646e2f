// The tables that people see, held against the files beside this one.

#include <gtest/gtest.h>

#include "cli/format/cluster_view.h"
#include "cli/format/load_progress.h"
#include "cli/format/message_json.h"
#include "cli/format/model_view.h"
#include "cli/format/top_view.h"
#include "cli/format/verify_view.h"
#include "tests/golden/golden_files.h"
#include "tests/unit/cli/sample_messages.h"

namespace macrame::cli {
namespace {

TEST(Golden, Status) {
  for (const int width : {80, 120}) {
    const std::string suffix = "-" + std::to_string(width) + ".txt";
    const std::string healthy = StatusView(HealthyCluster(), width, Style());
    const std::string troubled = StatusView(TroubledCluster(), width, Style());
    ExpectGolden("status-healthy" + suffix, healthy);
    ExpectGolden("status-troubled" + suffix, troubled);
    ExpectWithin(width, healthy);
    ExpectWithin(width, troubled);
  }
  ExpectGolden("status-empty-80.txt", StatusView(v1::ClusterStatus(), 80, Style()));
}

TEST(Golden, Devices) {
  for (const int width : {80, 120}) {
    const std::string suffix = "-" + std::to_string(width) + ".txt";
    ExpectGolden("devices" + suffix, DevicesView(TroubledCluster(), width, Style()));
  }
}

TEST(Golden, ModelsAndPlans) {
  ExpectGolden("models-80.txt", ModelsView(SampleModels(), 80, Style()));
  ExpectGolden("plan-fits-100.txt", PlanView(FittingPlan(), 100, Style()));
  ExpectGolden("plan-misfit-100.txt", PlanView(MisfitPlan(), 100, Style()));
}

TEST(Golden, WhatIsLoadedAndHealth) {
  ExpectGolden("ps-80.txt", LoadedView(TroubledCluster(), 80, Style()));
  ExpectWithin(80, LoadedView(TroubledCluster(), 80, Style()));
  for (const int width : {80, 120}) {
    const std::string top = TopView(TroubledCluster(), width, Style());
    ExpectGolden("top-" + std::to_string(width) + ".txt", top);
  }
  ExpectGolden("health-troubled.txt", HealthView(TroubledCluster(), Style()));
  EXPECT_EQ(HealthView(HealthyCluster(), Style()), "All nodes healthy\n");
}

TEST(Golden, VerifiedFiles) {
  const v1::ModelVerification verification = DamagedModel();
  ExpectGolden("verify-100.txt", VerifyView(verification, HealthyCluster(), 100, Style()));
  EXPECT_EQ(VerifyProgressLine(verification), "reading on 2 nodes: 75 % of 32.0 GiB");
}

TEST(Golden, Loading) {
  ExpectGolden("load-bars-100.txt", ProgressBars(SampleProgress(), 100, Style()));
  ProgressLines lines;
  ExpectGolden("load-lines.txt", lines.Update(SampleProgress()));
  EXPECT_EQ(lines.Update(SampleProgress()), "");
  ExpectGolden("load-summary.txt", LoadedSummary(HealthyCluster().deployments(0), 3.25));
}

TEST(Golden, Documents) {
  ExpectGolden("status.json.txt", ToJsonText(Document("ClusterStatus", HealthyCluster())));
  ExpectGolden("plan.yaml.txt", ToYamlText(Document("PlanResult", MisfitPlan())));
}

}  // namespace
}  // namespace macrame::cli
