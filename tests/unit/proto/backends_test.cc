#include "proto/backends.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace macrame {
namespace {

TEST(Backends, EachNameIsReadAsItsType) {
  for (const Backend backend :
       {Backend::kSingle, Backend::kRing, Backend::kVerbs, Backend::kJaccl}) {
    EXPECT_EQ(BackendNamed(NameOf(backend)), backend);
  }
  for (const Topology topology : {Topology::kMesh, Topology::kRing}) {
    EXPECT_EQ(TopologyNamed(NameOf(topology)), topology);
  }
  for (const Verdict verdict : {Verdict::kNone, Verdict::kSingle, Verdict::kRingOnly,
                                Verdict::kVerbs, Verdict::kJacclRing, Verdict::kJacclMesh}) {
    EXPECT_EQ(VerdictNamed(NameOf(verdict)), verdict);
  }
  std::set<std::string> graphs;
  for (int i = 0; i <= static_cast<int>(CableGraph::kOther); ++i) {
    const std::string name = NameOf(static_cast<CableGraph>(i));
    EXPECT_TRUE(graphs.insert(name).second) << "two graphs are called " << name;
  }
  for (const std::string& name : MlxBackendNames()) {
    ASSERT_TRUE(MlxBackendNamed(name).has_value()) << name;
    EXPECT_EQ(NameOf(*MlxBackendNamed(name)), name);
  }
}

TEST(Backends, ANameOfAnotherVersionIsNone) {
  EXPECT_EQ(BackendNamed("teleport"), Backend::kNone);
  EXPECT_EQ(BackendNamed(""), Backend::kNone);
  EXPECT_EQ(TopologyNamed("torus"), Topology::kNone);
  EXPECT_EQ(VerdictNamed("teleport-mesh"), Verdict::kNone);
  EXPECT_FALSE(MlxBackendNamed("teleport").has_value());
}

TEST(Backends, TransportsHaveTheNamesThatPeopleCallThem) {
  EXPECT_EQ(TransportNamed("MDMA"), "ring");
  EXPECT_EQ(TransportNamed("mlx-ring"), "ring");
  EXPECT_EQ(TransportNamed("tcp"), "ring");
  EXPECT_EQ(TransportNamed("mlx-rdma"), "rdma");
  EXPECT_EQ(TransportNamed("MLX-JACCL"), "jaccl");
  EXPECT_EQ(TransportNamed("jaccl"), "jaccl");
  EXPECT_EQ(TransportNamed("Pigeon"), "pigeon");
}

TEST(Backends, RdmaIsAskedForByItsNameOrABackends) {
  for (const char* transport : {"rdma", "jaccl", "verbs"}) EXPECT_TRUE(AsksForRdma(transport));
  for (const char* transport : {"", "auto", "ring", "pigeon"}) {
    EXPECT_FALSE(AsksForRdma(transport)) << transport;
  }
  EXPECT_TRUE(IsAnyTransport(""));
  EXPECT_TRUE(IsAnyTransport("auto"));
  EXPECT_FALSE(IsAnyTransport("rdma"));
}

}  // namespace
}  // namespace macrame
