#include "agentd/cores/node_transport.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

void Cable(const std::string& a, const std::string& b, v1::Fact usable, v1::ClusterLinks* links) {
  v1::LinkVerdict& link = *links->add_links();
  link.mutable_a()->set_node_id(a);
  link.mutable_b()->set_node_id(b);
  link.set_kind(v1::LINK_KIND_THUNDERBOLT);
  link.set_rdma_usable(usable);
}

void Lan(const std::string& a, const std::string& b, v1::ClusterLinks* links) {
  v1::NodePath& path = *links->add_paths();
  path.set_from_node_id(a);
  path.set_to_node_id(b);
}

TEST(NodeTransport, EachNodeHasItsOwn) {
  v1::ClusterLinks links;
  Cable("a", "b", v1::FACT_YES, &links);
  Cable("b", "c", v1::FACT_NO, &links);
  Lan("a", "c", &links);
  Lan("b", "c", &links);
  const std::set<std::string> live = {"a", "b", "c"};
  EXPECT_EQ(NodeTransport(links, "a", live), "jaccl 1/2");
  EXPECT_EQ(NodeTransport(links, "c", live), "ring");
  EXPECT_EQ(NodeTransport(links, "a", {"a", "b"}), "jaccl") << "the dead do not count";
  EXPECT_EQ(NodeTransport(links, "d", live), "") << "dead";
  EXPECT_EQ(NodeTransport(links, "e", {"a", "b", "c", "e"}), "none");
}

TEST(NodeTransport, OfOneAloneNothingIsSaid) {
  v1::ClusterLinks links;
  EXPECT_EQ(NodeTransport(links, "a", {"a", "b"}), "") << "not probed yet";
  Lan("a", "b", &links);
  EXPECT_EQ(NodeTransport(links, "a", {"a"}), "");
}

}  // namespace
}  // namespace macrame::agentd
