// What links make of nodes: parts that reach each other, gangs that can meet, nodes that may change
// places; against the plain definitions, on made links.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "planner/link_costs.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

constexpr Fabric kTcp;
constexpr Fabric kMesh{Backend::kJaccl, Topology::kMesh};
constexpr Fabric kRing{Backend::kJaccl, Topology::kRing};
constexpr Fabric kVerbs{Backend::kVerbs, Topology::kMesh};
constexpr Fabric kFabrics[] = {kTcp, kMesh, kRing, kVerbs};

// LinkCosts refers to the candidates, and these to the nodes.
struct Made {
  v1::PlanRequest request;
  std::vector<Candidate> candidates;
  std::optional<LinkCosts> links;

  explicit Made(v1::PlanRequest from) : request(std::move(from)) {
    for (const v1::PlannerNode& node : request.nodes()) candidates.push_back(CandidateOf(node));
    links.emplace(request, candidates);
  }
};

v1::PlanRequest RandomRequest(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](uint64_t low, uint64_t high) { return low + random() % (high - low + 1); };
  v1::PlanRequest request;
  const int count = static_cast<int>(pick(1, 6));
  for (int i = 0; i < count; ++i) {
    v1::PlannerNode& node = *request.add_nodes();
    node = Node(absl::StrCat("node-", i), 8 * kGiB);
    if (pick(0, 7) == 0) node.mutable_traits()->add_backends("jaccl");  // no TCP between ranks
  }
  if (pick(0, 2) == 0) {  // pairs that nothing names are apart, or as on Wi-Fi
    request.mutable_default_link()->set_medium(v1::LINK_MEDIUM_WIFI);
    if (pick(0, 1) == 0) request.mutable_default_link()->add_backends("ring");
  }
  request.set_mesh_ranks_max(static_cast<uint32_t>(pick(0, 9)));
  for (uint64_t links = pick(0, 60); links > 0; --links) {
    v1::PlannerLink& link = *request.add_links();
    link.set_from_node_id(absl::StrCat("node-", pick(0, 6)));  // some are of nobody
    link.set_to_node_id(absl::StrCat("node-", pick(0, 6)));
    link.set_medium(static_cast<v1::LinkMedium>(pick(0, 5)));
    link.set_one_way(pick(0, 20) == 0);
    if (pick(0, 2) == 0) link.set_round_trip_us(static_cast<double>(pick(1, 900)));
    for (const char* backend : {"ring", "jaccl", "verbs", "smoke"}) {
      if (pick(0, 2) > 0) link.add_backends(backend);
    }
    if (pick(0, 2) == 0) continue;
    v1::PlannerLink back = link;
    back.set_from_node_id(link.to_node_id());
    back.set_to_node_id(link.from_node_id());
    *request.add_links() = back;
  }
  return request;
}

TEST(LinkLaws, WhatJoinsTwoJoinsThemBothWays) {
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Made made(RandomRequest(seed));
    const LinkCosts& links = *made.links;
    const size_t count = made.candidates.size();
    for (size_t a = 0; a < count; ++a) {
      for (size_t b = 0; b < count; ++b) {
        if (a == b) continue;
        EXPECT_EQ(links.Reaches(a, b), links.Reaches(b, a));
        EXPECT_EQ(links.HasTcp(a, b), links.HasTcp(b, a));
        EXPECT_EQ(links.IsWireless(a, b), links.IsWireless(b, a));
        EXPECT_EQ(links.IsVpn(a, b), links.IsVpn(b, a));
        EXPECT_EQ(links.IsOneWay(a, b), links.IsOneWay(b, a));
        if (links.IsOneWay(a, b)) {
          EXPECT_FALSE(links.Reaches(a, b));
        }
        if (links.HasTcp(a, b)) {
          EXPECT_TRUE(links.Reaches(a, b));
        }
        for (const Backend backend : {Backend::kJaccl, Backend::kVerbs}) {
          const auto& near = links.RdmaNeighbours(a, backend);
          EXPECT_EQ(links.HasRdma(a, b, backend), links.HasRdma(b, a, backend));
          EXPECT_EQ(links.HasRdma(a, b, backend), std::binary_search(near.begin(), near.end(), b));
        }
      }
    }
  }
}

