#include "agentd/links/planner_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "proto/backends.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

void AddPath(v1::ClusterLinks& links, const std::string& from, const std::string& to,
             v1::InterfaceKind kind, double round_trip_us) {
  v1::NodePath& path = *links.add_paths();
  path.set_from_node_id(from);
  path.set_to_node_id(to);
  path.set_kind(kind);
  path.set_round_trip_us(round_trip_us);
  path.set_bandwidth_bytes_per_second(1e9);
}

v1::LinkVerdict& AddLink(v1::ClusterLinks& links, const std::string& a, const std::string& b,
                         v1::Fact usable) {
  v1::LinkVerdict& link = *links.add_links();
  link.mutable_a()->set_node_id(a);
  link.mutable_b()->set_node_id(b);
  link.set_rdma_usable(usable);
  return link;
}

// Which pairs a verdict was asked for, and what it says.
class Verdicts {
 public:
  v1::GroupVerdict Of(const std::string& from, const std::string& to) {
    asked_.insert({from, to});
    v1::GroupVerdict verdict;
    for (const auto& [backend, usable] :
         {std::pair(Backend::kVerbs, true), std::pair(Backend::kJaccl, false),
          std::pair(Backend::kRing, true)}) {
      v1::BackendChoice& choice = *verdict.add_choices();
      choice.set_backend(NameOf(backend));
      choice.set_usable(usable);
    }
    return verdict;
  }
  const std::set<std::pair<std::string, std::string>>& asked() const { return asked_; }

 private:
  std::set<std::pair<std::string, std::string>> asked_;
};

std::vector<v1::PlannerLink> Made(const v1::ClusterLinks& links,
                                  const std::vector<std::string>& nodes, Verdicts& verdicts) {
  return PlannerLinks(links, nodes, [&](const std::string& from, const std::string& to) {
    return verdicts.Of(from, to);
  });
}

TEST(PlannerLinks, EachOrderedPairHasOneAndTheRingWorksAlways) {
  Verdicts verdicts;
  const auto made = Made(v1::ClusterLinks(), {"a", "b", "c"}, verdicts);
  std::set<std::pair<std::string, std::string>> pairs;
  for (const v1::PlannerLink& link : made) {
    EXPECT_NE(link.from_node_id(), link.to_node_id());
    pairs.insert({link.from_node_id(), link.to_node_id()});
    EXPECT_THAT(link.backends(), ElementsAre(NameOf(Backend::kRing)));
    EXPECT_EQ(link.round_trip_us(), 0) << "nothing was measured";
    EXPECT_EQ(link.medium(), v1::LINK_MEDIUM_UNSPECIFIED);
  }
  EXPECT_THAT(pairs, SizeIs(6));
  EXPECT_THAT(made, SizeIs(6));
  EXPECT_THAT(verdicts.asked(), IsEmpty());
  EXPECT_THAT(Made(v1::ClusterLinks(), {"a"}, verdicts), IsEmpty());
  EXPECT_THAT(Made(v1::ClusterLinks(), {}, verdicts), IsEmpty());
}

TEST(PlannerLinks, WhatWasMeasuredIsOfThatDirection) {
  v1::ClusterLinks links;
  AddPath(links, "a", "b", v1::INTERFACE_KIND_THUNDERBOLT, 40);
  AddPath(links, "b", "a", v1::INTERFACE_KIND_WIFI, 3000);
  Verdicts verdicts;
  const auto made = Made(links, {"a", "b"}, verdicts);
  ASSERT_THAT(made, SizeIs(2));
  EXPECT_EQ(made[0].from_node_id(), "a");
  EXPECT_EQ(made[0].round_trip_us(), 40);
  EXPECT_EQ(made[0].medium(), v1::LINK_MEDIUM_THUNDERBOLT);
  EXPECT_EQ(made[1].round_trip_us(), 3000);
  EXPECT_EQ(made[1].medium(), v1::LINK_MEDIUM_WIFI);
}

