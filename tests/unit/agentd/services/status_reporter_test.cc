#include "agentd/services/status_reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class StatusReporterTest : public sim::AskedAgents {
 protected:
  v1::ClusterStatus Status(int at) {
    const auto status = Ask(at, kGetStatus, v1::GetStatusRequest());
    EXPECT_TRUE(status.ok()) << status.status();
    return status.value_or(v1::ClusterStatus());
  }
  static const v1::NodeStatus* NodeOf(const v1::ClusterStatus& status, const NodeId& node) {
    for (const v1::NodeStatus& one : status.nodes()) {
      if (one.identity().node_id() == node.value()) return &one;
    }
    return nullptr;
  }
  static const v1::Reason* Problem(const v1::ClusterStatus& status, std::string_view code) {
    for (const v1::Reason& problem : status.problems()) {
      if (problem.code() == code) return &problem;
    }
    return nullptr;
  }
  static const v1::DeploymentStatus* DeploymentOf(const v1::ClusterStatus& status,
                                                  const std::string& name) {
    for (const v1::DeploymentStatus& one : status.deployments()) {
      if (one.deployment().name() == name) return &one;
    }
    return nullptr;
  }
};

TEST_F(StatusReporterTest, AHealthyClusterIsSoOnEveryNodeAndSaysWhoAnswers) {
  Begin(3);
  LoadAndWait("m1");
  sim().RunFor(1000);
  for (int at = 0; at < 3; ++at) {
    const v1::ClusterStatus status = Status(at);
    EXPECT_EQ(status.answered_by(), id(at).value());
    EXPECT_EQ(status.coordinator().coordinator_id(), id(Leader()).value());
    EXPECT_THAT(status.member_ids(), SizeIs(3));
    EXPECT_TRUE(status.healthy()) << status.problems_size() << " problems, the first: "
                                  << (status.problems().empty() ? ""
                                                                : status.problems(0).message());
    const v1::DeploymentStatus* m1 = DeploymentOf(status, "m1");
    ASSERT_NE(m1, nullptr);
    EXPECT_EQ(m1->state(), v1::DEPLOYMENT_STATE_READY);
    EXPECT_EQ(m1->epoch(), sim().EpochOf("m1"));
    EXPECT_THAT(m1->plan().assignments(), SizeIs(2));
    int running = 0;
    for (const v1::NodeStatus& node : status.nodes()) running += node.ranks_running();
    EXPECT_EQ(running, 2);
  }
}

