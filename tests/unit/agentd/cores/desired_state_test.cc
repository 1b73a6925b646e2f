#include "agentd/cores/desired_state.h"

#include <gtest/gtest.h>

#include "agentd/cores/state_keys.h"

namespace macrame::agentd {
namespace {

const NodeId kSelf("11111111111111111111111111111111");

class DesiredStateTest : public ::testing::Test {
 protected:
  DesiredStateTest() { table_.BeginLeading({Term(1), kSelf}); }

  template <typename Message>
  void Write(const std::string& key, const Message& message) {
    ASSERT_TRUE(table_.Propose(key, message.SerializeAsString()).ok());
  }
  void WriteDeployment(const std::string& name, uint32_t replicas) {
    v1::Deployment deployment;
    deployment.set_name(name);
    deployment.set_replicas(replicas);
    Write(std::string(kDeploymentPrefix) + name, deployment);
  }
  void WriteGang(const std::string& name, uint64_t epoch) {
    v1::GangRecord record;
    record.set_deployment(name);
    record.set_epoch(epoch);
    Write(std::string(kGangPrefix) + name, record);
  }

  StateTable table_{kSelf};
  DesiredState desired_{table_};
};

TEST_F(DesiredStateTest, WhatIsWrittenIsFoundAtOnce) {
  EXPECT_EQ(desired_.FindDeployment("m"), nullptr);
  WriteDeployment("m", 2);
  WriteGang("m", 7);
  ASSERT_NE(desired_.FindDeployment("m"), nullptr);
  EXPECT_EQ(desired_.FindDeployment("m")->replicas(), 2u);
  ASSERT_NE(desired_.FindGang("m"), nullptr);
  EXPECT_EQ(desired_.FindGang("m")->epoch(), 7u);
  WriteDeployment("m", 3);
  EXPECT_EQ(desired_.FindDeployment("m")->replicas(), 3u);
}

TEST_F(DesiredStateTest, ACordonIsFoundUntilItIsLifted) {
  EXPECT_EQ(desired_.FindCordon("n"), nullptr);
  v1::Cordon cordon;
  cordon.set_node_id("n");
  cordon.set_drain(true);
  Write(std::string(kCordonPrefix) + "n", cordon);
  ASSERT_NE(desired_.FindCordon("n"), nullptr);
  EXPECT_TRUE(desired_.FindCordon("n")->drain());
  ASSERT_TRUE(table_.Remove(std::string(kCordonPrefix) + "n").ok());
  EXPECT_EQ(desired_.FindCordon("n"), nullptr);
}

TEST_F(DesiredStateTest, WhatDidNotChangeStaysWhereItIs) {
  WriteDeployment("m", 2);
  const v1::Deployment* before = desired_.FindDeployment("m");
  WriteDeployment("other", 1);
  EXPECT_EQ(desired_.FindDeployment("m"), before);
}

TEST_F(DesiredStateTest, OfAGangThatIsRemovedTheLastEpochIsLeft) {
  WriteGang("m", 7);
  v1::GangRecord residue;
  residue.set_deployment("m");
  residue.set_epoch(9);
  ASSERT_TRUE(table_.Remove(std::string(kGangPrefix) + "m", residue.SerializeAsString()).ok());
  EXPECT_EQ(desired_.FindGang("m"), nullptr);
  EXPECT_EQ(desired_.removed_epochs().at("m"), 9u);
  WriteGang("m", 10);
  EXPECT_EQ(desired_.FindGang("m")->epoch(), 10u);
  EXPECT_TRUE(desired_.removed_epochs().empty());
}

TEST_F(DesiredStateTest, WhatDoesNotParseOrNamesAnotherKeyIsNotThere) {
  ASSERT_TRUE(table_.Propose(std::string(kDeploymentPrefix) + "bad", "\xff\xff").ok());
  v1::Deployment other;
  other.set_name("other");
  Write(std::string(kDeploymentPrefix) + "m", other);
  EXPECT_TRUE(desired_.deployments().empty());
}

TEST_F(DesiredStateTest, AValueThatNoLongerParsesIsGone) {
  WriteDeployment("m", 2);
  ASSERT_NE(desired_.FindDeployment("m"), nullptr);
  ASSERT_TRUE(table_.Propose(std::string(kDeploymentPrefix) + "m", "\xff\xff").ok());
  EXPECT_EQ(desired_.FindDeployment("m"), nullptr);
}

TEST_F(DesiredStateTest, CrashesRefusalsVerdictsAndSpeedsAreRead) {
  v1::NodeCrashes crashes;
  crashes.add_crashes();
  Write(std::string(kCrashPrefix) + "n", crashes);
  v1::TransportRefusal refusal;
  refusal.set_backend("jaccl");
  Write(std::string(kRefusalPrefix) + "x", refusal);
  v1::ClusterLinks links;
  links.set_revision(4);
  Write(std::string(kLinksKey), links);
  v1::SpeedCorrections speeds;
  speeds.add_corrections()->set_backend("ring");
  Write(std::string(kSpeedsKey), speeds);
  EXPECT_EQ(desired_.crashes().at("n").crashes_size(), 1);
  ASSERT_EQ(desired_.refusals().size(), 1u);
  EXPECT_EQ(desired_.refusals().begin()->second.backend(), "jaccl");
  EXPECT_EQ(desired_.links().revision(), 4u);
  EXPECT_EQ(desired_.speeds().corrections_size(), 1);
  ASSERT_TRUE(table_.Remove(std::string(kSpeedsKey)).ok());
  EXPECT_EQ(desired_.speeds().corrections_size(), 0);
}

}  // namespace
}  // namespace macrame::agentd
