#include "cli/format/cluster_view.h"

#include <gtest/gtest.h>

#include "cli/format/top_view.h"
#include "proto/reason_codes.h"
#include "tests/unit/cli/sample_messages.h"

namespace macrame::cli {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kMiB = uint64_t{1} << 20;

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The line that begins with `begin`; "" when none does.
std::string LineOf(const std::string& text, const std::string& begin) {
  const size_t at = text.rfind(begin, 0) == 0 ? 0 : text.find("\n" + begin);
  if (at == std::string::npos) return "";
  const size_t from = at == 0 ? 0 : at + 1;
  return text.substr(from, text.find('\n', from) - from);
}

v1::ClusterStatus OneNode() {
  v1::ClusterStatus status = HealthyCluster();
  status.mutable_nodes()->DeleteSubrange(1, 2);
  status.clear_deployments();
  return status;
}

TEST(NodeState, HasAWordForEachStateAndTheOrderBeforeIt) {
  struct Case {
    v1::NodeState state;
    bool draining, cordoned, drain;
    uint32_t ranks;
    const char* word;
  };
  const Case cases[] = {
      {v1::NODE_STATE_ALIVE, false, false, false, 0, "alive"},
      {v1::NODE_STATE_SUSPECT, false, false, false, 0, "suspect"},
      {v1::NODE_STATE_DEAD, false, false, false, 0, "dead"},
      {v1::NODE_STATE_LEFT, false, false, false, 0, "left"},
      {v1::NODE_STATE_UNSPECIFIED, false, false, false, 0, "unknown"},
      {v1::NODE_STATE_ALIVE, true, false, false, 0, "draining"},
      {v1::NODE_STATE_ALIVE, false, true, false, 3, "cordoned"},
      {v1::NODE_STATE_ALIVE, false, true, true, 3, "draining"},
      {v1::NODE_STATE_ALIVE, false, true, true, 0, "drained"},
      // Nobody is told that a machine drains which is gone.
      {v1::NODE_STATE_DEAD, true, true, true, 3, "dead"},
      {v1::NODE_STATE_SUSPECT, false, true, true, 3, "suspect"},
      {v1::NODE_STATE_LEFT, true, false, false, 0, "left"},
  };
  for (const Case& one : cases) {
    v1::NodeStatus node;
    node.set_state(one.state);
    node.set_draining(one.draining);
    if (one.cordoned) node.mutable_cordon()->set_drain(one.drain);
    node.set_ranks_running(one.ranks);
    EXPECT_EQ(NodeStateWord(node), one.word);
  }
  v1::NodeStatus newer;
  newer.set_state(static_cast<v1::NodeState>(42));
  EXPECT_EQ(NodeStateWord(newer), "unknown") << "a state of a newer agent";
}

TEST(StatusView, OfNoClusterSaysWhatToDoNext) {
  const std::string text = StatusView(v1::ClusterStatus(), 80, Style());
  EXPECT_TRUE(Has(text, "(no cluster yet), no coordinator\n")) << text;
  EXPECT_TRUE(Has(text, "Not healthy: 0 of 0 nodes alive\n")) << text;
  EXPECT_TRUE(Has(text, "'clusterctl model load NAME' loads one")) << text;
}

TEST(StatusView, SaysThatAConnectionIsNotGuarded) {
  v1::ClusterStatus status = OneNode();
  EXPECT_FALSE(Has(StatusView(status, 80, Style()), "INSECURE"));
  status.set_insecure(true);
  EXPECT_TRUE(Has(LineOf(StatusView(status, 80, Style()), "Cluster"), "INSECURE"));
}

TEST(StatusView, TheCoordinatorIsNamedAlsoWhenItIsNotListed) {
  v1::ClusterStatus status = OneNode();
  EXPECT_TRUE(Has(StatusView(status, 80, Style()), "coordinator mini-1 (term 4)"));
  status.mutable_coordinator()->set_coordinator_id("ffeeddccbbaa99887766554433221100");
  EXPECT_TRUE(Has(StatusView(status, 80, Style()), "coordinator ffeeddcc (term 4)"));
}

TEST(StatusView, AFailureOfAModelStandsBesideItAndNotTwice) {
  v1::ClusterStatus status = TroubledCluster();
  status.clear_problems();
  v1::Reason& problem = *status.add_problems();
  problem.set_code(status.deployments(0).failure().code());
  problem.set_message("deployment 'tiny': " + status.deployments(0).failure().message());
  const std::string text = StatusView(status, 120, Style());
  EXPECT_TRUE(Has(text, "failure of tiny: mini-3 held rank 2 and is gone")) << text;
  EXPECT_FALSE(Has(text, "Problems")) << text;
}

// `cluster health` and `top` show no model with its failure: there it has to be listed.
TEST(HealthView, ListsEveryProblemThatItCounts) {
  v1::ClusterStatus status = TroubledCluster();
  v1::Reason& problem = *status.add_problems();
  problem.set_code(status.deployments(0).failure().code());
  problem.set_message("deployment 'tiny': " + status.deployments(0).failure().message());
  for (const std::string& text : {HealthView(status, Style()), TopView(status, 120, Style())}) {
    EXPECT_TRUE(Has(text, "2 problems below")) << text;
    EXPECT_TRUE(Has(text, "deployment 'tiny': mini-3 held rank 2 and is gone")) << text;
    EXPECT_TRUE(Has(text, "NODE_DEAD on mini-3")) << text;
  }
}

TEST(HealthView, OfAHealthyClusterCallsThemNotes) {
  v1::ClusterStatus status = HealthyCluster();
  status.add_problems()->set_message("a certificate ends in two days");
  const std::string text = HealthView(status, Style());
  EXPECT_EQ(text.rfind("All nodes healthy; 1 note below\n", 0), 0u) << text;
  EXPECT_TRUE(Has(text, "Notes\n")) << text;
  EXPECT_FALSE(Has(text, "Problems")) << text;
}

TEST(HealthView, AProblemWithoutTextOrCodeIsStillSaid) {
  v1::ClusterStatus status;
  status.add_problems();
  EXPECT_TRUE(Has(HealthView(status, Style()), "  problem: no reason is given\n"))
      << HealthView(status, Style());
  status.mutable_problems(0)->set_code(std::string(reasons::kNodeDead));
  EXPECT_TRUE(Has(HealthView(status, Style()), "  NODE_DEAD: NODE_DEAD\n"));
}

TEST(StatusView, MemoryIsSaidOnceWithItsUnitWhereBothHaveTheSame) {
  struct Case {
    uint64_t total, free;
    const char* text;
  };
  const Case cases[] = {{64 * kGiB, 12 * kGiB, " 12.0 of 64.0 GiB "},
                        {64 * kGiB, 900 * kMiB, " 900.0 MiB of 64.0 GiB "},
                        {900 * kMiB, 0, " 0 B of 900.0 MiB "},
                        {2048 * kGiB, 1024 * kGiB, " 1.0 of 2.0 TiB "}};
  for (const Case& one : cases) {
    v1::ClusterStatus status = OneNode();
    status.mutable_nodes(0)->mutable_inventory()->set_memory_total_bytes(one.total);
    status.mutable_nodes(0)->mutable_load()->set_memory_available_bytes(one.free);
    EXPECT_TRUE(Has(StatusView(status, 140, Style()), one.text))
        << one.text << "\n"
        << StatusView(status, 140, Style());
  }
}

TEST(StatusView, MoreFreeThanThereIsIsNoNegativeUse) {
  v1::ClusterStatus status = OneNode();
  status.mutable_nodes(0)->mutable_load()->set_memory_available_bytes(65 * kGiB);
  const std::string line = LineOf(StatusView(status, 140, Style()), "mini-1");
  EXPECT_TRUE(Has(line, "[..........]   0%") || Has(line, "[..........] 0%")) << line;
}

TEST(StatusView, WhatADeadNodeLastSaidIsNotShownAsPresent) {
  v1::ClusterStatus status = OneNode();
  status.mutable_nodes(0)->set_state(v1::NODE_STATE_DEAD);
  status.mutable_nodes(0)->mutable_load()->set_cpu_busy_ratio(0.93);
  const std::string line = LineOf(StatusView(status, 140, Style()), "mini-1");
  EXPECT_FALSE(Has(line, "93%")) << line;
  EXPECT_FALSE(Has(line, "41.2")) << line;
  EXPECT_TRUE(Has(line, "64.0 GiB")) << "what it is made of stays: " << line;
}

TEST(StatusView, HowLongANodeIsSilentIsSaidInAUnitThatCanBeRead) {
  struct Case {
    uint64_t ms;
    const char* text;
  };
  const Case cases[] = {{120, "120 ms ago"},
                        {42'000, "42.0 s ago"},
                        {119'000, "119.0 s ago"},
                        {45 * 60'000, "45 min ago"},
                        {26 * 3'600'000ull, "26 h ago"},
                        {12 * 86'400'000ull, "12 d ago"},
                        {UINT64_MAX, "long ago"}};
  for (const Case& one : cases) {
    v1::ClusterStatus status = OneNode();
    status.mutable_nodes(0)->set_last_heartbeat_age_ms(one.ms);
    EXPECT_TRUE(Has(LineOf(StatusView(status, 140, Style()), "mini-1"), one.text))
        << LineOf(StatusView(status, 140, Style()), "mini-1");
  }
}

TEST(DevicesView, TheAddressIsOneThatAnotherMachineCanTake) {
  v1::ClusterStatus status = OneNode();
  v1::NodeIdentity& identity = *status.mutable_nodes(0)->mutable_identity();
  identity.clear_addresses();
  EXPECT_TRUE(Has(LineOf(DevicesView(status, 140, Style()), "mini-1"), " -  ")) << "none is known";
  v1::NodeAddress& loopback = *identity.add_addresses();
  loopback.set_ip("127.0.0.1");
  loopback.set_interface_kind(v1::INTERFACE_KIND_LOOPBACK);
  EXPECT_TRUE(Has(DevicesView(status, 140, Style()), "127.0.0.1"));
  v1::NodeAddress& lan = *identity.add_addresses();
  lan.set_ip("10.0.0.7");
  lan.set_interface_kind(v1::INTERFACE_KIND_ETHERNET);
  EXPECT_TRUE(Has(DevicesView(status, 140, Style()), "10.0.0.7"));
  EXPECT_FALSE(Has(DevicesView(status, 140, Style()), "127.0.0.1"));
}

TEST(DevicesView, AnOlderAgentsNodeHasDashesAndNoEmptyCells) {
  v1::ClusterStatus status;
  status.add_nodes()->mutable_identity()->set_node_id("0123456789abcdef");
  const std::string text = DevicesView(status, 140, Style());
  EXPECT_EQ(LineOf(text, "01234567").substr(0, 30), "01234567  unknown  -        - ") << text;
  status.mutable_nodes(0)->mutable_identity()->clear_node_id();
  EXPECT_EQ(LineOf(DevicesView(status, 140, Style()), "?")[0], '?');
}

TEST(DevicesView, LabelsHaveAColumnOnlyWhereThereAreSome) {
  v1::ClusterStatus status = OneNode();
  EXPECT_FALSE(Has(DevicesView(status, 140, Style()), "LABELS"));
  v1::NodeMarks& marks = *status.mutable_nodes(0)->mutable_marks();
  marks.set_tenant("acme");
  v1::NodeLabel& label = *marks.add_labels();
  label.set_key("rack");
  label.set_value("a");
  EXPECT_EQ(MarksText(marks), "tenant acme, rack=a");
  EXPECT_TRUE(Has(DevicesView(status, 160, Style()), "tenant acme, rack=a"));
}

TEST(DevicesView, MachinesOutsideAreToldWithTheirReason) {
  v1::ClusterStatus status = OneNode();
  v1::UnknownNode& unknown = *status.add_unknown_nodes();
  unknown.set_node_id("0011223344556677");
  const std::string text = DevicesView(status, 140, Style());
  EXPECT_TRUE(Has(text, "  00112233 (address not known, no cluster): no reason is given\n"))
      << text;
}

TEST(NodeNames, AreTheHostnameThenTheIdsBegin) {
  v1::ClusterStatus status = OneNode();
  const std::string id = status.nodes(0).identity().node_id();
  EXPECT_EQ(NodeName(status, id), "mini-1");
  status.mutable_nodes(0)->mutable_identity()->clear_hostname();
  EXPECT_EQ(NodeName(status, id), id.substr(0, 8));
  EXPECT_EQ(NodeName(status, "ffff"), "ffff");
  EXPECT_EQ(NodeName(status, ""), "?");
}

TEST(TopView, BarsFitTheWindowAndSayWhatIsTight) {
  v1::ClusterStatus status = HealthyCluster();
  for (const int width : {80, 100, 140, 300}) {
    const std::string line = LineOf(TopView(status, width, Style()), "mini-1");
    EXPECT_LE(DisplayWidth(line), width) << line;
    EXPECT_TRUE(Has(line, "25% of 64.0 GiB")) << line;
  }
  status.mutable_nodes(0)->mutable_load()->set_memory_pressure(v1::MEMORY_PRESSURE_CRITICAL);
  EXPECT_TRUE(Has(TopView(status, 100, Style(true)), "\x1b[31m[###"));
  status.mutable_nodes(0)->mutable_identity()->set_hostname(std::string(200, 'x'));
  EXPECT_LE(DisplayWidth(LineOf(TopView(status, 100, Style()), "xxx")), 100);
}

TEST(TopView, OfNothingIsAWindowThatSaysSo) {
  const std::string text = TopView(v1::ClusterStatus(), 80, Style());
  EXPECT_TRUE(Has(text, "(no cluster yet)  0 nodes, - tokens/s, 0 running, 0 queued")) << text;
  EXPECT_TRUE(Has(text, "No model is loaded")) << text;
}

TEST(Clusters, OfAThousandNodesHaveALineForEach) {
  v1::ClusterStatus status = OneNode();
  for (int i = 1; i < 1000; ++i) {
    v1::NodeStatus node = status.nodes(0);
    node.mutable_identity()->set_hostname("node-" + std::to_string(i));
    *status.add_nodes() = node;
  }
  const std::string text = StatusView(status, 100, Style());
  EXPECT_TRUE(Has(text, "\nnode-999 "));
  EXPECT_TRUE(Has(TopView(status, 100, Style()), "1000 nodes"));
}

}  // namespace
}  // namespace macrame::cli
