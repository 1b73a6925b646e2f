// topology advise on the live cluster: what is asked of the planner, and what people read.

#include "cli/present_cluster.h"

#include <gtest/gtest.h>

#include "cli/exit_codes.h"
#include "tests/unit/cli/cli_run.h"
#include "tests/unit/cli/fake_cluster_service.h"
#include "tests/unit/cli/sample_links.h"
#include "tests/unit/cli/sample_messages.h"
#include "tests/unit/transport/links/link_facts_for_tests.h"
#include "transport/links/judge.h"

namespace macrame::cli {
namespace {

v1::NodeStatus* AddNode(const std::string& id, const std::string& hostname,
                        v1::ClusterStatus* status) {
  v1::NodeStatus* node = status->add_nodes();
  node->mutable_identity()->set_node_id(id);
  node->mutable_identity()->set_hostname(hostname);
  node->set_state(v1::NODE_STATE_ALIVE);
  node->mutable_inventory()->set_machine_model("Mac15,14");
  node->mutable_inventory()->set_chip("Apple M3 Ultra");
  return node;
}

v1::LinksView ViewOf(const v1::LinkSnapshot& snapshot) {
  v1::LinksView view;
  *view.mutable_links() = transport::JudgeLinks(snapshot);
  *view.mutable_nodes() = snapshot.nodes();
  return view;
}

TEST(PresentCluster, CablesAndSocketsAreThoseThatAgentsSaw) {
  v1::ClusterStatus status;
  AddNode("mini-a", "north", &status);
  AddNode("mini-b", "south", &status);
  AddNode("mini-c", "gone", &status)->set_state(v1::NODE_STATE_DEAD);
  v1::LinkSnapshot snapshot = transport::GoodPair();
  snapshot.mutable_nodes(0)->mutable_facts()->mutable_ports(0)->set_is_next_to_ethernet(true);
  v1::TopologyQuestion question;
  AddPresentCluster(status, ViewOf(snapshot), &question);
  ASSERT_EQ(question.machines_size(), 2) << "the dead one is not counted on";
  EXPECT_EQ(question.machines(0).sockets_to_avoid(0), 1u);
  EXPECT_EQ(question.machines(1).sockets(0), 2u);
  ASSERT_EQ(question.cables_size(), 1);
  EXPECT_EQ(question.cables(0).a(), "north");
  EXPECT_EQ(question.cables(0).a_socket(), 1u);
  EXPECT_EQ(question.cables(0).b(), "south");
  EXPECT_TRUE(question.cables(0).rdma()) << question.cables(0).why_not();
}

TEST(PresentCluster, ACableThatDoesNotWorkComesWithTheReason) {
  v1::ClusterStatus status;
  AddNode("mini-a", "twin", &status);
  AddNode("mini-b", "twin", &status);
  v1::TopologyQuestion question;
  AddPresentCluster(status, SamplePair(), &question);
  ASSERT_EQ(question.cables_size(), 1);
  EXPECT_FALSE(question.cables(0).rdma());
  EXPECT_FALSE(question.cables(0).why_not().empty());
  EXPECT_NE(question.machines(0).name(), question.machines(1).name()) << "one hostname, two Macs";
}

TEST(PresentCluster, WithoutMachinesToBuyTheAgentIsAsked) {
  FakeAgent agent;
  CliWorld world;
  world.variables["MACRAME_SOCKET"] = agent.socket_path();
  world.variables["MACRAME_PLANNER"] = MACRAME_PLANNER;
  const CliRun run = Clusterctl({"topology", "advise"}, world);
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_NE(run.out.find("3 cables are missing"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("mini-3"), std::string::npos) << run.out;
  world.variables["MACRAME_SOCKET"] = agent.socket_path() + "-none";
  EXPECT_EQ(Clusterctl({"topology", "advise"}, world).exit_code, kExitUnreachable);
}

}  // namespace
}  // namespace macrame::cli