TEST(LinkLaws, GroupsHoldNodesThatAllReachEachOtherAndNoneCouldJoin) {
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Made made(RandomRequest(seed));
    const LinkCosts& links = *made.links;
    std::set<size_t> covered;
    for (const std::vector<size_t>& group : links.TcpGroups()) {
      EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
      covered.insert(group.begin(), group.end());
      const auto joins = [&](size_t node) {
        return std::all_of(group.begin(), group.end(), [&](size_t member) {
          return member == node || links.HasTcp(member, node);
        });
      };
      for (size_t node = 0; node < made.candidates.size(); ++node) {
        const bool is_member = std::binary_search(group.begin(), group.end(), node);
        EXPECT_EQ(joins(node), is_member) << "node " << node;
      }
    }
    EXPECT_EQ(covered.size(), made.candidates.size()) << "each node is in some group";
  }
}

// May these, in this order, be a gang? By the words of the header.
bool MayMeet(const LinkCosts& links, const Fabric& fabric, const std::vector<size_t>& nodes) {
  const size_t count = nodes.size();
  if (fabric.is_rdma() && !fabric.is_ring() && count > links.mesh_ranks_max()) return false;
  if (fabric.is_ring() && count < 3) return false;
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < count; ++j) {
      if (i == j) continue;
      if (!links.Reaches(nodes[i], nodes[j])) return false;
      const bool neighbours = (i + 1) % count == j || (j + 1) % count == i;
      if (fabric.is_ring() && !neighbours) continue;
      const bool joined = fabric.is_rdma() ? links.HasRdma(nodes[i], nodes[j], fabric.backend)
                                           : links.HasTcp(nodes[i], nodes[j]);
      if (!joined) return false;
    }
  }
  return true;
}

TEST(LinkLaws, AGangIsAllowedWhereItsFabricJoinsThoseWhoTalk) {
  std::map<std::string, int> allowed;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Made made(RandomRequest(seed));
    std::mt19937_64 random(seed);
    std::vector<size_t> nodes(made.candidates.size());
    for (size_t i = 0; i < nodes.size(); ++i) nodes[i] = i;
    for (int times = 0; times < 12; ++times) {
      std::shuffle(nodes.begin(), nodes.end(), random);
      const std::vector<size_t> some(nodes.begin(), nodes.begin() + 1 + random() % nodes.size());
      for (const Fabric& fabric : kFabrics) {
        const bool allows = made.links->Allows(fabric, some);
        EXPECT_EQ(allows, MayMeet(*made.links, fabric, some)) << FabricName(fabric);
        if (some.size() > 1) allowed[FabricName(fabric)] += allows ? 1 : 0;
      }
    }
  }
  for (const Fabric& fabric : kFabrics) {
    EXPECT_GT(allowed[FabricName(fabric)], 20) << FabricName(fabric) << " hardly ever came about";
  }
}

TEST(LinkLaws, NodesThatAreAlikeMayChangePlaces) {
  int alike = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Made made(RandomRequest(seed));
    const LinkCosts& links = *made.links;
    const size_t count = made.candidates.size();
    std::vector<size_t> all(count);
    for (size_t i = 0; i < count; ++i) all[i] = i;
    for (size_t a = 0; a < count; ++a) {
      for (size_t b = a + 1; b < count; ++b) {
        EXPECT_EQ(links.AreAlike(a, b, all), links.AreAlike(b, a, all));
        if (!links.AreAlike(a, b, all)) continue;
        ++alike;
        std::vector<size_t> swapped = all;
        std::swap(swapped[a], swapped[b]);
        for (const Fabric& fabric : kFabrics) {
          EXPECT_EQ(links.Allows(fabric, all), links.Allows(fabric, swapped));
          EXPECT_EQ(links.CollectiveUs(fabric, all, 5000, {}),
                    links.CollectiveUs(fabric, swapped, 5000, {}));
        }
      }
    }
  }
  EXPECT_GT(alike, 200);
}

