#include "transport/links/judge.h"
#include "absl/strings/str_cat.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "tests/unit/transport/links/link_facts_for_tests.h"
#include "transport/links/diagnosis.h"
#include "transport/links/net_plan.h"
#include "transport/links/refusals.h"

namespace macrame::transport {
namespace {

std::set<std::string> CodesOf(const google::protobuf::RepeatedPtrField<v1::Reason>& reasons) {
  std::set<std::string> codes;
  for (const v1::Reason& reason : reasons) codes.insert(reason.code());
  return codes;
}

TEST(Judge, APairWithEverythingRightIsAMesh) {
  const v1::ClusterLinks links = JudgeLinks(GoodPair());
  ASSERT_EQ(links.links_size(), 1);
  EXPECT_EQ(links.links(0).rdma_usable(), v1::FACT_YES) << links.DebugString();
  EXPECT_EQ(links.group().verdict(), "jaccl-mesh");
  EXPECT_EQ(links.group().rendezvous_ip(), "192.0.2.1") << "on the LAN";
  EXPECT_EQ(links.group().device_matrix(0).cells(1).devices(0), "rdma_en2");
  EXPECT_EQ(links.group().device_matrix(1).cells(0).devices(0), "rdma_en3");
}

struct Fault {
  const char* code;
  const char* layer;
  std::function<void(v1::LinkFacts& a, v1::LinkFacts& b)> make;
};

class FaultTest : public testing::TestWithParam<Fault> {};

TEST_P(FaultTest, IsNamedWithItsLayerAndTheRingServes) {
  v1::LinkSnapshot snapshot = GoodPair();
  GetParam().make(*snapshot.mutable_nodes(0)->mutable_facts(),
                  *snapshot.mutable_nodes(1)->mutable_facts());
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  ASSERT_GE(links.links_size(), 1);
  EXPECT_EQ(links.links(0).rdma_usable(), v1::FACT_NO) << links.DebugString();
  EXPECT_EQ(links.links(0).reasons(0).code(), GetParam().code) << links.links(0).DebugString();
  EXPECT_EQ(links.links(0).lowest_failing_layer(), GetParam().layer);
  EXPECT_EQ(links.group().verdict(), "ring-only");
  EXPECT_TRUE(CodesOf(links.group().reasons()).contains(GetParam().code));
}

INSTANTIATE_TEST_SUITE_P(
    Codes, FaultTest,
    testing::Values(
        Fault{"OS_TOO_OLD", "os", [](auto& a, auto&) { a.set_os_version("26.1.9"); }},
        Fault{"VIRTUAL", "os", [](auto& a, auto&) { a.set_is_virtual_machine(v1::FACT_YES); }},
        Fault{"TB4_CONTROLLER", "controller",
              [](auto& a, auto&) { a.mutable_ports(0)->set_is_thunderbolt5(v1::FACT_NO); }},
        Fault{"RDMA_CTL_MISSING", "os",
              [](auto&, auto& b) {
                b.set_rdma_enabled(v1::FACT_UNKNOWN);
                b.set_rdma_ctl_missing(true);
              }},
        Fault{"RDMA_DISABLED_LOCAL", "enablement",
              [](auto& a, auto& b) {
                b.set_rdma_enabled(v1::FACT_NO);
                b.clear_rdma_devices();
                b.mutable_ports(0)->clear_rdma_device();
                a.mutable_ports(0)->mutable_peers(0)->set_advertises_rdma(v1::FACT_NO);
              }},
        Fault{"NO_RDMA_DEVICE", "device",
              [](auto& a, auto&) {
                a.clear_rdma_devices();
                a.mutable_ports(0)->clear_rdma_device();
              }},
        Fault{"PEER_BEHIND_DOCK", "peer",
              [](auto& a, auto&) { a.mutable_ports(0)->mutable_peers(0)->set_devices_between(1); }},
        Fault{"LINK_40G", "speed",
              [](auto& a, auto& b) {
                a.mutable_ports(0)->set_speed_gbps(40);
                b.mutable_ports(0)->set_speed_gbps(40);
              }},
        Fault{"ASYMMETRIC_LINK", "speed",
              [](auto& a, auto&) { a.mutable_ports(0)->set_is_asymmetric(true); }},
        Fault{"PORT_DOWN", "port",
              [](auto&, auto& b) {
                b.mutable_rdma_devices(0)->set_port_state(v1::RDMA_PORT_STATE_DOWN);
              }},
        Fault{"NO_IPV4", "address",
              [](auto& a, auto&) {
                for (auto& one : *a.mutable_interfaces()) {
                  if (one.name() == "en2") one.clear_addresses();
                }
              }},
        Fault{"NO_IPV4_GID", "address",
              [](auto& a, auto&) { a.mutable_rdma_devices(0)->clear_gids(); }},
        Fault{"GID_INDEX_SHIFTED", "address",
              [](auto& a, auto&) { a.mutable_rdma_devices(0)->mutable_gids(0)->set_index(3); }},
        Fault{"ROUTE_WRONG_IF", "address",
              [](auto& a, auto&) {
                a.mutable_routes(0)->set_destination("default");
                a.mutable_routes(0)->set_interface_name("en0");
                a.mutable_routes(0)->set_gateway("192.0.2.254");
              }},
        Fault{"SUBNET_MISMATCH", "address",
              [](auto& a, auto&) {
                v1::LinkInterface& other = *a.add_interfaces();
                other.set_name("en9");
                v1::NodeAddress& address = *other.add_addresses();
                address.set_ip("10.77.5.9");
                address.set_prefix_length(24);
              }}),
    [](const auto& info) { return std::string(info.param.code); });

// Whatever is not known is never "no".
TEST(Judge, WhatIsUnknownIsSaidToBeUnknown) {
  const std::vector<std::function<void(v1::LinkFacts&)>> forget = {
      [](v1::LinkFacts& facts) { facts.clear_os_version(); },
      [](v1::LinkFacts& facts) {
        facts.set_rdma_devices_listed(v1::FACT_UNKNOWN);
        facts.clear_rdma_devices();
        facts.mutable_ports(0)->clear_rdma_device();
      },
      [](v1::LinkFacts& facts) { facts.mutable_rdma_devices(0)->set_gids_known(false); },
      [](v1::LinkFacts& facts) { facts.clear_routes(); },
      [](v1::LinkFacts& facts) { facts.mutable_ports(0)->set_speed_gbps(0); },
      [](v1::LinkFacts& facts) { facts.clear_interfaces(); },
      [](v1::LinkFacts& facts) {
        facts.mutable_rdma_devices(0)->set_port_state(v1::RDMA_PORT_STATE_UNKNOWN);
      },
  };
  for (size_t i = 0; i < forget.size(); ++i) {
    v1::LinkSnapshot snapshot = GoodPair();
    forget[i](*snapshot.mutable_nodes(0)->mutable_facts());
    const v1::ClusterLinks links = JudgeLinks(snapshot);
    ASSERT_EQ(links.links_size(), 1);
    EXPECT_EQ(links.links(0).rdma_usable(), v1::FACT_UNKNOWN) << i << links.DebugString();
    EXPECT_NE(links.group().verdict(), "jaccl-mesh") << i;
  }
}

TEST(Judge, TheOrderOfNodesDoesNotMatter) {
  v1::LinkSnapshot forth = GoodPair(), back;
  *back.add_nodes() = forth.nodes(1);
  *back.add_nodes() = forth.nodes(0);
  EXPECT_EQ(JudgeLinks(forth).SerializeAsString(), JudgeLinks(back).SerializeAsString());
}

TEST(Judge, ThunderboltIsTakenBeforeEthernetAndNeverABridgeOrAVpn) {
  v1::LinkSnapshot snapshot = GoodPair();
  for (int i = 0; i < 2; ++i) {
    for (const auto& [name, kind, ip] :
         {std::tuple("bridge100", v1::INTERFACE_KIND_BRIDGE, "192.168.2."),
          std::tuple("utun3", v1::INTERFACE_KIND_VPN, "100.64.0.")}) {
      v1::LinkInterface& other = *snapshot.mutable_nodes(i)->mutable_facts()->add_interfaces();
      other.set_name(name);
      other.set_kind(kind);
      v1::NodeAddress& address = *other.add_addresses();
      address.set_ip(absl::StrCat(ip, i + 1));
      address.set_prefix_length(24);
    }
  }
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  const v1::NodePath* path = PathBetween(links, "mini-a", "mini-b");
  ASSERT_NE(path, nullptr);
  EXPECT_EQ(path->to_ip(), "10.77.5.2");
  EXPECT_EQ(CodesOf(path->rejected()),
            (std::set<std::string>{"PATH_NOT_CHOSEN", "BRIDGE_ADDRESS", "VPN_NOT_USED"}));
  EXPECT_NE(links.group().rendezvous_ip(), "192.168.2.1");
}

TEST(Judge, AWayIsPrivateOverACableBetweenTwoNodesAndWithinOne) {
  const v1::ClusterLinks links = JudgeLinks(GoodPair());
  EXPECT_TRUE(IsPrivateWay(links, "mini-a", "mini-b", "10.77.5.2"));
  EXPECT_TRUE(IsPrivateWay(links, "mini-b", "mini-a", "10.77.5.1"));
  EXPECT_FALSE(IsPrivateWay(links, "mini-a", "mini-b", "192.0.2.2")) << "ring_bind is on the LAN";
  EXPECT_FALSE(IsPrivateWay(links, "mini-a", "mini-c", "10.77.5.2")) << "no way is known";
  EXPECT_TRUE(IsPrivateWay(links, "mini-a", "mini-a", "192.0.2.1"));
  EXPECT_TRUE(IsPrivateWay(links, "mini-a", "mini-b", "127.0.0.1")) << "two agents on one machine";
  v1::ClusterLinks uncabled = links;
  uncabled.clear_links();
  EXPECT_FALSE(IsPrivateWay(uncabled, "mini-a", "mini-b", "10.77.5.2"))
      << "each end may have its cable to a third machine";
  v1::LinkSnapshot without = GoodPair();
  for (int i = 0; i < 2; ++i) {
    for (auto& one : *without.mutable_nodes(i)->mutable_facts()->mutable_interfaces()) {
      if (one.kind() == v1::INTERFACE_KIND_THUNDERBOLT) one.set_kind(v1::INTERFACE_KIND_ETHERNET);
    }
  }
  EXPECT_FALSE(IsPrivateWay(JudgeLinks(without), "mini-a", "mini-b", "10.77.5.2"))
      << "a switch may be in between";
}

TEST(Judge, AWayThatCarriesNothingIsNotTaken) {
  v1::LinkSnapshot snapshot = GoodPair();
  v1::LinkMeasurement& dead = *snapshot.mutable_nodes(0)->add_measurements();
  dead.set_to_node_id("mini-b");
  dead.set_from_ip("10.77.5.1");
  dead.set_to_ip("10.77.5.2");
  dead.mutable_failure()->set_code("LINK_UNREACHABLE");
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  const v1::NodePath* path = PathBetween(links, "mini-a", "mini-b");
  ASSERT_NE(path, nullptr);
  EXPECT_EQ(path->to_ip(), "192.0.2.2");
}

TEST(Refusals, AFinalVerdictIsRememberedUntilSomethingChanges) {
  v1::LinkSnapshot snapshot = GoodPair();
  v1::LinkFacts& facts = *snapshot.mutable_nodes(0)->mutable_facts();
  facts.set_kernel_refuses_rdma(v1::FACT_YES);
  facts.mutable_ports(0)->set_is_thunderbolt5(v1::FACT_NO);
  facts.clear_rdma_devices();
  facts.mutable_ports(0)->clear_rdma_device();
  const auto fresh = NewRefusals(snapshot);
  ASSERT_EQ(fresh.size(), 1u);
  EXPECT_EQ(fresh[0].reason().code(), "TB4_CONTROLLER");
  *snapshot.add_refusals() = fresh[0];
  EXPECT_TRUE(NewRefusals(snapshot).empty());
  EXPECT_FALSE(TriggerToRetry(fresh[0], snapshot).has_value());
  const auto changed = [&](const std::function<void(v1::LinkSnapshot&)>& change) {
    v1::LinkSnapshot later = snapshot;
    change(later);
    return TriggerToRetry(fresh[0], later).has_value();
  };
  EXPECT_TRUE(changed([](auto& s) { s.mutable_nodes(0)->mutable_facts()->set_os_build("26A1"); }));
  EXPECT_TRUE(
      changed([](auto& s) { s.mutable_nodes(0)->mutable_facts()->set_mlx_version("1.0"); }));
  EXPECT_TRUE(
      changed([](auto& s) { s.mutable_nodes(0)->mutable_facts()->set_hardware_id("new"); }));
  EXPECT_TRUE(changed([](auto& s) {
    s.mutable_nodes(0)->mutable_facts()->add_rdma_devices()->set_name("rdma_en2");
  }));
  EXPECT_TRUE(changed(
      [](auto& s) { s.mutable_nodes(0)->mutable_facts()->set_kernel_refuses_rdma(v1::FACT_NO); }));
  EXPECT_TRUE(changed([](auto& s) {
    s.mutable_support_list()->set_date("2027-01-01");
    v1::SupportEntry& entry = *s.mutable_support_list()->add_entries();
    entry.set_subject("rdma");
    entry.set_supported(true);
  }));
  // What can't be read now, or another node's update, changes nothing.
  EXPECT_FALSE(changed([](auto& s) { s.mutable_nodes(0)->mutable_facts()->clear_os_build(); }));
  EXPECT_FALSE(changed([](auto& s) { s.mutable_nodes(1)->mutable_facts()->set_os_build("26A1"); }));
}

TEST(Diagnosis, ADownstreamSymptomIsReportedUnderItsCause) {
  v1::LinkSnapshot snapshot = GoodPair();
  snapshot.mutable_nodes(0)->mutable_facts()->mutable_ports(0)->set_is_thunderbolt5(v1::FACT_NO);
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  v1::Reason symptom;
  symptom.set_code("PORT_DOWN");
  const std::vector<std::string> both = {"mini-a", "mini-b"};
  EXPECT_EQ(RootCause(snapshot, links, both, symptom).code(), "TB4_CONTROLLER");
  symptom.set_code("MEMORY_SHORT");
  EXPECT_EQ(RootCause(snapshot, links, both, symptom).code(), "MEMORY_SHORT");
}

TEST(NetPlan, NeverTakesASubnetThatAnybodyHas) {
  v1::LinkSnapshot snapshot = GoodPair();
  for (int node : {0, 1}) {
    for (auto& one : *snapshot.mutable_nodes(node)->mutable_facts()->mutable_interfaces()) {
      if (one.kind() == v1::INTERFACE_KIND_THUNDERBOLT) one.clear_addresses();
    }
  }
  // A container's, beside the routes that the cable had.
  v1::LinkInterface& other = *snapshot.mutable_nodes(0)->mutable_facts()->add_interfaces();
  other.set_name("vmenet0");
  v1::NodeAddress& address = *other.add_addresses();
  address.set_ip("10.77.5.2");
  address.set_prefix_length(24);
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  const auto plan = PlanAddresses(snapshot, links, "");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->block(), "10.177.0.0/20") << "10.77.5.2 is in use";
  ASSERT_EQ(plan->addresses_size(), 2);
  EXPECT_EQ(plan->addresses(0).ip(), "10.177.0.1");
  EXPECT_EQ(plan->addresses(1).ip(), "10.177.0.2");
  for (const v1::NetCommand& command : plan->commands()) {
    EXPECT_EQ(command.command().rfind("networksetup -", 0), 0u) << command.command();
    EXPECT_EQ(command.command().find("location"), std::string::npos);
  }
  EXPECT_EQ(PlanAddresses(snapshot, links, "192.0.2.0/24").status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(PlanAddresses(snapshot, links, "nonsense").status().code(),
            absl::StatusCode::kInvalidArgument);
}

// As after 'net apply' on one machine: the other's part is what it was.
TEST(NetPlan, TheEndThatLacksAnAddressGetsTheOtherOfItsSubnet) {
  v1::LinkSnapshot snapshot = GoodPair();
  for (auto& one : *snapshot.mutable_nodes(0)->mutable_facts()->mutable_interfaces()) {
    if (one.name() == "en2") one.clear_addresses();
  }
  for (const char* block : {"", "10.77.0.0/20", "10.200.0.0/20"}) {
    const auto plan = PlanAddresses(snapshot, JudgeLinks(snapshot), block);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->addresses_size(), 1);
    EXPECT_EQ(plan->addresses(0).node_id(), "mini-a");
    EXPECT_EQ(plan->addresses(0).ip(), "10.77.5.1");
    EXPECT_EQ(plan->block(), "") << "no subnet is taken";
  }
  // Where somebody else has that subnet too, both ends move.
  v1::LinkInterface& other = *snapshot.mutable_nodes(1)->mutable_facts()->add_interfaces();
  other.set_name("utun4");
  v1::NodeAddress& address = *other.add_addresses();
  address.set_ip("10.77.4.1");
  address.set_prefix_length(22);
  const auto plan = PlanAddresses(snapshot, JudgeLinks(snapshot), "");
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->addresses_size(), 2);
  EXPECT_EQ(plan->addresses(0).ip(), "10.177.0.1");
}

}  // namespace
}  // namespace macrame::transport
