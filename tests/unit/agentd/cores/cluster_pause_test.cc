#include "agentd/cores/cluster_pause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "agentd/cores/gang_reconciler.h"
#include "agentd/cores/state_table.h"

namespace macrame::agentd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Deployment Model(const std::string& name, uint32_t replicas = 1) {
  v1::Deployment model;
  model.set_name(name);
  model.set_replicas(replicas);
  return model;
}

// A cluster that is given one order after the other, as the coordinator carries them out.
class ClusterPauseTest : public ::testing::Test {
 protected:
  ClusterPauseTest() {
    table_.BeginLeading(FencePair{});
    Load(Model("a", 2));
    Load(Model("b"));
  }

  void Load(const v1::Deployment& model) {
    ASSERT_TRUE(table_.Propose(DeploymentKey(model.name()), model.SerializeAsString()).ok());
  }
  void Do(const PauseChange::Step& step) {
    if (step.value.empty()) {
      ASSERT_TRUE(table_.Remove(step.key).ok());
    } else {
      ASSERT_TRUE(table_.Propose(step.key, step.value).ok());
    }
  }
  v1::PauseClusterResponse Give(v1::PauseOrder order, size_t steps = SIZE_MAX) {
    const auto change = DecidePause(order, desired_, ++now_);
    EXPECT_TRUE(change.has_value());
    if (!change.has_value()) return {};
    for (size_t i = 0; i < std::min(steps, change->steps.size()); ++i) Do(change->steps[i]);
    return change->response;
  }
  const std::map<std::string, v1::Deployment>& deployments() { return desired_.deployments(); }
  const v1::ClusterPause* pause() { return desired_.pause(); }

  StateTable table_{NodeId(std::string(32, '1'))};
  DesiredState desired_{table_};
  uint64_t now_ = 1000;
};

TEST_F(ClusterPauseTest, DrainingLeavesWhatIsLoaded) {
  const v1::PauseClusterResponse drained = Give(v1::PAUSE_ORDER_DRAIN);
  EXPECT_TRUE(drained.changed());
  EXPECT_EQ(deployments().size(), 2u);
  ASSERT_NE(pause(), nullptr);
  EXPECT_FALSE(pause()->stopped());
  EXPECT_EQ(pause()->since_unix_ms(), 1001u);
  EXPECT_FALSE(Give(v1::PAUSE_ORDER_DRAIN).changed()) << "it was so already";
  EXPECT_EQ(pause()->since_unix_ms(), 1001u);
  EXPECT_TRUE(Give(v1::PAUSE_ORDER_START).changed());
  EXPECT_EQ(pause(), nullptr);
  EXPECT_EQ(deployments().size(), 2u);
}

TEST_F(ClusterPauseTest, StoppingRemembersWhatStartingBringsBack) {
  EXPECT_THAT(Give(v1::PAUSE_ORDER_STOP).models(), ElementsAre("a", "b"));
  EXPECT_TRUE(deployments().empty());
  EXPECT_TRUE(pause()->stopped());
  EXPECT_FALSE(Give(v1::PAUSE_ORDER_STOP).changed());
  const v1::PauseClusterResponse drained = Give(v1::PAUSE_ORDER_DRAIN);
  EXPECT_FALSE(drained.changed());
  EXPECT_TRUE(drained.pause().stopped()) << "what is stopped is drained";
  EXPECT_THAT(drained.models(), ElementsAre("a", "b"));
  EXPECT_THAT(Give(v1::PAUSE_ORDER_START).models(), ElementsAre("a", "b"));
  EXPECT_EQ(deployments().at("a").replicas(), 2u);
  EXPECT_TRUE(desired_.stopped().empty());
  EXPECT_FALSE(Give(v1::PAUSE_ORDER_START).changed());
}

// A coordinator died in the middle of an order, which is given again.
TEST_F(ClusterPauseTest, AnOrderThatWasCarriedOutInPartIsFinishedByTheNext) {
  for (size_t steps = 0; steps <= 5; ++steps) {
    Give(v1::PAUSE_ORDER_STOP, steps);
    EXPECT_EQ(deployments().size() + desired_.stopped().size() >= 2u, true) << steps;
    EXPECT_THAT(Give(v1::PAUSE_ORDER_STOP).models(), ElementsAre("a", "b")) << steps;
    EXPECT_TRUE(deployments().empty()) << steps;
    Give(v1::PAUSE_ORDER_START, steps);
    Give(v1::PAUSE_ORDER_START);
    EXPECT_EQ(deployments().size(), 2u) << steps;
    EXPECT_EQ(pause(), nullptr) << steps;
  }
}

// The halves of a cluster: one was stopped, the other's order to start won.
TEST_F(ClusterPauseTest, WhatIsRememberedComesBackWithoutAPause) {
  Give(v1::PAUSE_ORDER_STOP);
  Do({"pause", ""});
  EXPECT_THAT(Give(v1::PAUSE_ORDER_START).models(), ElementsAre("a", "b"));
  EXPECT_EQ(deployments().size(), 2u);
}

TEST_F(ClusterPauseTest, WhatWasLoadedMeanwhileUnderItsNameStays) {
  Give(v1::PAUSE_ORDER_STOP);
  Load(Model("a", 3));
  Give(v1::PAUSE_ORDER_START);
  EXPECT_EQ(deployments().at("a").replicas(), 3u);
  EXPECT_TRUE(deployments().contains("b"));
}

TEST_F(ClusterPauseTest, WhatIsNoOrderIsRefused) {
  EXPECT_FALSE(DecidePause(v1::PAUSE_ORDER_UNSPECIFIED, desired_, 1).has_value());
}

TEST_F(ClusterPauseTest, WhoAsksMeanwhileIsToldWhatToDo) {
  Give(v1::PAUSE_ORDER_DRAIN);
  EXPECT_THAT(PausedReason(desired_)->message(), HasSubstr("drained"));
  Give(v1::PAUSE_ORDER_STOP);
  EXPECT_THAT(PausedReason(desired_)->message(), HasSubstr("2 models"));
  EXPECT_EQ(PausedReason(desired_)->remedy(), "clusterctl cluster start");
}

}  // namespace
}  // namespace macrame::agentd