TEST(LinkLaws, OneMoreLinkChangesThatPairAloneAndMakesNothingSlower) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Made made(RandomRequest(seed));
    const LinkCosts& links = *made.links;
    const size_t count = made.candidates.size();
    if (count < 2) continue;
    const size_t a = seed % count, b = (a + 1 + seed / count % (count - 1)) % count;
    for (const Fabric& fabric : {kTcp, kMesh, kVerbs}) {
      const LinkCosts with = links.Joined(fabric, a, b);
      EXPECT_TRUE(with.Reaches(a, b));
      EXPECT_TRUE(fabric.is_rdma() ? with.HasRdma(a, b, fabric.backend) : with.HasTcp(a, b));
      if (fabric == kTcp && links.HasTcp(a, b) == false) {
        EXPECT_FALSE(with.IsVpn(a, b));
      }
      for (size_t from = 0; from < count; ++from) {
        for (size_t to = 0; to < count; ++to) {
          if (from == to) continue;
          const std::vector<size_t> one = {from}, other = {to};
          for (const Fabric& any : kFabrics) {
            const double before = links.HopUs(any, one, other, kComparedMessageBytes, {});
            const double after = with.HopUs(any, one, other, kComparedMessageBytes, {});
            if (std::minmax(from, to) != std::minmax(a, b)) {
              EXPECT_EQ(after, before);
            }
            if (links.Allows(any, std::vector<size_t>{from, to})) {
              EXPECT_LE(after, before);
            }
          }
        }
      }
    }
  }
}

TEST(LinkLaws, LargerMessagesTakeNoLessTimeNorDoMoreNodesOverTcp) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Made made(RandomRequest(seed));
    std::vector<size_t> nodes;
    for (size_t i = 0; i < made.candidates.size(); ++i) {
      nodes.push_back(i);
      for (const Fabric& fabric : kFabrics) {
        double before = 0;
        for (const double bytes : {0.0, 1.0, 4096.0, 1e5, 1e7, 1e10}) {
          const double us = made.links->CollectiveUs(fabric, nodes, bytes, {});
          EXPECT_TRUE(std::isfinite(us));
          EXPECT_GE(us, before);
          before = us;
          if (i == 0) {
            EXPECT_EQ(us, 0) << "one rank tells nobody";
          }
          if (i == 0 || fabric.is_rdma()) continue;  // cables carry parts side by side
          const std::vector<size_t> fewer(nodes.begin(), nodes.end() - 1);
          EXPECT_GE(us, made.links->CollectiveUs(fabric, fewer, bytes, {}) * (1 - 1e-12));
        }
      }
    }
  }
}

TEST(Fabrics, TransportsThatAreAskedForAllowTheirOwn) {
  struct Case {
    const char* wanted;
    bool tcp, jaccl, verbs;
  };
  for (const Case& each : {Case{"", true, true, true}, Case{"auto", true, true, true},
                           Case{"ring", true, false, false}, Case{"jaccl", false, true, false},
                           Case{"verbs", false, false, true}, Case{"rdma", false, true, true},
                           Case{"single", true, true, true}, Case{"pigeons", true, true, true}}) {
    EXPECT_EQ(TransportAllows(each.wanted, kTcp), each.tcp) << each.wanted;
    EXPECT_EQ(TransportAllows(each.wanted, kMesh), each.jaccl) << each.wanted;
    EXPECT_EQ(TransportAllows(each.wanted, kRing), each.jaccl) << each.wanted;
    EXPECT_EQ(TransportAllows(each.wanted, kVerbs), each.verbs) << each.wanted;
  }
  EXPECT_TRUE(AllowsStagesOfGroups(kTcp));
  EXPECT_TRUE(AllowsStagesOfGroups(kVerbs));
  EXPECT_FALSE(AllowsStagesOfGroups(kMesh)) << "JACCL's groups can't be divided";
  EXPECT_FALSE(AllowsStagesOfGroups({Backend::kVerbs, Topology::kRing}));
}

TEST(Fabrics, NoMeshIsLargerThanJacclTakesWhateverIsAskedFor) {
  const std::pair<uint32_t, uint32_t> cases[] = {{0, 4}, {1, 1}, {4, 4}, {8, 8}, {9, 8}, {~0u, 8}};
  for (const auto& [asked, taken] : cases) {
    v1::PlanRequest request;
    for (int i = 0; i < 10; ++i) *request.add_nodes() = Node(absl::StrCat("node-", i), kGiB);
    std::vector<std::string> ids;
    for (const v1::PlannerNode& node : request.nodes()) ids.push_back(node.node_id());
    AddMesh(ids, &request);
    request.set_mesh_ranks_max(asked);
    const Made made(request);
    EXPECT_EQ(made.links->mesh_ranks_max(), taken) << asked;
    std::vector<size_t> nodes;
    for (uint32_t i = 0; i < taken; ++i) nodes.push_back(i);
    EXPECT_TRUE(made.links->Allows(kMesh, nodes));
    nodes.push_back(taken);
    EXPECT_FALSE(made.links->Allows(kMesh, nodes));
  }
}

}  // namespace
}  // namespace macrame::planner
