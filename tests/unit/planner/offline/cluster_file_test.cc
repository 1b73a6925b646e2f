#include "planner/offline/cluster_file.h"

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/link_costs.h"
#include "planner/offline/catalogue.h"

namespace macrame::planner {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

std::string ErrorOf(const std::string& yaml) {
  return std::string(ReadClusterFile(yaml).status().message());
}

DescribedCluster Read(const std::string& yaml) {
  auto cluster = ReadClusterFile(yaml);
  EXPECT_TRUE(cluster.ok()) << cluster.status() << "\n" << yaml;
  return cluster.ok() ? *std::move(cluster) : DescribedCluster();
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Nodes "n0" to "n<count - 1>" that RDMA works on.
std::string Nodes(int count) {
  std::string yaml = "nodes:\n";
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&yaml, "- {name: n", i, ", machine: mac-studio-m3-ultra-96gb}\n");
  }
  return yaml;
}

TEST(ClusterFileFaults, NameTheLineTheKeyAndWhatIsExpected) {
  struct Case {
    const char* yaml;
    std::vector<std::string> says;
  };
  const Case cases[] = {
      {"nodes:\n- name: a\n  memory_gib: 8\n  cpu_kores: 4\n",
       {"node 1", "line 4, column 3", "'cpu_kores' is not a key", "cpu_cores"}},
      {"nodes:\n- name: a\n  memory_gib: -8\n",
       {"node 1", "line 3", "'memory_gib' is -8", "0 and"}},
      {"nodes:\n- {name: a, memory_gib: 8}\n- {name: b, memory_gib: x}\n",
       {"line 3, column 25", "wrong kind"}},
      {"nodes:\n- {name: a, memory_gib: 8, schedulable: perhaps}\n", {"line 2", "wrong kind"}},
      {"nodes:\n- {name: a, memory_gib: 8}\nlinks:\n- {between: [a]}\n",
       {"line 4", "between: [one node, another]"}},
      {"nodes:\n- {name: a, memory_gib: 8}\nlinks:\n- {between: {a: b, c: d}}\n",
       {"line 4", "between: [one node, another]"}},
      {"nodes:\n- {name: a, memory_gib: 8}\nlinks:\n- {between: [a, a]}\n",
       {"line 4", "'a' to itself"}},
      {"nodes:\n- {name: a, memory_gib: 8}\nlinks:\n- {between: [a, b], mediun: wifi}\n",
       {"line 4, column 21", "'mediun' is not a key", "medium"}},
      {"nodes:\n- {name: a, memory_gib: 8}\nlan: fast\n", {"line 3", "keys with values"}},
      {"nodes:\n- {name: a, memory_gib: 8}\nlan: {medium: wire}\n",
       {"'wire' is none of thunderbolt, ethernet"}},
      {"nodes:\n- {name: a, memory_gib: 8}\nlan: {gbit_s: 1e9}\n",
       {"line 3", "'gbit_s' is 1000000000; between 0 and 100000"}},
      {"nodes:\n- {name: a, memory_gib: 8}\nmesh_ranks_max: 99\n", {"line 3", "'mesh_ranks_max'"}},
      {"nodes:\n- {name: a, memory_gib: 8, backends: [rign]}\n",
       {"node 1", "'rign' is none of", "ring"}},
      {"nodes:\n- {name: a, memory_gib: 8, backends: ring}\n", {"'backends' is a list"}},
      {"nodes:\n- {name: a, memory_gib: 8}\nloaded:\n- {name: m}\n", {"'name' and 'gib:"}},
      {"nodes:\n- {name: a, memory_gib: 8}\nloaded:\n- {name: m, gib: {a: -1}}\n",
       {"line 4", "'a' is -1"}},
      {"nodes:\n- {name: a, memory_gib: 8}\npublished: {users: [20, 10]}\n",
       {"published: 'users' are two numbers"}},
      {"nodes:\n- {name: a, memory_gib: 8}\npublished: {speeds: [{tokens_per_second: 3}]}\n",
       {"published: ", "names no 'model'"}},
      {"name: a\n", {"'name' is not a key", "line 1"}},
      {"just text", {"does not begin with 'nodes:'", "deploy/catalogue/clusters"}},
      {"", {"does not begin with 'nodes:'"}},
      {"nodes:\n- a\n", {"node 1", "line 2", "keys with values"}},
      {"nodes:\n- {name: a, memory_gib: 8, memory_gib: 9}\n", {"'memory_gib' stands there twice"}},
      {"nodes:\n\t- {name: a}\n", {"line 2"}},
  };
  for (const Case& one : cases) {
    const std::string error = ErrorOf(one.yaml);
    EXPECT_EQ(error.rfind("the cluster's description: ", 0), 0u) << error;
    for (const std::string& part : one.says) {
      EXPECT_TRUE(Has(error, part)) << "expected: " << part << "\nsaid: " << error << "\n"
                                    << one.yaml;
    }
  }
}

