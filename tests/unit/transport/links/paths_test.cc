// Which way one node takes to another, from what is known and what was measured; shapes of cables;
// what a report leaves out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "proto/reasons.h"
#include "tests/unit/transport/links/link_snapshots_for_tests.h"
#include "transport/links/diagnosis.h"
#include "transport/links/judge.h"
#include "transport/links/refusals.h"
#include "transport/links/ring_search.h"

namespace macrame::transport {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// Two machines that are no Macs, with interfaces as given.
struct Network {
  const char* name;
  v1::InterfaceKind kind;
  const char* base;  // "10.1.0."
  uint32_t prefix = 24;
};

v1::LinkSnapshot TwoWith(const std::vector<Network>& networks) {
  v1::LinkSnapshot snapshot;
  for (int i = 0; i < 2; ++i) {
    v1::NodeLinks& node = *snapshot.add_nodes();
    node.set_node_id(i == 0 ? "one" : "two");
    v1::LinkFacts& facts = *node.mutable_facts();
    facts.set_node_id(node.node_id());
    facts.set_hostname(node.node_id());
    facts.set_is_mac(v1::FACT_NO);
    for (const Network& network : networks) {
      v1::LinkInterface& interface = *facts.add_interfaces();
      interface.set_name(network.name);
      interface.set_kind(network.kind);
      interface.set_is_up(v1::FACT_YES);
      v1::NodeAddress& address = *interface.add_addresses();
      address.set_ip(absl::StrCat(network.base, i + 1));
      address.set_prefix_length(network.prefix);
    }
  }
  return snapshot;
}

void Measure(v1::LinkSnapshot& snapshot, const std::string& base, double bytes_per_second,
             double round_trip_us = 100) {
  v1::LinkMeasurement& measured = *snapshot.mutable_nodes(0)->add_measurements();
  measured.set_to_node_id("two");
  measured.set_from_ip(base + "1");
  measured.set_to_ip(base + "2");
  measured.set_bandwidth_bytes_per_second(bytes_per_second);
  measured.set_round_trip_us_p50(round_trip_us);
}

std::string Taken(const v1::LinkSnapshot& snapshot, const v1::ClusterLinks* previous = nullptr) {
  const v1::ClusterLinks links = JudgeLinks(snapshot, previous);
  const v1::NodePath* path = PathBetween(links, "one", "two");
  return path == nullptr ? "" : path->to_ip();
}

constexpr auto kEthernet = v1::INTERFACE_KIND_ETHERNET;
constexpr auto kWifi = v1::INTERFACE_KIND_WIFI;
constexpr auto kThunderbolt = v1::INTERFACE_KIND_THUNDERBOLT;

TEST(Paths, TheKindDecidesUntilSomethingIsMeasured) {
  EXPECT_EQ(Taken(TwoWith({{"wl0", kWifi, "10.2.0."}, {"eth0", kEthernet, "10.1.0."}})),
            "10.1.0.2");
  EXPECT_EQ(Taken(TwoWith({{"eth0", kEthernet, "10.1.0."}, {"tb0", kThunderbolt, "10.3.0."}})),
            "10.3.0.2");
  EXPECT_EQ(Taken(TwoWith({{"wl0", kWifi, "10.2.0."}})), "10.2.0.2");
  EXPECT_EQ(Taken(TwoWith({})), "");
}

TEST(Paths, AFarFasterWayIsTakenWhateverItsKind) {
  v1::LinkSnapshot snapshot =
      TwoWith({{"eth0", kEthernet, "10.1.0."}, {"tb0", kThunderbolt, "10.3.0."}});
  Measure(snapshot, "10.3.0.", 100e6);  // a bad cable
  Measure(snapshot, "10.1.0.", 1.2e9);
  EXPECT_EQ(Taken(snapshot), "10.1.0.2");
  // But never Wi-Fi, which is not steady enough to be compared by one figure.
  v1::LinkSnapshot air = TwoWith({{"eth0", kEthernet, "10.1.0."}, {"wl0", kWifi, "10.2.0."}});
  Measure(air, "10.1.0.", 1e6);
  Measure(air, "10.2.0.", 1e9);
  EXPECT_EQ(Taken(air), "10.1.0.2");
}

TEST(Paths, TheWayInUseIsKeptWhileItIsAboutAsGood) {
  const auto made = [](double first, double second) {
    v1::LinkSnapshot snapshot =
        TwoWith({{"eth0", kEthernet, "10.1.0."}, {"eth1", kEthernet, "10.4.0."}});
    Measure(snapshot, "10.1.0.", first);
    Measure(snapshot, "10.4.0.", second);
    return snapshot;
  };
  const v1::ClusterLinks before = JudgeLinks(made(1e9, 1e6));
  ASSERT_EQ(PathBetween(before, "one", "two")->to_ip(), "10.1.0.2");
  EXPECT_EQ(Taken(made(1e9, 1.4e9), &before), "10.1.0.2") << "71 of 100";
  EXPECT_EQ(Taken(made(1e9, 8e9), &before), "10.4.0.2") << "an eighth";
  EXPECT_EQ(Taken(made(1e9, 8e9)), "10.4.0.2");
  // What carries nothing is not kept.
  v1::LinkSnapshot dead = made(1e9, 1e9);
  *dead.mutable_nodes(0)->mutable_measurements(0)->mutable_failure() =
      MakeReason(reasons::kLinkUnreachable, "nothing passes");
  EXPECT_EQ(Taken(dead, &before), "10.4.0.2");
}

TEST(Paths, UselessAddressesAreNoWay) {
  EXPECT_EQ(Taken(TwoWith({{"lo", v1::INTERFACE_KIND_LOOPBACK, "127.0.0."}})), "");
  EXPECT_EQ(Taken(TwoWith({{"eth0", kEthernet, "127.0.1."}})), "");
  EXPECT_EQ(Taken(TwoWith({{"eth0", kEthernet, "224.0.0."}})), "");
  EXPECT_EQ(Taken(TwoWith({{"br0", v1::INTERFACE_KIND_BRIDGE, "10.5.0."}})), "");
  EXPECT_EQ(Taken(TwoWith({{"eth0", kEthernet, "10.1.0.", 32}})), "") << "two subnets";
  v1::LinkSnapshot down = TwoWith({{"eth0", kEthernet, "10.1.0."}, {"wl0", kWifi, "10.2.0."}});
  FactsOf(down, 1).mutable_interfaces(0)->set_is_up(v1::FACT_NO);
  EXPECT_EQ(Taken(down), "10.2.0.2");
  v1::LinkSnapshot unplugged = TwoWith({{"eth0", kEthernet, "10.1.0."}});
  FactsOf(unplugged, 0).mutable_interfaces(0)->set_has_carrier(v1::FACT_NO);
  EXPECT_EQ(Taken(unplugged), "");
  v1::LinkSnapshot twins = TwoWith({{"eth0", kEthernet, "10.1.0."}});
  FactsOf(twins, 1).mutable_interfaces(0)->mutable_addresses(0)->set_ip("10.1.0.1");
  EXPECT_EQ(Taken(twins), "") << "two machines that hold one address";
  EXPECT_EQ(Taken(TwoWith({{"eth1", kEthernet, "169.254.7."}, {"wl0", kWifi, "10.2.0."}})),
            "169.254.7.2")
      << "a wire before the air";
  EXPECT_EQ(Taken(TwoWith({{"eth1", kEthernet, "169.254.7."}, {"eth0", kEthernet, "10.1.0."}})),
            "10.1.0.2");
}

TEST(Paths, AVpnIsUsedWhenThatIsAllowedAndSaidNotToBeElse) {
  v1::LinkSnapshot snapshot = TwoWith({{"utun3", v1::INTERFACE_KIND_VPN, "100.64.0."}});
  EXPECT_EQ(Taken(snapshot), "");
  snapshot.set_allow_vpn(true);
  EXPECT_EQ(Taken(snapshot), "100.64.0.2");
  v1::LinkSnapshot beside =
      TwoWith({{"utun3", v1::INTERFACE_KIND_VPN, "100.64.0."}, {"eth0", kEthernet, "10.1.0."}});
  const v1::ClusterLinks links = JudgeLinks(beside);
  const v1::NodePath* path = PathBetween(links, "one", "two");
  EXPECT_EQ(path->to_ip(), "10.1.0.2");
  EXPECT_THAT(CodesIn(path->rejected()), Contains(reasons::kVpnNotUsed));
  EXPECT_THAT(path->rejected(0).message(), HasSubstr("100.64.0.1 (utun3) to 100.64.0.2 (utun3)"));
}

TEST(Paths, AWayThatIsNotTakenSaysWhatBothWouldCarry) {
  v1::LinkSnapshot snapshot =
      TwoWith({{"eth0", kEthernet, "10.1.0."}, {"eth1", kEthernet, "10.4.0."}});
  Measure(snapshot, "10.1.0.", 1.1e9);
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  const v1::NodePath* path = PathBetween(links, "one", "two");
  ASSERT_EQ(path->rejected_size(), 1);
  EXPECT_EQ(path->rejected(0).message(),
            "10.4.0.1 (eth1) to 10.4.0.2 (eth1): Ethernet, 117 MB/s expected; taken: Ethernet, "
            "1100 MB/s");
}

// ---- shapes

Adjacency Random(std::mt19937& random, size_t count, uint32_t percent) {
  Adjacency graph(count, std::vector<bool>(count, false));
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = a + 1; b < count; ++b) {
      graph[a][b] = graph[b][a] = random() % 100 < percent;
    }
  }
  return graph;
}

