#include "cli/format/load_changes.h"

#include <gtest/gtest.h>

#include "tests/unit/cli/sample_messages.h"

namespace macrame::cli {
namespace {

// "tiny", a pipeline over mini-1, mini-2 and mini-3.
v1::DeploymentStatus Served() { return HealthyCluster().deployments(0); }

TEST(LoadChanges, WhatChangesAndWhatStaysIsSaid) {
  const v1::DeploymentStatus before = Served();
  v1::DeploymentStatus after = Served();
  after.set_epoch(2);
  after.mutable_plan()->set_context_length(before.plan().context_length() + 1000);
  const std::string text = LoadChangesLine(before, after);
  EXPECT_EQ(text, "Changed: context " + std::to_string(before.plan().context_length()) + " -> " +
                      std::to_string(after.plan().context_length()) +
                      "; as before: pipeline over 3 via ring (mini-1, mini-2, mini-3)\n");
}

TEST(LoadChanges, FewerRanksAreNoSecret) {
  v1::DeploymentStatus after = Served();
  v1::Plan& plan = *after.mutable_plan();
  plan.mutable_assignments()->DeleteSubrange(1, 2);
  plan.set_world_size(1);
  plan.set_pp(1);
  after.mutable_deployment()->set_replicas(2);
  after.mutable_deployment()->mutable_placement()->set_strictness(v1::STRICTNESS_SAFE);
  EXPECT_EQ(LoadChangesLine(Served(), after),
            "Changed: pipeline over 3 via ring (mini-1, mini-2, mini-3) -> one node (mini-1); "
            "strictness normal -> safe; replicas 1 -> 2\n");
}

TEST(LoadChanges, WhereNothingChangesThatIsSaid) {
  v1::DeploymentStatus after = Served();
  EXPECT_EQ(LoadChangesLine(Served(), after), "Nothing changes: it was served so already\n");
  after.set_epoch(2);
  EXPECT_EQ(LoadChangesLine(Served(), after), "Launched again, with the options that it had\n");
  // A model that waited for memory had no plan that could change.
  v1::DeploymentStatus waiting = Served();
  waiting.clear_plan();
  EXPECT_EQ(LoadChangesLine(waiting, after), "Launched again, with the options that it had\n");
}

}  // namespace
}  // namespace macrame::cli
