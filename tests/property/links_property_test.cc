// What every verdict keeps, on clusters of Macs and Linux machines made from seeds: with cables
// anywhere, faults, unknowns and useless addresses.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/unit/transport/links/link_facts_for_tests.h"
#include "tests/unit/transport/links/mlx_rules_for_tests.h"
#include "transport/links/diagnosis.h"
#include "transport/links/judge.h"
#include "transport/links/mlx_settings.h"

namespace macrame::transport {
namespace {

constexpr uint32_t kSeeds = 1500;

class Maker {
 public:
  explicit Maker(uint64_t seed, bool breaks = true) : random_(seed), breaks_(breaks) {}

  v1::LinkSnapshot Make() {
    const int count = Pick(1, 5);
    std::vector<v1::NodeLinks> nodes;
    for (int i = 0; i < count; ++i) nodes.push_back(GoodMac(absl::StrCat("mac-", i)));
    std::vector<uint32_t> sockets(count, 1);
    int cable = 0;
    for (int a = 0; a < count; ++a) {
      for (int b = a + 1; b < count; ++b) {
        if (Pick(0, 3) == 0) continue;
        const int cables = Pick(0, 2) == 0 ? Pick(2, 6) : 1;
        for (int i = 0; i < cables; ++i) {
          Cable(nodes[a], sockets[a]++, nodes[b], sockets[b]++, ++cable);
        }
      }
    }
    for (int i = 0; i < count; ++i) {
      if (Pick(0, 4) != 0) AddLan(nodes[i], absl::StrCat("192.0.2.", i + 1));
      if (Pick(0, 4) == 0) AddLan(nodes[i], "0.0.0.0");
      if (Pick(0, 4) == 0) AddLan(nodes[i], "127.0.0.1");
      if (Pick(0, 4) == 0) AddLan(nodes[i], absl::StrCat("169.254.7.", i + 1));
      if (Pick(0, 5) == 0) AddBridge(nodes[i]);
      if (breaks_ && Pick(0, 2) == 0) Break(*nodes[i].mutable_facts());
    }
    v1::LinkSnapshot snapshot;
    for (v1::NodeLinks& node : nodes) *snapshot.add_nodes() = std::move(node);
    if (Pick(0, 3) == 0) snapshot.set_mesh_nodes_max(2);  // rings where there could be meshes
    return snapshot;
  }

  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  std::mt19937_64& random() { return random_; }

 private:
  static void AddBridge(v1::NodeLinks& node) {
    v1::LinkInterface& bridge = *node.mutable_facts()->add_interfaces();
    bridge.set_name("bridge100");
    bridge.set_kind(v1::INTERFACE_KIND_BRIDGE);
    bridge.set_is_up(v1::FACT_YES);
    bridge.add_addresses()->set_ip("192.168.2.1");
    bridge.mutable_addresses(0)->set_prefix_length(24);
  }

  void Break(v1::LinkFacts& facts) {
    const auto any = [&]() { return static_cast<v1::Fact>(Pick(0, 2)); };
    for (v1::ThunderboltPort& port : *facts.mutable_ports()) {
      if (Pick(0, 3) == 0) port.set_is_thunderbolt5(any());
      if (Pick(0, 3) == 0) port.set_connected(any());
      if (Pick(0, 4) == 0) port.set_speed_gbps(Pick(0, 1) == 0 ? 40 : 0);
      if (Pick(0, 4) == 0) port.clear_rdma_device();
      for (v1::ThunderboltPeer& peer : *port.mutable_peers()) {
        if (Pick(0, 4) == 0) peer.set_advertises_rdma(any());
        if (Pick(0, 6) == 0) peer.set_devices_between(1);
      }
    }
    for (v1::RdmaDevice& device : *facts.mutable_rdma_devices()) {
      if (Pick(0, 4) == 0) device.set_port_state(static_cast<v1::RdmaPortState>(Pick(0, 4)));
      if (Pick(0, 4) == 0) device.clear_gids();
      if (Pick(0, 4) == 0) device.set_gids_known(false);
    }
    if (Pick(0, 4) == 0) facts.set_rdma_enabled(any());
    if (Pick(0, 4) == 0) facts.set_is_mac(any());
    if (Pick(0, 4) == 0) facts.set_kernel_refuses_rdma(any());
    if (Pick(0, 4) == 0) facts.set_rdma_devices_listed(any());
    if (Pick(0, 6) == 0) facts.clear_os_version();
    if (Pick(0, 8) == 0) facts.set_os_version("26.2");
    if (Pick(0, 6) == 0) facts.clear_rdma_devices();
  }