// By trying every order.
bool HasRing(const Adjacency& graph) {
  std::vector<size_t> order;
  for (size_t i = 1; i < graph.size(); ++i) order.push_back(i);
  do {
    bool is_ring = graph[0][order.front()] && graph[order.back()][0];
    for (size_t i = 0; is_ring && i + 1 < order.size(); ++i) {
      is_ring = graph[order[i]][order[i + 1]];
    }
    if (is_ring) return true;
  } while (std::next_permutation(order.begin(), order.end()));
  return false;
}

TEST(RingSearch, FindsARingExactlyWhereThereIsOne) {
  std::mt19937 random(4711);
  int found = 0;
  for (int i = 0; i < 600; ++i) {
    const Adjacency graph = Random(random, 3 + i % 5, 20 + random() % 70);
    const auto ring = FindRing(graph);
    ASSERT_EQ(ring.has_value(), HasRing(graph)) << i;
    if (!ring) continue;
    ++found;
    ASSERT_EQ(ring->size(), graph.size());
    ASSERT_EQ(ring->front(), 0);
    std::set<int> seen(ring->begin(), ring->end());
    ASSERT_EQ(seen.size(), graph.size());
    for (size_t k = 0; k < ring->size(); ++k) {
      ASSERT_TRUE(graph[(*ring)[k]][(*ring)[(k + 1) % ring->size()]]);
    }
  }
  EXPECT_GT(found, 100);
}

