// Linux machines with verbs devices: each fault its own reason, and refusals that end with it.

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "transport/links/judge.h"
#include "transport/links/refusals.h"

namespace macrame::transport {
namespace {

void AddNode(v1::LinkSnapshot& snapshot, const std::string& id, const std::string& ip) {
  v1::NodeLinks& node = *snapshot.add_nodes();
  node.set_node_id(id);
  v1::LinkFacts& facts = *node.mutable_facts();
  facts.set_node_id(id);
  facts.set_hostname(id);
  facts.set_is_mac(v1::FACT_NO);
  facts.set_rdma_devices_listed(v1::FACT_YES);
  const auto add = [&](const std::string& name, const std::string& address, uint32_t prefix) {
    v1::LinkInterface& interface = *facts.add_interfaces();
    interface.set_name(name);
    interface.set_kind(v1::INTERFACE_KIND_ETHERNET);
    interface.set_is_up(v1::FACT_YES);
    v1::NodeAddress& held = *interface.add_addresses();
    held.set_ip(address);
    held.set_prefix_length(prefix);
  };
  add("cable0", ip, 30);
  add("lan0", id == "box-a" ? "192.0.2.1" : "192.0.2.2", 24);
  v1::RdmaDevice& device = *facts.add_rdma_devices();
  device.set_name("rxe_cable0");
  device.set_interface_name("cable0");
  device.set_port_state(v1::RDMA_PORT_STATE_ACTIVE);
  device.set_gids_known(true);
  v1::RdmaGid& gid = *device.add_gids();
  gid.set_index(1);
  gid.set_ipv4(ip);
}

v1::LinkSnapshot Pair() {
  v1::LinkSnapshot snapshot;
  AddNode(snapshot, "box-a", "10.4.0.1");
  AddNode(snapshot, "box-b", "10.4.0.2");
  return snapshot;
}

std::set<std::string> CodesOf(const google::protobuf::RepeatedPtrField<v1::Reason>& reasons) {
  std::set<std::string> codes;
  for (const v1::Reason& reason : reasons) codes.insert(reason.code());
  return codes;
}

TEST(VerbsLinks, ACableWithDevicesAtBothEndsIsVerbs) {
  const v1::ClusterLinks links = JudgeLinks(Pair());
  EXPECT_EQ(links.group().verdict(), "verbs") << links.DebugString();
  EXPECT_EQ(links.group().device_matrix(0).cells(1).devices(0), "rxe_cable0");
}

struct Loss {
  const char* code;
  std::function<void(v1::LinkFacts&)> make;
};

class LossTest : public testing::TestWithParam<Loss> {};

// The group's own reason is what a gang that runs over verbs is ended for.
TEST_P(LossTest, IsNamedByTheGroupAndTheRingServes) {
  v1::LinkSnapshot snapshot = Pair();
  GetParam().make(*snapshot.mutable_nodes(0)->mutable_facts());
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  EXPECT_EQ(links.group().verdict(), "ring-only") << links.DebugString();
  ASSERT_GE(links.group().choices_size(), 1);
  EXPECT_TRUE(CodesOf(links.group().choices(0).reasons()).contains(GetParam().code))
      << links.group().DebugString();
}

INSTANTIATE_TEST_SUITE_P(
    Codes, LossTest,
    testing::Values(
        Loss{"NO_VERBS_DEVICE", [](v1::LinkFacts& facts) { facts.clear_rdma_devices(); }},
        Loss{"PORT_DOWN",
             [](v1::LinkFacts& facts) {
               facts.mutable_rdma_devices(0)->set_port_state(v1::RDMA_PORT_STATE_DOWN);
             }},
        Loss{"NO_IPV4_GID",
             [](v1::LinkFacts& facts) { facts.mutable_rdma_devices(0)->clear_gids(); }},
        // Without its address nobody shares a subnet with it: it is still told what it lacks.
        Loss{"NO_IPV4_GID", [](v1::LinkFacts& facts) {
               facts.mutable_rdma_devices(0)->clear_gids();
               facts.mutable_interfaces(0)->clear_addresses();
             }}));

TEST(VerbsLinks, APortThatIsDownHasARemedyForLinux) {
  v1::LinkSnapshot snapshot = Pair();
  v1::LinkFacts& facts = *snapshot.mutable_nodes(0)->mutable_facts();
  facts.mutable_rdma_devices(0)->set_port_state(v1::RDMA_PORT_STATE_DOWN);
  const std::string up = "'ip link set " + facts.rdma_devices(0).interface_name() + " up'";
  int told = 0;
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  for (const v1::LinkVerdict& link : links.links()) {
    for (const v1::Reason& reason : link.reasons()) {
      if (reason.code() != "PORT_DOWN") continue;
      ++told;
      EXPECT_NE(reason.remedy().find(up), std::string::npos) << reason.remedy();
      EXPECT_EQ(reason.remedy().find("Mac"), std::string::npos) << reason.remedy();
    }
  }
  EXPECT_GT(told, 0);
}

TEST(VerbsLinks, ARefusalEndsWhenPortsOrAddressesChange) {
  v1::LinkSnapshot snapshot = Pair();
  v1::Reason why;
  why.set_code("CONNECT_FAILED");
  const v1::TransportRefusal refusal = MakeRefusal(snapshot, {"box-a", "box-b"}, "verbs", why, why);
  *snapshot.add_refusals() = refusal;
  EXPECT_FALSE(TriggerToRetry(refusal, snapshot).has_value());
  EXPECT_EQ(JudgeLinks(snapshot).group().verdict(), "ring-only") << "not tried again";
  v1::LinkSnapshot later = snapshot;
  later.set_now_unix_ms(refusal.decided_unix_ms() + 3600 * 1000);
  EXPECT_TRUE(TriggerToRetry(refusal, later).has_value()) << "a fault that passed left no trace";
  v1::TransportRefusal crashed = refusal;
  crashed.mutable_reason()->set_code("NODE_CRASHED");
  EXPECT_FALSE(TriggerToRetry(crashed, later).has_value()) << "what takes machines down stays";
  v1::LinkSnapshot down = snapshot, gone = snapshot, moved = snapshot;
  down.mutable_nodes(1)->mutable_facts()->mutable_rdma_devices(0)->set_port_state(
      v1::RDMA_PORT_STATE_DOWN);
  EXPECT_TRUE(TriggerToRetry(refusal, down).has_value());
  gone.mutable_nodes(0)->mutable_facts()->clear_rdma_devices();
  EXPECT_FALSE(TriggerToRetry(crashed, gone).has_value());
  EXPECT_TRUE(TriggerToRetry(refusal, gone).has_value());
  moved.mutable_nodes(0)->mutable_facts()->mutable_rdma_devices(0)->mutable_gids(0)->set_ipv4(
      "10.4.0.9");
  EXPECT_TRUE(TriggerToRetry(refusal, moved).has_value());
}

}  // namespace
}  // namespace macrame::transport
