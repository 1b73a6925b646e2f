// Rings of Macs with several cables between neighbours, Macs with different versions of macOS, and
// what is said of Macs that lack nothing but cables.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "tests/unit/transport/links/link_facts_for_tests.h"
#include "tests/unit/transport/links/mlx_rules_for_tests.h"
#include "transport/links/diagnosis.h"
#include "transport/links/judge.h"
#include "transport/links/mlx_settings.h"

namespace macrame::transport {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// Macs round a ring, cables[i] of them from mac-i to the next.
v1::LinkSnapshot RingOf(const std::vector<int>& cables) {
  const size_t count = cables.size();
  std::vector<v1::NodeLinks> nodes;
  std::vector<uint32_t> sockets(count, 1);
  for (size_t i = 0; i < count; ++i) {
    nodes.push_back(GoodMac(absl::StrCat("mac-", i)));
    AddLan(nodes.back(), absl::StrCat("192.0.2.", i + 1));
  }
  int number = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t next = (i + 1) % count;
    for (int cable = 0; cable < cables[i]; ++cable) {
      Cable(nodes[i], sockets[i]++, nodes[next], sockets[next]++, ++number);
    }
  }
  v1::LinkSnapshot snapshot;
  for (v1::NodeLinks& node : nodes) *snapshot.add_nodes() = std::move(node);
  return snapshot;
}

std::set<std::string> CodesOf(const google::protobuf::RepeatedPtrField<v1::Reason>& reasons) {
  std::set<std::string> codes;
  for (const v1::Reason& reason : reasons) codes.insert(reason.code());
  return codes;
}

std::string FaultsOf(const std::string& text) {
  std::string all;
  for (const HostfileFault& fault : CheckHostfile(text)) {
    absl::StrAppend(&all, fault.line, ": ", fault.message, "\n");
  }
  return all;
}

std::vector<std::string> NamesOf(const v1::GroupVerdict& group) {
  return {group.node_ids().begin(), group.node_ids().end()};
}

struct RingCase {
  std::vector<int> cables;
  int taken;         // devices of each cell
  bool some_unused;  // a warning says so
};

class RingTest : public testing::TestWithParam<RingCase> {};

TEST_P(RingTest, EveryNeighbourHasTheSameNumberOfCables) {
  v1::LinkSnapshot snapshot = RingOf(GetParam().cables);
  snapshot.set_mesh_nodes_max(2);  // of three, every pair is a neighbour: they would be a mesh
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  const v1::GroupVerdict& group = links.group();
  ASSERT_EQ(group.verdict(), "jaccl-ring") << group.DebugString();
  EXPECT_EQ(WhyMlxRefuses(group.device_matrix(), /*is_ring=*/true), "");
  EXPECT_EQ(group.device_matrix(0).cells(1).devices_size(), GetParam().taken);
  EXPECT_EQ(CodesOf(group.warnings()).contains("SECOND_CABLE_UNUSED"), GetParam().some_unused);
  for (const char* backend : {"jaccl-ring", "ring"}) {
    const auto text = MlxHostfile(group, backend, NamesOf(group));
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(FaultsOf(*text), "") << *text;
  }
}