// Two halves that one node joins: no ring, and very many ways to look for it.
TEST(RingSearch, GivesUpRatherThanSearchWithoutEnd) {
  constexpr size_t kHalf = 14;
  Adjacency graph(2 * kHalf + 1, std::vector<bool>(2 * kHalf + 1, false));
  const auto join = [&](size_t begin, size_t end) {
    for (size_t a = begin; a < end; ++a) {
      for (size_t b = begin; b < end; ++b) graph[a][b] = a != b;
    }
  };
  join(0, kHalf + 1);
  join(kHalf, 2 * kHalf + 1);
  EXPECT_FALSE(FindRing(graph).has_value());
}

TEST(RingSearch, ShapesAreNamed) {
  const auto shape = [](size_t count, const std::vector<std::pair<int, int>>& edges) {
    Adjacency graph(count, std::vector<bool>(count, false));
    for (const auto& [a, b] : edges) graph[a][b] = graph[b][a] = true;
    return GraphOf(graph);
  };
  EXPECT_EQ(shape(0, {}), CableGraph::kSingle);
  EXPECT_EQ(shape(1, {}), CableGraph::kSingle);
  EXPECT_EQ(shape(2, {}), CableGraph::kDisconnected);
  EXPECT_EQ(shape(2, {{0, 1}}), CableGraph::kPair);
  EXPECT_EQ(shape(3, {{0, 1}, {1, 2}, {0, 2}}), CableGraph::kMesh);
  EXPECT_EQ(shape(3, {{0, 1}, {1, 2}}), CableGraph::kChain);
  EXPECT_EQ(shape(4, {{0, 1}, {1, 2}, {2, 3}, {3, 0}}), CableGraph::kRing);
  EXPECT_EQ(shape(4, {{0, 1}, {0, 2}, {0, 3}}), CableGraph::kStar);
  EXPECT_EQ(shape(4, {{0, 1}, {2, 3}}), CableGraph::kDisconnected);
  EXPECT_EQ(shape(4, {{0, 1}, {1, 2}, {2, 3}, {3, 0}, {0, 2}}), CableGraph::kOther);
  EXPECT_FALSE(FindRing({}).has_value());
}

