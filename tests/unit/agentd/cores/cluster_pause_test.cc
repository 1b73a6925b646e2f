#include "agentd/cores/cluster_pause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  v1::PauseClusterResponse Give(v1::PauseOrder order) {
    const auto change = DecidePause(order, pause_ ? &*pause_ : nullptr, deployments_, ++now_);
    EXPECT_TRUE(change.has_value());
    if (!change.has_value()) return {};
    for (const v1::Deployment& model : change->restored) deployments_[model.name()] = model;
    if (change->pause.has_value()) {
      pause_.emplace();
      EXPECT_TRUE(pause_->ParseFromString(*change->pause));
    }
    for (const std::string& name : change->removed) deployments_.erase(name);
    if (change->is_lifted) pause_.reset();
    return change->response;
  }

  std::map<std::string, v1::Deployment> deployments_ = {{"a", Model("a", 2)}, {"b", Model("b")}};
  std::optional<v1::ClusterPause> pause_;
  uint64_t now_ = 1000;
};

TEST_F(ClusterPauseTest, DrainingLeavesWhatIsLoaded) {
  const v1::PauseClusterResponse drained = Give(v1::PAUSE_ORDER_DRAIN);
  EXPECT_TRUE(drained.changed());
  EXPECT_EQ(deployments_.size(), 2u);
  ASSERT_TRUE(pause_.has_value());
  EXPECT_FALSE(pause_->stopped());
  EXPECT_EQ(pause_->since_unix_ms(), 1001u);
  EXPECT_FALSE(Give(v1::PAUSE_ORDER_DRAIN).changed()) << "it was so already";
  EXPECT_EQ(pause_->since_unix_ms(), 1001u);
  EXPECT_TRUE(Give(v1::PAUSE_ORDER_START).changed());
  EXPECT_FALSE(pause_.has_value());
  EXPECT_EQ(deployments_.size(), 2u);
}

TEST_F(ClusterPauseTest, StoppingRemembersWhatStartingBringsBack) {
  EXPECT_THAT(Give(v1::PAUSE_ORDER_STOP).models(), ElementsAre("a", "b"));
  EXPECT_TRUE(deployments_.empty());
  EXPECT_TRUE(pause_->stopped());
  EXPECT_FALSE(Give(v1::PAUSE_ORDER_STOP).changed());
  const v1::PauseClusterResponse drained = Give(v1::PAUSE_ORDER_DRAIN);
  EXPECT_FALSE(drained.changed());
  EXPECT_TRUE(drained.pause().stopped()) << "what is stopped is drained";
  EXPECT_THAT(Give(v1::PAUSE_ORDER_START).models(), ElementsAre("a", "b"));
  EXPECT_EQ(deployments_.at("a").replicas(), 2u);
  EXPECT_FALSE(Give(v1::PAUSE_ORDER_START).changed());
}

// A coordinator died between the two steps of an order, which is given again.
TEST_F(ClusterPauseTest, AnOrderThatWasCarriedOutInPartIsFinishedByTheNext) {
  const auto half = DecidePause(v1::PAUSE_ORDER_STOP, nullptr, deployments_, 1);
  pause_.emplace();
  ASSERT_TRUE(pause_->ParseFromString(*half->pause));
  deployments_.erase("a");
  EXPECT_THAT(Give(v1::PAUSE_ORDER_STOP).models(), ElementsAre("a", "b"));
  EXPECT_TRUE(deployments_.empty());
  // Of a start, one model is back already, and was changed.
  deployments_["a"] = Model("a", 3);
  Give(v1::PAUSE_ORDER_START);
  EXPECT_EQ(deployments_.at("a").replicas(), 3u);
  EXPECT_TRUE(deployments_.contains("b"));
}

TEST_F(ClusterPauseTest, WhatIsNoOrderIsRefused) {
  EXPECT_FALSE(DecidePause(v1::PAUSE_ORDER_UNSPECIFIED, nullptr, deployments_, 1).has_value());
}

TEST_F(ClusterPauseTest, WhoAsksMeanwhileIsToldWhatToDo) {
  Give(v1::PAUSE_ORDER_DRAIN);
  EXPECT_THAT(PausedReason(*pause_).message(), HasSubstr("drained"));
  Give(v1::PAUSE_ORDER_STOP);
  EXPECT_THAT(PausedReason(*pause_).message(), HasSubstr("2 models"));
  EXPECT_EQ(PausedReason(*pause_).remedy(), "clusterctl cluster start");
}

}  // namespace
}  // namespace macrame::agentd