TEST_F(StatusReporterTest, ADeadNodeMakesItUnhealthyUntilItIsBack) {
  Begin(3);
  const int dead = Follower();
  sim().Crash(dead);
  sim().RunFor(8000);
  for (int at = 0; at < 3; ++at) {
    if (at == dead) continue;
    const v1::ClusterStatus status = Status(at);
    EXPECT_FALSE(status.healthy());
    ASSERT_NE(NodeOf(status, id(dead)), nullptr) << "it stays in the list";
    EXPECT_EQ(NodeOf(status, id(dead))->state(), v1::NODE_STATE_DEAD);
    EXPECT_EQ(NodeOf(status, id(dead))->ranks_running(), 0u);
    EXPECT_TRUE(std::any_of(
        status.problems().begin(), status.problems().end(),
        [&](const v1::Reason& problem) { return problem.node_id() == id(dead).value(); }));
  }
  sim().Start(dead);
  sim().RunFor(10'000);
  for (int at = 0; at < 3; ++at) EXPECT_TRUE(Status(at).healthy()) << at;
}

// Nobody says of the others that they are well while the cluster has no coordinator.
TEST_F(StatusReporterTest, AMinoritySaysHowManyItIsAndWhoIsAway) {
  Begin(3, [](auto& options) { options.consistency = Consistency::kQuorum; });
  sim().RunFor(15'000);
  const int cut = Follower();
  sim().Isolate(cut, true);
  sim().RunFor(10'000);
  const v1::ClusterStatus alone = Status(cut);
  EXPECT_FALSE(alone.healthy());
  EXPECT_EQ(alone.coordinator().term(), 0u);
  const v1::Reason* minority = Problem(alone, reasons::kMinority);
  ASSERT_NE(minority, nullptr) << alone.ShortDebugString();
  EXPECT_THAT(minority->message(), HasSubstr("1 of the cluster's 3 members"));
  for (int other = 0; other < 3; ++other) {
    const std::string name = "node-" + sim::Letter(id(other));
    EXPECT_EQ(absl::StrContains(minority->message(), name), other != cut) << minority->message();
  }
  sim().Isolate(cut, false);
  sim().RunFor(10'000);
  EXPECT_EQ(Problem(Status(cut), reasons::kMinority), nullptr);
  EXPECT_NE(Status(cut).coordinator().term(), 0u);
}

TEST_F(StatusReporterTest, BeforeTheFirstListItSaysHowManyHaveToBeThere) {
  sim::SimOptions options;
  options.nodes = 3;
  options.consistency = Consistency::kQuorum;
  sim::ClusterSim cluster(options);
  cluster.Start(0);
  cluster.RunFor(10'000);
  const v1::ClusterStatus status = cluster.machine(0).parts().reporter.Status();
  const v1::Reason* minority = Problem(status, reasons::kMinority);
  ASSERT_NE(minority, nullptr);
  EXPECT_THAT(minority->message(), HasSubstr("quorum_first_members"));
  EXPECT_THAT(minority->message(), HasSubstr("1 is here"));
  EXPECT_THAT(status.member_ids(), IsEmpty());
  EXPECT_EQ(cluster.violation(), "");
}

// What the coordinator said counts for a moment; a node that hears it no more shows what it knows.
TEST_F(StatusReporterTest, TheCoordinatorsWordIsShownWhileItCountsAndNoLonger) {
  Begin(3);
  LoadAndWait("m1");
  sim().RunFor(1000);
  const int follower = Follower();
  v1::ClusterStatus word = Status(Leader());
  ASSERT_THAT(word.deployments(), SizeIs(1));
  word.mutable_deployments(0)->set_tokens_per_second(123);
  StatusReporter& reporter = parts(follower).reporter;
  reporter.TakeDeployments(word);
  ASSERT_THAT(reporter.Deployments(), SizeIs(1));
  EXPECT_EQ(reporter.Deployments()[0].tokens_per_second(), 123);
  v1::ClusterStatus others = word;
  others.set_answered_by(id(follower).value());
  reporter.TakeDeployments(others);
  EXPECT_NE(reporter.Deployments().at(0).tokens_per_second(), 123) << "it does not lead";
  reporter.TakeDeployments(word);
  sim().RunFor(4000);
  ASSERT_THAT(reporter.Deployments(), SizeIs(1));
  EXPECT_NE(reporter.Deployments()[0].tokens_per_second(), 123) << "that was long ago";
  parts(Leader()).reporter.TakeDeployments(word);
  EXPECT_NE(parts(Leader()).reporter.Deployments().at(0).tokens_per_second(), 123)
      << "who leads knows better";
}

TEST_F(StatusReporterTest, AFullDiskIsAProblemThatNamesItsNodeEverywhere) {
  Begin(3);
  const int full = Follower();
  sim().FillDisk(full, true);
  v1::SetCordonRequest cordon;
  cordon.set_node_id(id(Leader()).value());
  cordon.set_order(v1::CORDON_ORDER_CORDON);
  ASSERT_TRUE(Ask(Leader(), kSetCordon, cordon).ok());
  sim().RunFor(5000);
  for (int at = 0; at < 3; ++at) {
    const v1::ClusterStatus status = Status(at);
    const v1::Reason* disk = Problem(status, reasons::kStateDiskFull);
    ASSERT_NE(disk, nullptr) << at << ": " << status.ShortDebugString();
    EXPECT_EQ(disk->node_id(), id(full).value());
    EXPECT_THAT(disk->message(), HasSubstr("node-" + sim::Letter(id(full))));
    EXPECT_EQ(std::count_if(status.problems().begin(), status.problems().end(),
                            [](const v1::Reason& problem) {
                              return problem.code() == reasons::kStateDiskFull;
                            }),
              1)
        << "once";
  }
  sim().FillDisk(full, false);
  sim().RunFor(8000);
  for (int at = 0; at < 3; ++at) EXPECT_EQ(Problem(Status(at), reasons::kStateDiskFull), nullptr);
}

TEST_F(StatusReporterTest, ANodeThatIsToldToStopIsShownSoWhileItHasRanks) {
  Begin(3);
  LoadAndWait("m1");
  int holder = 0;
  while (sim().RanksOn(holder, "m1") == 0 || holder == Leader()) ++holder;
  ASSERT_LT(holder, 3);
  sim().KeepBusy(holder, 4000);
  sim().Drain(holder);
  sim().RunFor(1000);
  const v1::ClusterStatus status = Status(Leader());
  ASSERT_NE(NodeOf(status, id(holder)), nullptr);
  EXPECT_TRUE(NodeOf(status, id(holder))->draining());
  sim().RunFor(15'000);
  const v1::NodeStatus* gone = NodeOf(Status(Leader()), id(holder));
  EXPECT_TRUE(gone == nullptr || !gone->draining()) << "it has gone";
}

TEST_F(StatusReporterTest, ModelsAreThoseOfNodesThatLiveAndWhatIsLoaded) {
  Begin(3);
  LoadAndWait("m0");
  sim().Crash(Follower());
  sim().RunFor(8000);
  const v1::ListModelsResponse models = parts(Leader()).reporter.Models();
  ASSERT_THAT(models.models(), SizeIs(2));
  for (const v1::ModelEntry& model : models.models()) {
    EXPECT_THAT(model.node_ids(), SizeIs(2));
    EXPECT_EQ(model.has_deployment(), model.name() == "m0");
  }
  EXPECT_TRUE(parts(Leader()).reporter.Knows(id(0)));
  EXPECT_FALSE(parts(Leader()).reporter.Knows(NodeId(std::string(32, 'f'))));
}

}  // namespace
}  // namespace macrame::agentd