// ---- refusals

TEST(Refusals, WhatChangedIsSaidWithItsMachine) {
  v1::LinkSnapshot snapshot = GoodPair();
  const v1::Reason why = MakeReason(reasons::kConnectFailed, "rank 1 did not connect");
  const v1::Reason symptom = MakeReason(reasons::kPeerLost, "rank 0 is gone");
  const auto refusal = MakeRefusal(snapshot, {"mini-b", "mini-a", "mini-b"}, "jaccl", why, symptom);
  EXPECT_EQ(RefusalKey(refusal), "refusal/jaccl/mini-a,mini-b");
  EXPECT_EQ(refusal.symptom().code(), reasons::kPeerLost);
  EXPECT_FALSE(MakeRefusal(snapshot, {"mini-a"}, "jaccl", why, why).has_symptom());
  const auto trigger = [&](auto change) {
    v1::LinkSnapshot later = snapshot;
    change(FactsOf(later, 1));
    return TriggerToRetry(refusal, later).value_or("");
  };
  EXPECT_EQ(trigger([](v1::LinkFacts&) {}), "");
  EXPECT_EQ(trigger([](v1::LinkFacts& facts) { facts.set_os_build("25F1"); }),
            "mini-b went from build 25E100 to 25F1");
  EXPECT_EQ(trigger([](v1::LinkFacts& facts) { facts.set_mlx_version("0.33"); }),
            "mini-b went from MLX 0.32.4 to 0.33");
  EXPECT_EQ(trigger([](v1::LinkFacts& facts) { facts.set_hardware_id("x"); }),
            "the machine of mini-b was replaced");
  EXPECT_EQ(trigger([](v1::LinkFacts& facts) { facts.add_rdma_devices()->set_name("rdma_en9"); }),
            "rdma_en9 appeared on mini-b");
  // What can't be read now is no change.
  EXPECT_EQ(trigger([](v1::LinkFacts& facts) {
              facts.clear_os_build();
              facts.clear_mlx_version();
              facts.clear_hardware_id();
              facts.set_rdma_devices_listed(v1::FACT_UNKNOWN);
              facts.clear_rdma_devices();
            }),
            "");
  v1::LinkSnapshot without = snapshot;
  without.clear_nodes();
  EXPECT_FALSE(TriggerToRetry(refusal, without).has_value()) << "it is away, not changed";
}

TEST(Refusals, ANewerListHelpsOnlyTheMachinesThatItNames) {
  v1::LinkSnapshot snapshot = GoodPair();
  FactsOf(snapshot, 0).set_machine_model("Mac16,11");
  snapshot.mutable_support_list()->set_date("2026-10-01");
  const v1::Reason why = MakeReason(reasons::kTb4Controller, "too old", "mini-a");
  const auto refusal = MakeRefusal(snapshot, {"mini-a"}, "jaccl", why, why);
  const auto retried = [&](auto change) {
    v1::LinkSnapshot later = snapshot;
    v1::SupportList& list = *later.mutable_support_list();
    list.set_date("2026-11-01");
    v1::SupportEntry& entry = *list.add_entries();
    entry.set_subject("rdma");
    entry.set_supported(true);
    entry.add_machine_models("Mac16,11");
    change(list, entry);
    return TriggerToRetry(refusal, later).has_value();
  };
  using List = v1::SupportList;
  using Entry = v1::SupportEntry;
  EXPECT_TRUE(retried([](List&, Entry&) {}));
  EXPECT_FALSE(retried([](List& list, Entry&) { list.set_date("2026-10-01"); })) << "not newer";
  EXPECT_FALSE(retried([](List&, Entry& entry) { entry.set_supported(false); }));
  EXPECT_FALSE(retried([](List&, Entry& entry) { entry.set_subject("metal"); }));
  EXPECT_FALSE(retried([](List&, Entry& entry) { entry.set_machine_models(0, "Mac14,3"); }));
  EXPECT_FALSE(retried([](List&, Entry& entry) { entry.add_chips("Apple M9"); }));
  EXPECT_FALSE(retried([](List&, Entry& entry) { entry.set_os_version_min("27.0"); }));
  EXPECT_TRUE(retried([](List&, Entry& entry) { entry.set_os_version_min("26.4"); }));
  EXPECT_FALSE(retried([](List&, Entry& entry) { entry.set_mlx_version_min("0.33"); }));
}