// Sockets were given in the order of the cables, so cable k has the same place at both ends.
TEST_P(RingTest, DeviceByDeviceBothEndsOfACellAreOneCable) {
  v1::LinkSnapshot snapshot = RingOf(GetParam().cables);
  snapshot.set_mesh_nodes_max(2);
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  const v1::GroupVerdict& group = links.group();
  for (int a = 0; a < group.node_ids_size(); ++a) {
    for (int b = 0; b < group.node_ids_size(); ++b) {
      const auto& here = group.device_matrix(a).cells(b).devices();
      const auto& there = group.device_matrix(b).cells(a).devices();
      ASSERT_EQ(here.size(), there.size());
      for (int k = 0; k < here.size(); ++k) {
        bool is_cable = false;
        for (const v1::LinkVerdict& link : links.links()) {
          const auto joins = [&](const v1::LinkEnd& x, const v1::LinkEnd& y) {
            return x.node_id() == group.node_ids(a) && x.rdma_device() == here[k] &&
                   y.node_id() == group.node_ids(b) && y.rdma_device() == there[k];
          };
          is_cable = is_cable || joins(link.a(), link.b()) || joins(link.b(), link.a());
        }
        EXPECT_TRUE(is_cable) << here[k] << " " << there[k];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cables, RingTest,
    testing::Values(RingCase{{1, 1, 1, 1}, 1, false}, RingCase{{2, 1, 1, 1}, 1, true},
                    RingCase{{1, 1, 3, 2}, 1, true}, RingCase{{2, 2, 2, 2}, 2, false},
                    RingCase{{3, 2, 2, 2}, 2, true}, RingCase{{5, 5, 5, 5}, 4, true},
                    RingCase{{2, 1, 1}, 1, true}, RingCase{{2, 2, 2}, 2, false}));

TEST(Ring, TheMeshOfThreeTakesOneCableOfAPair) {
  const v1::ClusterLinks links = JudgeLinks(RingOf({2, 1, 1}));
  const v1::GroupVerdict& group = links.group();
  EXPECT_EQ(group.verdict(), "jaccl-mesh");
  EXPECT_EQ(WhyMlxRefuses(group.device_matrix(), /*is_ring=*/false), "");
  EXPECT_EQ(group.device_matrix(0).cells(1).devices_size(), 1);
  EXPECT_THAT(CodesOf(group.warnings()), Contains("SECOND_CABLE_UNUSED"));
}

TEST(Frames, MacOs262BesideALaterOneIsNotGivenJaccl) {
  struct Case {
    std::vector<std::string> versions;
    bool differ;
  };
  const Case cases[] = {
      {{"26.2", "26.3"}, true},
      {{"26.2.1", "26.4"}, true},
      {{"26.2", "27.0"}, true},
      {{"26.2", "26.2.1"}, false},
      {{"26.3", "26.10"}, false},
      {{"26.3", "26.4"}, false},
      {{"26.4", "26.4", "26.2"}, true},
      {{"26.2", "26.4", "26.2", "26.2"}, true},
      {{"26.3", "26.3.1", "27", "26.4"}, false},
  };
  for (const Case& each : cases) {
    // Two Macs: one cable there, not also one back.
    v1::LinkSnapshot snapshot =
        RingOf(each.versions.size() == 2 ? std::vector<int>{1, 0}
                                         : std::vector<int>(each.versions.size(), 1));
    for (size_t i = 0; i < each.versions.size(); ++i) {
      snapshot.mutable_nodes(static_cast<int>(i))
          ->mutable_facts()
          ->set_os_version(each.versions[i]);
    }
    const v1::ClusterLinks links = JudgeLinks(snapshot);
    const v1::GroupVerdict& group = links.group();
    SCOPED_TRACE(each.versions[0] + " " + each.versions[1]);
    EXPECT_EQ(group.verdict() == "ring-only", each.differ) << group.verdict();
    EXPECT_EQ(CodesOf(group.reasons()).contains("OS_FRAME_MISMATCH"), each.differ);
    for (const v1::BackendChoice& choice : group.choices()) {
      if (choice.backend() != "jaccl") continue;
      EXPECT_EQ(CodesOf(choice.reasons()).contains("OS_FRAME_MISMATCH"), each.differ)
          << choice.topology();
      EXPECT_FALSE(each.differ && choice.usable());
    }
  }
}

TEST(Frames, AVersionThatIsNotKnownIsNoVeto) {
  v1::LinkSnapshot snapshot = GoodPair();
  snapshot.mutable_nodes(0)->mutable_facts()->set_os_version("26.2");
  snapshot.mutable_nodes(1)->mutable_facts()->clear_os_version();
  EXPECT_FALSE(CodesOf(JudgeLinks(snapshot).group().reasons()).contains("OS_FRAME_MISMATCH"));
}

TEST(Frames, TheDoctorNamesBothSidesAndWhatToInstall) {
  v1::LinkSnapshot snapshot = GoodPair();
  snapshot.mutable_nodes(0)->mutable_facts()->set_os_version("26.2");
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  const v1::Diagnosis diagnosis = Diagnose(snapshot, links, {}, {});
  ASSERT_GE(diagnosis.findings_size(), 1);
  const v1::Finding& first = diagnosis.findings(0);
  EXPECT_EQ(first.reason().code(), "OS_FRAME_MISMATCH");
  EXPECT_EQ(first.severity(), v1::SEVERITY_DEGRADED);
  EXPECT_EQ(first.layer(), "os");
  EXPECT_THAT(first.reason().message(), AllOf(HasSubstr("mini-a"), HasSubstr("26.2"),
                                              HasSubstr("mini-b"), HasSubstr("26.4")));
  ASSERT_GE(first.steps_size(), 1);
  EXPECT_THAT(first.steps(0), HasSubstr("26.3 or later"));
  EXPECT_THAT(diagnosis.conclusion(), HasSubstr("The cause: OS_FRAME_MISMATCH"));
  EXPECT_EQ(diagnosis.lowest_failing_layer(), "os");
  v1::Reason symptom;
  symptom.set_code("COLLECTIVE_FAILED");
  const std::vector<std::string> both = {"mini-a", "mini-b"};
  EXPECT_EQ(RootCause(snapshot, links, both, symptom).code(), "OS_FRAME_MISMATCH");
}

// -- what is said of machines that have no RDMA between them

constexpr char kNothingWrong[] = "no hardware for RDMA, and nothing is wrong";

std::string Conclusion(const v1::LinkSnapshot& snapshot) {
  return Diagnose(snapshot, JudgeLinks(snapshot), {}, {}).conclusion();
}

// A Mac with sockets and nothing in them.
v1::NodeLinks UncabledMac(const std::string& id, const std::string& ip, v1::Fact is_fifth) {
  v1::NodeLinks node = GoodMac(id);
  AddLan(node, ip);
  v1::ThunderboltPort& port = *node.mutable_facts()->add_ports();
  port.set_socket(1);
  port.set_domain_uuid(id + "/1");
  port.set_connected(v1::FACT_NO);
  port.set_is_thunderbolt5(is_fifth);
  return node;
}

v1::NodeLinks LinuxBox(const std::string& id, const std::string& ip) {
  v1::NodeLinks node;
  node.set_node_id(id);
  node.mutable_facts()->set_node_id(id);
  node.mutable_facts()->set_hostname(id);
  node.mutable_facts()->set_is_mac(v1::FACT_NO);
  node.mutable_facts()->set_rdma_devices_listed(v1::FACT_YES);
  AddLan(node, ip);
  return node;
}

v1::LinkSnapshot SnapshotOf(std::vector<v1::NodeLinks> nodes) {
  v1::LinkSnapshot snapshot;
  for (v1::NodeLinks& node : nodes) *snapshot.add_nodes() = std::move(node);
  return snapshot;
}

TEST(Conclusion, ThunderboltFiveMacsWithoutACableLackTheCable) {
  const std::string two = Conclusion(SnapshotOf({UncabledMac("oak", "192.0.2.1", v1::FACT_YES),
                                                 UncabledMac("elm", "192.0.2.2", v1::FACT_YES)}));
  EXPECT_THAT(two, HasSubstr("a Thunderbolt 5 cable between elm and oak would give RDMA"));
  EXPECT_THAT(two, Not(HasSubstr("nothing is wrong")));
  const std::string three = Conclusion(SnapshotOf({UncabledMac("oak", "192.0.2.1", v1::FACT_YES),
                                                   UncabledMac("elm", "192.0.2.2", v1::FACT_YES),
                                                   UncabledMac("fir", "192.0.2.3", v1::FACT_YES)}));
  EXPECT_THAT(three, HasSubstr("elm and fir, elm and oak, fir and oak would give RDMA"));
}

TEST(Conclusion, AChainThatLacksOneCableNamesIt) {
  const std::string text = Conclusion(RingOf({1, 1, 0}));
  EXPECT_THAT(text, HasSubstr("a Thunderbolt 5 cable between mac-0 and mac-2 would give RDMA"));
  EXPECT_THAT(text, Not(HasSubstr("nothing is wrong")));
}

TEST(Conclusion, WhatACableAloneWouldNotBringIsSaid) {
  v1::NodeLinks off = UncabledMac("oak", "192.0.2.1", v1::FACT_YES);
  off.mutable_facts()->set_rdma_enabled(v1::FACT_NO);
  v1::NodeLinks old = UncabledMac("elm", "192.0.2.2", v1::FACT_YES);
  old.mutable_facts()->set_os_version("26.1");
  const std::string text = Conclusion(SnapshotOf({off, old}));
  EXPECT_THAT(text, HasSubstr("RDMA is off on oak"));
  EXPECT_THAT(text, HasSubstr("elm runs macOS 26.1, which is older than 26.2"));
}

TEST(Conclusion, OnlyMachinesThatAreKnownToHaveNoHardwareHaveNone) {
  EXPECT_THAT(Conclusion(SnapshotOf({LinuxBox("a", "192.0.2.1"), LinuxBox("b", "192.0.2.2")})),
              HasSubstr(kNothingWrong));
  EXPECT_THAT(Conclusion(SnapshotOf({UncabledMac("oak", "192.0.2.1", v1::FACT_NO),
                                     UncabledMac("elm", "192.0.2.2", v1::FACT_NO)})),
              HasSubstr(kNothingWrong));
  v1::NodeLinks bare = GoodMac("oak");
  bare.mutable_facts()->set_has_thunderbolt(v1::FACT_NO);
  AddLan(bare, "192.0.2.1");
  EXPECT_THAT(Conclusion(SnapshotOf({bare, LinuxBox("b", "192.0.2.2")})), HasSubstr(kNothingWrong));
}

TEST(Conclusion, WhatIsNotKnownIsSaidNotToBeKnown) {
  v1::NodeLinks silent = LinuxBox("b", "192.0.2.2");
  silent.mutable_facts()->clear_rdma_devices_listed();
  const std::string linux = Conclusion(SnapshotOf({LinuxBox("a", "192.0.2.1"), silent}));
  EXPECT_THAT(linux, Not(HasSubstr("nothing is wrong")));
  EXPECT_THAT(linux, HasSubstr("whether b has hardware for RDMA is not known"));
  const std::string macs = Conclusion(SnapshotOf({UncabledMac("oak", "192.0.2.1", v1::FACT_UNKNOWN),
                                                  UncabledMac("elm", "192.0.2.2", v1::FACT_YES)}));
  EXPECT_THAT(macs, Not(HasSubstr("nothing is wrong")));
  EXPECT_THAT(macs, HasSubstr("whether oak has hardware for RDMA is not known"));
}

TEST(Conclusion, OneMachineWithoutHardwareIsNamedAndTheOthersToldWhatTheyLack) {
  const std::string text = Conclusion(
      SnapshotOf({UncabledMac("oak", "192.0.2.1", v1::FACT_YES),
                  UncabledMac("elm", "192.0.2.2", v1::FACT_YES), LinuxBox("zoe", "192.0.2.3")}));
  EXPECT_THAT(text, Not(HasSubstr("nothing is wrong")));
  EXPECT_THAT(text, HasSubstr("zoe has no hardware for RDMA"));
  EXPECT_THAT(text, HasSubstr("a Thunderbolt 5 cable between elm and oak"));
}

// Good cables, and a group that is kept off RDMA for another reason: that reason is the cause.
TEST(Conclusion, AnOldMlxOrARefusalIsTheCause) {
  v1::LinkSnapshot old = GoodPair();
  old.mutable_nodes(0)->mutable_facts()->set_mlx_version("0.29.0");
  EXPECT_THAT(Conclusion(old), HasSubstr("The cause: MLX_OLD"));
  v1::LinkSnapshot refused = GoodPair();
  v1::TransportRefusal& refusal = *refused.add_refusals();
  refusal.add_node_ids("mini-a");
  refusal.add_node_ids("mini-b");
  refusal.set_backend("jaccl");
  refusal.mutable_reason()->set_code("CONNECT_FAILED");
  refusal.mutable_reason()->set_message("rank 1 did not connect");
  EXPECT_THAT(Conclusion(refused), HasSubstr("The cause: CONNECT_FAILED"));
}

}  // namespace
}  // namespace macrame::transport
