// Whom `chat` and `run` talk to when names are short, wrong, shared or on their way out.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cli/exit_codes.h"
#include "tests/unit/cli/cli_run.h"
#include "tests/unit/cli/fake_cluster_service.h"
#include "tests/unit/cli/sample_messages.h"

namespace macrame::cli {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class ChatNamesTest : public ::testing::Test {
 protected:
  // One deployment; `model`: as the model itself is called.
  void Serve(const std::string& name, const std::string& model = "",
             v1::DeploymentState state = v1::DEPLOYMENT_STATE_READY) {
    if (!agent_.service.status.has_value()) {
      agent_.service.status = HealthyCluster();
      agent_.service.status->clear_deployments();
    }
    v1::DeploymentStatus deployment = HealthyCluster().deployments(0);
    deployment.mutable_deployment()->set_name(name);
    deployment.mutable_deployment()->set_model_name(model.empty() ? name : model);
    deployment.set_state(state);
    *agent_.service.status->add_deployments() = deployment;
  }
  CliRun Ask(std::vector<std::string> words) {
    CliWorld world;
    world.stdin_text = "Why?";
    world.variables["MACRAME_SOCKET"] = agent_.socket_path();
    agent_.service.inferred.clear();
    agent_.service.last_load.Clear();
    return Clusterctl(words, world);
  }
  // Who was asked; "" : nobody.
  std::string Asked() const {
    return agent_.service.inferred.empty() ? "" : *agent_.service.inferred.begin();
  }
  FakeAgent agent_;
};

TEST_F(ChatNamesTest, AnyNameThatMeansOneAloneWillDo) {
  Serve("knot-5m-4bit");
  Serve("Qwen3-8B", "org/Qwen3-8B");
  Serve("qwen3-30b");
  const std::pair<const char*, const char*> meant[] = {
      {"knot-5m-4bit", "knot-5m-4bit"}, {"knot", "knot-5m-4bit"},     {"4bit", "knot-5m-4bit"},
      {"KNOT", "knot-5m-4bit"},         {"org/Qwen3-8B", "Qwen3-8B"}, {"8b", "Qwen3-8B"},
      {"qwen3-3", "qwen3-30b"}};
  for (const auto& [typed, name] : meant) {
    const CliRun run = Ask({"chat", typed});
    EXPECT_EQ(run.exit_code, kExitOk) << typed << "\n" << run.err;
    EXPECT_EQ(Asked(), name) << typed;
  }
  for (const char* typed : {"qwen3", "b", "llama", "not"}) {
    const CliRun run = Ask({"chat", typed});
    EXPECT_EQ(run.exit_code, kExitNotFound) << typed;
    EXPECT_EQ(Asked(), "") << typed;
    EXPECT_TRUE(Has(run.err, "knot-5m-4bit") && Has(run.err, "qwen3-30b"))
        << "what is loaded is named: " << run.err;
  }
}

TEST_F(ChatNamesTest, TheWholeNameComesBeforeTheModelsAndBothBeforeABeginning) {
  Serve("tiny", "org/large");
  Serve("large", "org/tiny");
  Serve("tiny-2", "tiny-model");
  EXPECT_EQ(Ask({"chat", "tiny"}).exit_code, kExitOk);
  EXPECT_EQ(Asked(), "tiny");
  EXPECT_EQ(Ask({"chat", "org/tiny"}).exit_code, kExitOk);
  EXPECT_EQ(Asked(), "large");
  EXPECT_EQ(Ask({"chat", "tiny-model"}).exit_code, kExitOk);
  EXPECT_EQ(Asked(), "tiny-2");
}

TEST_F(ChatNamesTest, WhatIsBeingRemovedIsNobodyToTalkTo) {
  Serve("old", "", v1::DEPLOYMENT_STATE_REMOVING);
  CliRun run = Ask({"chat"});
  EXPECT_EQ(run.exit_code, kExitNotFound) << run.out;
  EXPECT_TRUE(Has(run.err, "no model is loaded")) << run.err;
  Serve("new");
  run = Ask({"chat"});
  EXPECT_EQ(run.exit_code, kExitOk) << "one is left: " << run.err;
  EXPECT_EQ(Asked(), "new");
  run = Ask({"chat", "old"});
  EXPECT_EQ(run.exit_code, kExitNotFound);
  EXPECT_FALSE(Has(run.err, "loaded: old")) << run.err;
}

TEST_F(ChatNamesTest, RunLoadsAnewWhatIsBeingRemoved) {
  Serve("tiny", "", v1::DEPLOYMENT_STATE_REMOVING);
  const CliRun run = Ask({"run", "tiny", "Why?"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_EQ(agent_.service.last_load.name_or_path(), "tiny");
  EXPECT_EQ(Asked(), "tiny");
}

TEST_F(ChatNamesTest, OfSeveralOneHasToBeNamed) {
  Serve("one");
  Serve("two", "", v1::DEPLOYMENT_STATE_PENDING);
  const CliRun run = Ask({"chat"});
  EXPECT_EQ(run.exit_code, kExitNotFound);
  EXPECT_TRUE(Has(run.err, "which one?")) << run.err;
  EXPECT_TRUE(Has(run.err, "one") && Has(run.err, "two")) << run.err;
}

TEST_F(ChatNamesTest, RunWaitsForWhatIsOnItsWayAsItWasAskedFor) {
  Serve("tiny", "", v1::DEPLOYMENT_STATE_LAUNCHING);
  agent_.service.status->mutable_deployments(0)->mutable_deployment()->set_replicas(3);
  agent_.service.status->mutable_deployments(0)
      ->mutable_deployment()
      ->mutable_placement()
      ->set_context_length(2048);
  const CliRun run = Ask({"run", "tiny", "Why?"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_EQ(agent_.service.last_load.deployment_name(), "tiny");
  EXPECT_EQ(agent_.service.last_load.replicas(), 3u);
  EXPECT_EQ(agent_.service.last_load.placement().context_length(), 2048u);
}

}  // namespace
}  // namespace macrame::cli