// ---- reports

TEST(CutSecrets, NothingOfPeopleOrMachinesIsLeft) {
  const std::pair<const char*, const char*> cuts[] = {
      {"ether a4:83:e7:0:1f:2b up", "ether [MAC] up"},
      {"Serial Number: C02ABC123 ok", "Serial Number: [cut] ok"},
      {"\"IOPlatformSerialNumber\" = \"C02ABC123\"", "\"IOPlatformSerialNumber\" = \"[cut]\""},
      {"domain 0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0.", "domain [UUID]."},
      {"/Users/jane/models and /home/bob", "/Users/[user]/models and /home/[user]"},
      {"10.0.0.1 on en2 at 12:30:45", "10.0.0.1 on en2 at 12:30:45"},
      {"", ""}};
  for (const auto& [text, cut] : cuts) EXPECT_EQ(CutSecrets(text), cut);
}

// The report is a JSON document that goes through as text.
TEST(CutSecrets, AJsonDocumentStaysOne) {
  for (const std::string text :
       {"Serial Number: C02ABC123", "\"IOPlatformSerialNumber\" = \"C02ABC123\"",
        "Serial Number (system): C02\nHardware UUID: 0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0\n",
        "no such file: \"/Users/jane\"", "/Users/jane\nnext", "/Users/jane\\",
        "serial=", "serial: \"\"", "a4:83:e7:00:1f:2b"}) {
    const nlohmann::json document = {{"outputs", {{{"text", text}}, {{"text", "last"}}}}};
    for (const int indent : {-1, 2}) {
      const std::string cut = CutSecrets(document.dump(indent));
      const auto read = nlohmann::json::parse(cut, nullptr, /*allow_exceptions=*/false);
      ASSERT_FALSE(read.is_discarded()) << cut;
      EXPECT_EQ(read["outputs"].size(), 2u);
      EXPECT_EQ(read["outputs"][1]["text"], "last");
      EXPECT_THAT(cut, Not(HasSubstr("C02")));
      EXPECT_THAT(cut, Not(HasSubstr("jane")));
    }
  }
}

TEST(CutSecrets, LongTextsArePutThrough) {
  const std::string text = "Serial Number: " + std::string(20'000, 'x') + " end";
  EXPECT_EQ(CutSecrets(text), "Serial Number: [cut] end");
}

TEST(Report, HoldsTheVerdictTheFindingsAndNoSecrets) {
  v1::LinkSnapshot snapshot = GoodPair();
  FactsOf(snapshot, 0).set_rdma_enabled(v1::FACT_NO);
  FactsOf(snapshot, 0).set_rdma_ctl_text("disabled for /Users/jane, serial: C02ABC123");
  const std::string text = DiagnosisMarkdown(Diagnose(snapshot, JudgeLinks(snapshot), {}, {}));
  EXPECT_THAT(text, HasSubstr("# Links of mini-a, mini-b"));
  EXPECT_THAT(text, HasSubstr("Verdict: ring-only; graph of cables: pair"));
  EXPECT_THAT(text, HasSubstr("### RDMA_DISABLED_LOCAL (degraded)"));
  EXPECT_THAT(text, HasSubstr("to do (in person)"));
  EXPECT_THAT(text, HasSubstr("/Users/[user]"));
  EXPECT_THAT(text, Not(HasSubstr("jane")));
  EXPECT_THAT(text, Not(HasSubstr("C02ABC123")));
  EXPECT_THAT(text, HasSubstr("RDMA is not tried again until"));
}

}  // namespace
}  // namespace macrame::transport