TEST(PlannerLinks, EachKindOfInterfaceIsAMedium) {
  const std::pair<v1::InterfaceKind, v1::LinkMedium> table[] = {
      {v1::INTERFACE_KIND_THUNDERBOLT, v1::LINK_MEDIUM_THUNDERBOLT},
      {v1::INTERFACE_KIND_BRIDGE, v1::LINK_MEDIUM_THUNDERBOLT},
      {v1::INTERFACE_KIND_ETHERNET, v1::LINK_MEDIUM_ETHERNET},
      {v1::INTERFACE_KIND_WIFI, v1::LINK_MEDIUM_WIFI},
      {v1::INTERFACE_KIND_VPN, v1::LINK_MEDIUM_VPN},
      {v1::INTERFACE_KIND_LOOPBACK, v1::LINK_MEDIUM_LOOPBACK},
      {v1::INTERFACE_KIND_UNSPECIFIED, v1::LINK_MEDIUM_UNSPECIFIED},
  };
  for (const auto& [kind, medium] : table) {
    v1::ClusterLinks links;
    AddPath(links, "a", "b", kind, 1);
    Verdicts verdicts;
    EXPECT_EQ(Made(links, {"a", "b"}, verdicts)[0].medium(), medium);
  }
}

// A verdict costs; only pairs of which some link looks usable are judged, in both directions.
TEST(PlannerLinks, OnlyWhatWorksOverRdmaIsAddedToTheRing) {
  v1::ClusterLinks links;
  AddLink(links, "a", "b", v1::FACT_YES);
  AddLink(links, "b", "c", v1::FACT_NO);
  AddLink(links, "a", "c", v1::FACT_UNKNOWN);
  Verdicts verdicts;
  for (const v1::PlannerLink& link : Made(links, {"a", "b", "c"}, verdicts)) {
    const bool is_cable = link.from_node_id() != "c" && link.to_node_id() != "c";
    if (is_cable) {
      EXPECT_THAT(link.backends(), ElementsAre(NameOf(Backend::kRing), NameOf(Backend::kVerbs)));
    } else {
      EXPECT_THAT(link.backends(), ElementsAre(NameOf(Backend::kRing)));
    }
  }
  EXPECT_EQ(verdicts.asked(),
            (std::set<std::pair<std::string, std::string>>{{"a", "b"}, {"b", "a"}}));
}

TEST(PlannerLinks, WhyThereIsNoRdmaIsTheFirstLinksReasonBothWays) {
  v1::ClusterLinks links;
  *AddLink(links, "a", "b", v1::FACT_NO).add_reasons() =
      MakeReason(reasons::kLinkUnreachable, "first");
  *AddLink(links, "a", "b", v1::FACT_NO).add_reasons() =
      MakeReason(reasons::kLinkUnreachable, "second");
  AddLink(links, "b", "c", v1::FACT_NO);
  Verdicts verdicts;
  for (const v1::PlannerLink& link : Made(links, {"a", "b", "c"}, verdicts)) {
    const bool is_cable = link.from_node_id() != "c" && link.to_node_id() != "c";
    EXPECT_EQ(link.rdma_unavailable().message(), is_cable ? "first" : "");
  }
}

// One cable of two works: there is RDMA, and nothing to complain of.
TEST(PlannerLinks, OneCableThatWorksIsEnough) {
  v1::ClusterLinks links;
  *AddLink(links, "b", "a", v1::FACT_NO).add_reasons() =
      MakeReason(reasons::kLinkUnreachable, "broken");
  AddLink(links, "a", "b", v1::FACT_YES);
  Verdicts verdicts;
  for (const v1::PlannerLink& link : Made(links, {"a", "b"}, verdicts)) {
    EXPECT_FALSE(link.has_rdma_unavailable());
    EXPECT_THAT(link.backends(), SizeIs(2));
  }
}

}  // namespace
}  // namespace macrame::agentd
