// Three real agents without models: finding each other, electing, losing and regaining one.

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "tests/integration/cluster_test_base.h"

namespace macrame::tests {
namespace {

class AgentsTest : public ClusterTest {};

TEST_F(AgentsTest, ThreeFindEachOtherAndAgreeOnOneCoordinator) {
  StartThree();
  std::set<std::string> coordinators;
  for (AgentProcess* agent : Running()) {
    const auto status = Status(*agent);
    ASSERT_TRUE(status.ok()) << status.status();
    EXPECT_EQ(status->nodes_size(), 3);
    EXPECT_TRUE(status->healthy());
    EXPECT_EQ(status->cluster_name(), "trial");
    EXPECT_EQ(status->unknown_nodes_size(), 0);
    EXPECT_FALSE(status->insecure());
    coordinators.insert(status->coordinator().coordinator_id());
    for (const v1::NodeStatus& node : status->nodes()) {
      EXPECT_GT(node.inventory().memory_total_bytes(), 0u) << node.identity().hostname();
      EXPECT_GT(node.load().memory_available_bytes(), 0u) << node.identity().hostname();
    }
  }
  EXPECT_EQ(coordinators.size(), 1u);
}

TEST_F(AgentsTest, AKilledCoordinatorIsReplacedAndComesBackAsItself) {
  StartThree();
  AgentProcess& old = Coordinator();
  const std::string old_id = NodeIdOf(old);
  old.Kill(SIGKILL);
  const double elected =
      WaitFor("another coordinator", Running(), 20, [&](const v1::ClusterStatus& status) {
        return HasCoordinator(status) && status.coordinator().coordinator_id() != old_id &&
               StateOf(status, old_id) == v1::NODE_STATE_DEAD;
      });
  std::cout << "coordinator replaced and the old one dead for all: " << elected << " s\n";
  old.Start();
  const double back = WaitFor("three alive again", Running(), 20, [&](const auto& status) {
    return AliveCount(status) == 3 && status.nodes_size() == 3 && HasCoordinator(status);
  });
  std::cout << "three alive again: " << back << " s\n";
  EXPECT_EQ(NodeIdOf(old), old_id);
}

TEST_F(AgentsTest, AnotherClustersNodeIsNamedAndNotAdmitted) {
  StartThree();
  AgentProcess& other = AddAgent("dora", WriteSecret("trial", "other.secret"));
  AgentProcess& bare = AddAgent("edna", folder_ + "/missing.secret");
  other.Start();
  bare.Start();
  AgentProcess& own = *agents_[0];
  WaitFor("two unknown nodes", {&own}, 20,
          [](const auto& status) { return status.unknown_nodes_size() == 2; });
  const auto status = Status(own);
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(AliveCount(*status), 3);
  EXPECT_EQ(status->nodes_size(), 3);
  std::set<std::string> codes;
  for (const v1::UnknownNode& unknown_node : status->unknown_nodes()) {
    codes.insert(unknown_node.reason().code());
    EXPECT_FALSE(unknown_node.reason().remedy().empty());
  }
  EXPECT_TRUE(codes.contains("NO_SECRET"));
  EXPECT_EQ(codes.size(), 2u);
  WaitFor("the others are unknown nodes to it", {&bare}, 20, [](const auto& seen) {
    return seen.nodes_size() == 1 && seen.unknown_nodes_size() == 4;
  });
}

TEST_F(AgentsTest, ANodeJoinsWhenItsSecretAppears) {
  for (const char* name : {"ada", "bess"}) AddAgent(name).Start();
  const std::string late_path = folder_ + "/late.secret";
  AddAgent("cleo", late_path).Start();
  WaitFor("two members", {agents_[0].get(), agents_[1].get()}, 20,
          [](const auto& status) { return AliveCount(status) == 2 && HasCoordinator(status); });
  // Written beside and renamed, as a careful copy is.
  std::filesystem::copy_file(secret_path_, late_path + ".new");
  std::filesystem::permissions(
      late_path + ".new", std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::rename(late_path + ".new", late_path);
  WaitFor("three members", Running(), 20,
          [](const auto& status) { return AliveCount(status) == 3 && HasCoordinator(status); });
}

TEST_F(AgentsTest, AnAgentLeavesInOrderWithinFiveSeconds) {
  StartThree();
  AgentProcess& leaving = Coordinator();
  const std::string id = NodeIdOf(leaving);
  ::kill(leaving.pid(), SIGTERM);
  const auto exit_code = leaving.WaitForExit(5'000);
  ASSERT_TRUE(exit_code.has_value());
  EXPECT_EQ(*exit_code, 0);
  const double seconds = WaitFor("it has left", Running(), 10, [&](const auto& status) {
    return StateOf(status, id) == v1::NODE_STATE_LEFT && HasCoordinator(status) &&
           status.coordinator().coordinator_id() != id;
  });
  std::cout << "left and replaced: " << seconds << " s\n";
}

TEST_F(AgentsTest, APausedCoordinatorIsReplacedAndFollowsWhenItWakes) {
  StartThree();
  AgentProcess& paused = Coordinator();
  const std::string id = NodeIdOf(paused);
  ::kill(paused.pid(), SIGSTOP);
  std::vector<AgentProcess*> others;
  for (AgentProcess* agent : Running()) {
    if (agent != &paused) others.push_back(agent);
  }
  WaitFor("another coordinator", others, 30, [&](const auto& status) {
    return HasCoordinator(status) && status.coordinator().coordinator_id() != id;
  });
  ::kill(paused.pid(), SIGCONT);
  WaitFor("all follow one coordinator", Running(), 20,
          [&](const auto& status) { return AliveCount(status) == 3 && HasCoordinator(status); });
  std::set<std::string> coordinators;
  for (AgentProcess* agent : Running()) {
    coordinators.insert(Status(*agent)->coordinator().coordinator_id());
  }
  EXPECT_EQ(coordinators.size(), 1u);
}

TEST_F(AgentsTest, WrongSettingsEndTheStartWithOneLineAndCodeTwo) {
  AgentProcess& wrong = AddAgent("ada", "", {"gateway_prt: 8000"});
  wrong.Start();
  EXPECT_EQ(wrong.WaitForExit(5'000), 2);
  EXPECT_NE(wrong.Log().find("did you mean 'gateway_port'?"), std::string::npos) << wrong.Log();
  AgentProcess& open = AddAgent("bess");
  std::filesystem::permissions(secret_path_, std::filesystem::perms::others_read,
                               std::filesystem::perm_options::add);
  open.Start();
  EXPECT_EQ(open.WaitForExit(5'000), 2);
  EXPECT_NE(open.Log().find("chmod 600 " + secret_path_), std::string::npos) << open.Log();
}

TEST_F(AgentsTest, ASecondAgentOnOneStateFolderIsRefused) {
  AgentProcess& first = AddAgent("ada");
  first.Start();
  WaitFor("the first runs", {&first}, 10, [](const auto&) { return true; });
  AgentProcess second(folder_ + "/ada", {"cluster_secret_file: " + secret_path_, "gateway_port: 0",
                                         "control_bind: 127.0.0.1"});
  second.Start();
  EXPECT_EQ(second.WaitForExit(5'000), 2);
  EXPECT_TRUE(first.IsRunning());
}

TEST_F(AgentsTest, AnIdleAgentCostsLittle) {
  StartThree();
  const double before = agents_[0]->CpuSeconds();
  std::this_thread::sleep_for(std::chrono::seconds(10));
  const double cpu = (agents_[0]->CpuSeconds() - before) / 10;
  std::cout << "idle agent of three: " << agents_[0]->ResidentMiB() << " MiB resident, "
            << cpu * 100 << " % of a core\n";
  EXPECT_LT(agents_[0]->ResidentMiB(), 100);
  EXPECT_LT(cpu, 0.10);
}

}  // namespace
}  // namespace macrame::tests