  std::mt19937_64 random_;
  const bool breaks_;
};

bool LeadsNowhere(const std::string& ip) {
  return ip.empty() || absl::StartsWith(ip, "0.") || absl::StartsWith(ip, "127.") || ip == "::" ||
         ip == "::1";
}

// R-NET-3: a wildcard or a loopback address is never handed to another machine.
TEST(LinksProperty, NobodyIsSentToAnAddressThatLeadsNowhere) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const v1::ClusterLinks links = JudgeLinks(Maker(seed).Make());
    for (const v1::NodePath& path : links.paths()) {
      ASSERT_FALSE(LeadsNowhere(path.to_ip())) << seed << path.DebugString();
    }
    const v1::GroupVerdict& group = links.group();
    ASSERT_TRUE(group.rendezvous_ip().empty() || !LeadsNowhere(group.rendezvous_ip())) << seed;
    ASSERT_FALSE(absl::StartsWith(group.rendezvous_ip(), "192.168.2.")) << "bridge100 " << seed;
    for (const v1::RankAddresses& rank : group.ring_addresses()) {
      for (const std::string& ip : rank.ips()) ASSERT_FALSE(LeadsNowhere(ip)) << seed;
    }
  }
}

TEST(LinksProperty, TheMatrixIsSquareAndBothEndsOfACellNameOneCable) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const v1::LinkSnapshot snapshot = Maker(seed).Make();
    const v1::ClusterLinks links = JudgeLinks(snapshot);
    const v1::GroupVerdict& group = links.group();
    std::set<std::string> ids(group.node_ids().begin(), group.node_ids().end());
    ASSERT_EQ(static_cast<int>(ids.size()), snapshot.nodes_size()) << "each node is one rank";
    ASSERT_EQ(group.node_ids_size(), snapshot.nodes_size());
    for (int row = 0; row < group.device_matrix_size(); ++row) {
      ASSERT_EQ(group.device_matrix(row).cells_size(), group.node_ids_size()) << seed;
      ASSERT_TRUE(group.device_matrix(row).cells(row).devices().empty()) << "nobody to itself";
      for (int column = 0; column < group.node_ids_size(); ++column) {
        const auto& here = group.device_matrix(row).cells(column).devices();
        const auto& there = group.device_matrix(column).cells(row).devices();
        ASSERT_EQ(here.size(), there.size()) << seed;
        for (int i = 0; i < here.size(); ++i) {
          const bool is_cable = std::any_of(
              links.links().begin(), links.links().end(), [&](const v1::LinkVerdict& link) {
                // A device that is not listed is named after its interface.
                const auto is_of = [](const v1::LinkEnd& end, const std::string& device) {
                  return end.rdma_device().empty() ? "rdma_" + end.interface_name() == device
                                                   : end.rdma_device() == device;
                };
                const auto joins = [&](const v1::LinkEnd& a, const v1::LinkEnd& b) {
                  return a.node_id() == group.node_ids(row) && is_of(a, here[i]) &&
                         b.node_id() == group.node_ids(column) && is_of(b, there[i]);
                };
                return joins(link.a(), link.b()) || joins(link.b(), link.a());
              });
          ASSERT_TRUE(is_cable) << seed << " " << here[i] << " " << there[i];
        }
      }
    }
  }
}

// Whatever is cabled twice: MLX takes the matrix that it is given, and both ring addresses and
// exported host files hold what mlx.launch asks for.
TEST(LinksProperty, MlxTakesEveryMatrixThatItIsGiven) {
  int meshes = 0, rings = 0, trimmed = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const v1::ClusterLinks links = JudgeLinks(Maker(seed, /*breaks=*/seed % 4 == 0).Make());
    const v1::GroupVerdict& group = links.group();
    const std::vector<std::string> names(group.node_ids().begin(), group.node_ids().end());
    for (const v1::BackendChoice& choice : group.choices()) {
      if (!choice.usable()) continue;
      const std::string backend = choice.backend() == "ring"    ? "ring"
                                  : choice.topology() == "ring" ? "jaccl-ring"
                                                                : "jaccl";
      const auto text = MlxHostfile(group, backend, names);
      if (!text.ok()) continue;  // nothing that leads to rank 0 is known
      const auto faults = CheckHostfile(*text);
      ASSERT_TRUE(faults.empty()) << seed << " " << faults[0].message << "\n" << *text;
    }
    const bool is_ring = group.verdict() == "jaccl-ring";
    if (!is_ring && group.verdict() != "jaccl-mesh") continue;
    ASSERT_EQ(WhyMlxRefuses(group.device_matrix(), is_ring), "") << seed << group.DebugString();
    (is_ring ? rings : meshes) += 1;
    trimmed += std::any_of(
        group.warnings().begin(), group.warnings().end(),
        [](const v1::Reason& warning) { return warning.code() == "SECOND_CABLE_UNUSED"; });
  }
  // The seeds make enough of each for the above to mean something.
  EXPECT_GT(meshes, 50);
  EXPECT_GT(rings, 50);
  EXPECT_GT(trimmed, 50);
}

// Frames of macOS 26.2 and of later ones never meet.
TEST(LinksProperty, JacclNeverJoinsTwoSizesOfFrames) {
  int mixed = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    Maker maker(seed, /*breaks=*/false);
    v1::LinkSnapshot snapshot = maker.Make();
    std::set<std::string> seen;
    for (v1::NodeLinks& node : *snapshot.mutable_nodes()) {
      node.mutable_facts()->set_os_version(maker.Pick(0, 1) == 0 ? "26.2" : "26.3");
      seen.insert(node.facts().os_version());
    }
    const v1::ClusterLinks links = JudgeLinks(snapshot);
    mixed += seen.size() == 2;
    for (const v1::BackendChoice& choice : links.group().choices()) {
      ASSERT_FALSE(seen.size() == 2 && choice.backend() == "jaccl" && choice.usable()) << seed;
    }
  }
  EXPECT_GT(mixed, 50);
}

