// topology advise on the live cluster: what is asked of the planner, and what people read.

#include "cli/present_cluster.h"

#include <gtest/gtest.h>

#include "cli/exit_codes.h"
#include "cli/format/message_json.h"
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

// Agents that share a machine share its memory, and nodes that are gone are not planned with.
TEST(PresentCluster, AsAFileItHasWhatIsFreeNow) {
  constexpr uint64_t kGib = 1ULL << 30;
  v1::ClusterStatus status;
  for (const char* name : {"north", "south", "gone", "box"}) {
    v1::NodeStatus* node = AddNode(std::string("id-") + name, name, &status);
    v1::Inventory& inventory = *node->mutable_inventory();
    inventory.set_memory_total_bytes(64 * kGib);
    inventory.set_gpu_cores(60);
    node->mutable_load()->set_memory_available_bytes(40 * kGib);
    node->mutable_load()->set_awaited_bytes(8 * kGib);
  }
  status.mutable_nodes(0)->mutable_inventory()->set_boot_digest("one");
  status.mutable_nodes(1)->mutable_inventory()->set_boot_digest("one");
  status.mutable_nodes(2)->set_state(v1::NODE_STATE_DEAD);
  status.mutable_nodes(3)->mutable_inventory()->set_chip("AMD EPYC 9454");
  status.mutable_nodes(3)->mutable_inventory()->clear_gpu_cores();
  status.mutable_nodes(3)->mutable_cordon();
  v1::LinksView links;
  const auto add_path = [&](const char* from, const char* to) {
    v1::NodePath& path = *links.mutable_links()->add_paths();
    path.set_from_node_id(from);
    path.set_to_node_id(to);
    path.set_kind(v1::INTERFACE_KIND_THUNDERBOLT);
    path.set_round_trip_us(30);
    path.set_bandwidth_bytes_per_second(4e9);
  };
  add_path("id-north", "id-south");
  add_path("id-south", "id-north");
  add_path("id-gone", "id-north");
  v1::LinkVerdict& cable = *links.mutable_links()->add_links();
  cable.mutable_a()->set_node_id("id-south");
  cable.mutable_b()->set_node_id("id-north");
  cable.set_rdma_usable(v1::FACT_YES);
  const auto file = Json::parse(PresentClusterFile(status, links));
  ASSERT_EQ(file["nodes"].size(), 3u);
  EXPECT_EQ(file["nodes"][0]["memory_gib"], 32.0);
  EXPECT_EQ(file["nodes"][0]["free_gib"], 16.0);
  EXPECT_EQ(file["nodes"][0]["chip"], "Apple M3 Ultra");
  EXPECT_EQ(file["nodes"][2]["memory_gib"], 64.0);
  EXPECT_FALSE(file["nodes"][2].contains("chip")) << "no table has it, and none is needed";
  EXPECT_EQ(file["nodes"][2]["schedulable"], false);
  ASSERT_EQ(file["links"].size(), 1u) << "both ways are one link";
  EXPECT_EQ(file["links"][0]["rdma"], true);
  EXPECT_EQ(file["links"][0]["gbit_s"], 32.0);
}

// A model of the catalogue is planned on the cluster that runs before anybody fetches its files.
TEST(PresentCluster, AModelThatNoNodeHasIsPlannedFromTheCatalogue) {
  FakeAgent agent;
  CliWorld world;
  world.variables["MACRAME_SOCKET"] = agent.socket_path();
  world.variables["MACRAME_PLANNER"] = MACRAME_PLANNER;
  const CliRun run = Clusterctl({"plan", "Qwen3-8B-4bit", "--nodes", "mini-1"}, world);
  EXPECT_EQ(run.exit_code, kExitOk) << run.err << run.out;
  EXPECT_EQ(run.out.rfind("Predicted only: no node has the files of 'Qwen3-8B-4bit'", 0), 0u)
      << run.out;
  EXPECT_NE(run.out.find("mini-1"), std::string::npos) << run.out;
  const CliRun misfit = Clusterctl({"plan", "DeepSeek-V3.1"}, world);
  EXPECT_EQ(misfit.exit_code, kExitFailure) << misfit.err;
  EXPECT_NE(misfit.out.find("Does not fit"), std::string::npos) << misfit.out;
  const CliRun unknown = Clusterctl({"plan", "nosuch"}, world);
  EXPECT_EQ(unknown.exit_code, kExitNotFound);
  EXPECT_NE(unknown.err.find("no model on this node"), std::string::npos) << unknown.err;
  EXPECT_NE(unknown.err.find("name of the catalogue"), std::string::npos) << unknown.err;
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
