#include "agentd/cores/broken_transport.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "proto/backends.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

v1::Plan PlanOver(Backend backend, Topology topology, std::initializer_list<const char*> nodes) {
  v1::Plan plan;
  plan.set_backend(NameOf(backend));
  plan.set_backend_topology(NameOf(topology));
  for (const char* node : nodes) plan.add_assignments()->set_node_id(node);
  return plan;
}

v1::LinkVerdict& AddLink(v1::ClusterLinks& links, const char* a, const char* b, v1::Fact usable,
                         const char* code = nullptr) {
  v1::LinkVerdict& link = *links.add_links();
  link.set_kind(v1::LINK_KIND_VERBS);
  link.mutable_a()->set_node_id(a);
  link.mutable_b()->set_node_id(b);
  link.set_rdma_usable(usable);
  if (code != nullptr) *link.add_reasons() = MakeReason(code, "seen by a probe");
  return link;
}

TEST(BrokenTransport, APortThatWentDownBetweenTwoRanksIsNamed) {
  v1::ClusterLinks links;
  AddLink(links, "a", "b", v1::FACT_NO, reasons::kPortDown);
  const auto why = WhyBroken(PlanOver(Backend::kVerbs, Topology::kMesh, {"a", "b"}), links);
  ASSERT_TRUE(why.has_value());
  EXPECT_EQ(why->code(), reasons::kPortDown);
}

TEST(BrokenTransport, AsLongAsOneLinkWorksOrMayWorkNothingIsBroken) {
  const v1::Plan plan = PlanOver(Backend::kVerbs, Topology::kMesh, {"a", "b"});
  for (const v1::Fact other : {v1::FACT_YES, v1::FACT_UNKNOWN}) {
    v1::ClusterLinks links;
    AddLink(links, "a", "b", v1::FACT_NO, reasons::kPortDown);
    AddLink(links, "b", "a", other);
    EXPECT_FALSE(WhyBroken(plan, links).has_value());
  }
}

TEST(BrokenTransport, WhatIsNotCertainEndsNoGang) {
  v1::ClusterLinks links;
  AddLink(links, "a", "b", v1::FACT_NO, reasons::kSubnetMismatch);
  EXPECT_FALSE(WhyBroken(PlanOver(Backend::kVerbs, Topology::kMesh, {"a", "b"}), links));
}

TEST(BrokenTransport, ADeviceWithoutAPeerCountsWhenNothingElseIsBetweenTheTwo) {
  const v1::Plan plan = PlanOver(Backend::kVerbs, Topology::kMesh, {"a", "b"});
  v1::ClusterLinks links;
  AddLink(links, "a", "", v1::FACT_NO, reasons::kNoIpv4Gid);
  ASSERT_TRUE(WhyBroken(plan, links).has_value());
  EXPECT_EQ(WhyBroken(plan, links)->code(), reasons::kNoIpv4Gid);
  AddLink(links, "a", "b", v1::FACT_YES);
  EXPECT_FALSE(WhyBroken(plan, links).has_value());
}

TEST(BrokenTransport, InARingOnlyNeighboursCount) {
  v1::ClusterLinks links;
  AddLink(links, "a", "c", v1::FACT_NO, reasons::kPortDown);
  EXPECT_FALSE(WhyBroken(PlanOver(Backend::kVerbs, Topology::kRing, {"a", "b", "c", "d"}), links));
  EXPECT_TRUE(WhyBroken(PlanOver(Backend::kVerbs, Topology::kMesh, {"a", "b", "c", "d"}), links));
  EXPECT_TRUE(WhyBroken(PlanOver(Backend::kVerbs, Topology::kRing, {"a", "b", "d", "c"}), links))
      << "the last and the first are neighbours";
}

TEST(BrokenTransport, GangsOverOtherBackendsGoOn) {
  v1::ClusterLinks links;
  AddLink(links, "a", "b", v1::FACT_NO, reasons::kPortDown);
  for (const Backend backend : {Backend::kJaccl, Backend::kRing}) {
    EXPECT_FALSE(WhyBroken(PlanOver(backend, Topology::kMesh, {"a", "b"}), links));
  }
}

}  // namespace
}  // namespace macrame::agentd