TEST(ClusterFile, LimitsOfNumbersAreTakenAndWhatIsBeyondIsNot) {
  struct Case {
    const char* key;
    double most;
  };
  const Case cases[] = {{"memory_gib", 1 << 20}, {"cpu_cores", 100'000}, {"gpu_cores", 100'000},
                        {"bandwidth_gb_s", 1e6}, {"tflops", 1e6},        {"disk_gb_s", 1e4},
                        {"peak_watts", 1e6},     {"idle_watts", 1e6},    {"reserved_gib", 1 << 20},
                        {"free_gib", 1 << 20}};
  for (const Case& one : cases) {
    const std::string rest =
        one.key == std::string("memory_gib") ? "" : ", memory_gib: 8, bandwidth_gb_s: 1";
    if (one.key == std::string("bandwidth_gb_s")) continue;
    const auto with = [&](const std::string& value) {
      return absl::StrCat("nodes:\n- {name: a, ", one.key, ": ", value, rest, "}\n");
    };
    EXPECT_EQ(ErrorOf(with(absl::StrFormat("%.0f", one.most))), "") << one.key;
    for (const std::string& value :
         {absl::StrCat(one.most * 1.01), std::string("-1"), std::string(".nan"),
          std::string(".inf"), std::string("1e400"), std::string("''")}) {
      EXPECT_NE(ErrorOf(with(value)), "") << one.key << ": " << value;
    }
  }
}

TEST(ClusterFile, AGraphOfOneWordJoinsWhatItSays) {
  struct Case {
    const char* word;
    std::vector<int> cables;  // of 1, 2, 3, 5 nodes
  };
  const Case cases[] = {{"mesh", {0, 1, 3, 10}},
                        {"ring", {0, 1, 3, 5}},
                        {"chain", {0, 1, 2, 4}},
                        {"star", {0, 1, 2, 4}},
                        {"none", {0, 0, 0, 0}}};
  for (const Case& one : cases) {
    const int counts[] = {1, 2, 3, 5};
    for (int i = 0; i < 4; ++i) {
      const auto cluster = Read(Nodes(counts[i]) + "links: " + one.word + "\n");
      EXPECT_EQ(cluster.request.links_size(), 2 * one.cables[i]) << one.word << counts[i];
      for (const v1::PlannerLink& link : cluster.request.links()) {
        EXPECT_NE(link.from_node_id(), link.to_node_id());
        EXPECT_EQ(link.backends_size(), 2) << "RDMA as well";
      }
    }
  }
}

TEST(ClusterFile, OfTooManyNodesOneWordIsRefusedWithWhatToDo) {
  EXPECT_EQ(ErrorOf(Nodes(512) + "links: chain\n"), "");
  const std::string error = ErrorOf(Nodes(513) + "links: chain\n");
  EXPECT_TRUE(Has(error, "at most 512 nodes") && Has(error, "'lan'")) << error;
  EXPECT_EQ(ErrorOf(Nodes(513) + "lan: {gbit_s: 10}\n"), "");
  EXPECT_TRUE(Has(ErrorOf(Nodes(8193)), "more than 8192 nodes"));
}