// What can't be read makes nothing possible and rules nothing out for good.
TEST(LinksProperty, LessKnowledgeNeverMakesALinkUsableAndSilenceIsNeverNo) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    // Half of them without faults: what one machine no longer says, another may still deny.
    Maker maker(seed, /*breaks=*/seed % 2 == 0);
    v1::LinkSnapshot snapshot = maker.Make();
    const v1::ClusterLinks before = JudgeLinks(snapshot);
    v1::LinkFacts& facts =
        *snapshot.mutable_nodes(maker.Pick(0, snapshot.nodes_size() - 1))->mutable_facts();
    facts.set_rdma_enabled(v1::FACT_UNKNOWN);
    facts.set_rdma_ctl_missing(false);
    for (v1::RdmaDevice& device : *facts.mutable_rdma_devices()) {
      device.set_port_state(v1::RDMA_PORT_STATE_UNKNOWN);
    }
    const v1::ClusterLinks after = JudgeLinks(snapshot);
    ASSERT_EQ(before.links_size(), after.links_size()) << seed;
    for (int i = 0; i < after.links_size(); ++i) {
      const v1::LinkVerdict& was = before.links(i);
      const v1::LinkVerdict& now = after.links(i);
      if (was.rdma_usable() != v1::FACT_YES) {
        ASSERT_NE(now.rdma_usable(), v1::FACT_YES) << seed << now.DebugString();
      } else if (seed % 2 == 1) {
        ASSERT_NE(now.rdma_usable(), v1::FACT_NO) << seed << now.DebugString();
      }
    }
  }
}

TEST(LinksProperty, TheOrderOfNewsDoesNotMatter) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    Maker maker(seed);
    v1::LinkSnapshot snapshot = maker.Make();
    const std::string first = JudgeLinks(snapshot).SerializeAsString();
    std::shuffle(snapshot.mutable_nodes()->pointer_begin(), snapshot.mutable_nodes()->pointer_end(),
                 maker.random());
    ASSERT_EQ(JudgeLinks(snapshot).SerializeAsString(), first) << seed;
  }
}

// Who reads the verdict and who goes by its choices never do two things.
TEST(LinksProperty, TheVerdictIsWhatTheUsableChoicesSay) {
  int met_over_cables = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const v1::GroupVerdict group = JudgeLinks(Maker(seed, seed % 2 == 0).Make()).group();
    bool mesh = false, ring = false;
    for (const v1::BackendChoice& choice : group.choices()) {
      if (choice.backend() == "ring" || !choice.usable()) continue;
      (choice.topology() == "mesh" ? mesh : ring) = true;
      ASSERT_TRUE(choice.reasons().empty()) << seed << choice.DebugString();
    }
    const bool is_rdma = group.verdict() == "jaccl-mesh" || group.verdict() == "jaccl-ring" ||
                         group.verdict() == "verbs";
    ASSERT_EQ(is_rdma, mesh || ring) << seed << group.DebugString();
    ASSERT_EQ(group.verdict() == "jaccl-ring", ring && !mesh && is_rdma) << seed;
    // One address for all, or one for each; never both, and nobody calls a wildcard.
    const bool is_one = !group.rendezvous_ip().empty(), is_each = !group.rendezvous_ips().empty();
    ASSERT_FALSE(is_one && is_each) << seed;
    ASSERT_TRUE(is_one || is_each || !is_rdma) << seed;
    if (is_each) {
      ASSERT_EQ(group.rendezvous_ips_size(), group.node_ids_size()) << seed;
    }
    for (int rank = 1; rank < group.rendezvous_ips_size(); ++rank) {
      ASSERT_FALSE(group.rendezvous_ips(rank).empty()) << seed;
      ASSERT_NE(group.rendezvous_ips(rank), "0.0.0.0") << seed;
    }
    met_over_cables += is_rdma && is_each;
  }
  EXPECT_GT(met_over_cables, 20) << "the seeds make some that meet over cables alone";
}

// Whatever the cluster, the doctor comes to an end and says why RDMA is not there.
TEST(LinksProperty, EveryVerdictShortOfRdmaHasAReason) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const v1::LinkSnapshot snapshot = Maker(seed).Make();
    const v1::ClusterLinks links = JudgeLinks(snapshot);
    const std::string& verdict = links.group().verdict();
    if (verdict == "ring-only" || verdict == "none") {
      ASSERT_FALSE(links.group().reasons().empty()) << seed << links.group().DebugString();
    }
    const v1::Diagnosis diagnosis = Diagnose(snapshot, links, {}, {});
    ASSERT_FALSE(diagnosis.conclusion().empty()) << seed;
    ASSERT_FALSE(DiagnosisMarkdown(diagnosis).empty());
  }
}

}  // namespace
}  // namespace macrame::transport