TEST(ClusterFile, WhatIsPromisedAndLoadedIsReservedTogether) {
  const DescribedCluster cluster = Read(
      "nodes:\n- {name: a, memory_gib: 64, reserved_gib: 4}\n- {name: b, memory_gib: 64}\n"
      "loaded:\n- {name: chat, gib: {a: 10, b: 2}}\n- {name: code, gib: {a: 0.5}}\n");
  EXPECT_EQ(cluster.request.nodes(0).memory_reserved_bytes(), 14 * kGiB + kGiB / 2);
  EXPECT_EQ(cluster.request.nodes(1).memory_reserved_bytes(), 2 * kGiB);
  ASSERT_EQ(cluster.loaded.size(), 2u);
  EXPECT_EQ(cluster.loaded[1].bytes.at("a"), kGiB / 2);
}

TEST(ClusterFile, FreeOfNoughtIsKnownToBeNothing) {
  EXPECT_EQ(Read("nodes:\n- {name: a, memory_gib: 64, free_gib: 0}\n")
                .request.nodes(0)
                .memory_available_bytes(),
            1u)
      << "0 would mean that it is not known";
}

TEST(ClusterFile, ALinkSaysWhatRunsOverIt) {
  const std::string two = Nodes(2);
  const auto link = [&](const std::string& text) {
    const DescribedCluster cluster = Read(two + "links:\n- {between: [n0, n1], " + text + "}\n");
    const auto& backends = cluster.request.links(0).backends();
    return absl::StrJoin(std::vector<std::string>(backends.begin(), backends.end()), ",");
  };
  EXPECT_EQ(link("medium: thunderbolt"), "ring,jaccl");
  EXPECT_EQ(link("medium: thunderbolt, rdma: false"), "ring");
  EXPECT_EQ(link("medium: ethernet"), "ring");
  EXPECT_EQ(link("medium: ethernet, rdma: true"), "ring,verbs");
  EXPECT_EQ(link("medium: wifi"), "ring");
  EXPECT_EQ(link("medium: none"), "");
  EXPECT_EQ(Read(two + "links:\n- {between: [n0, n1], one_way: true}\n").request.links_size(), 1);
}

TEST(ClusterFile, TheExamplesAndTiersThatAreShippedAreRead) {
  for (const TierFile& tier : TierFiles()) {
    EXPECT_EQ(ErrorOf(std::string(tier.yaml)), "") << tier.name;
  }
}

// Every cut and every single damage of a file that is read: an answer or a refusal, never more.
TEST(ClusterFile, NoDamageIsWorseThanARefusal) {
  const std::string whole(TierFiles().front().yaml);
  std::mt19937 random(3);
  int refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = "{}[]:,-#&*!|>'\"%@`\t\n 0"[random() % 23];
    for (const std::string& yaml : {whole.substr(0, at), damaged}) {
      const auto cluster = ReadClusterFile(yaml);
      if (cluster.ok()) {
        EXPECT_GT(cluster->request.nodes_size(), 0);
        continue;
      }
      ++refused;
      EXPECT_TRUE(absl::IsInvalidArgument(cluster.status())) << cluster.status();
      EXPECT_EQ(std::string(cluster.status().message()).rfind("the cluster's description: ", 0),
                0u);
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(ClusterOf, CablesOnlyWhatRdmaWorksOnAndNamesEachMachine) {
  const auto machines = *ParsePurchase("6x mac-mini-m4-pro-64gb, 2x mac-mini-m4-16gb");
  const v1::PlanRequest ring = ClusterOf(machines);
  const v1::PlanRequest desks = ClusterOf(machines, BeyondFour::kDesks);
  EXPECT_EQ(ring.links_size(), 2 * 6);
  EXPECT_EQ(desks.links_size(), 2 * (6 + 1)) << "a mesh of four, and a pair";
  std::set<std::string> names;
  for (const v1::PlannerNode& node : ring.nodes()) {
    names.insert(node.node_id());
    EXPECT_FALSE(node.is_portable());
  }
  EXPECT_EQ(names.size(), 8u);
  EXPECT_EQ(names.count("mac-mini-m4-pro-6"), 1u);
  for (const v1::PlannerLink& link : ring.links()) {
    EXPECT_EQ(link.from_node_id().rfind("mac-mini-m4-pro-", 0), 0u);
  }
}

}  // namespace
}  // namespace macrame::planner
