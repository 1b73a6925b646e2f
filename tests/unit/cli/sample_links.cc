#include "tests/unit/cli/sample_links.h"

#include "proto/reasons.h"
#include "tests/unit/cli/sample_messages.h"
#include "tests/unit/transport/links/link_facts_for_tests.h"
#include "transport/links/diagnosis.h"
#include "transport/links/judge.h"
#include "transport/links/refusals.h"

namespace macrame::cli {
namespace {

constexpr char kRefused[] =
    "kernel: Thunderbolt controller does not support Thunderbolt 5, RDMA not supported";

v1::LinkSnapshot Snapshot() {
  v1::LinkSnapshot snapshot = transport::GoodPair();
  v1::NodeLinks& old = *snapshot.mutable_nodes(0);
  v1::LinkFacts& facts = *old.mutable_facts();
  facts.set_machine_model("Mac15,9");
  facts.set_chip("Apple M3 Max");
  facts.set_kernel_refuses_rdma(v1::FACT_YES);
  v1::KernelLine& line = *facts.add_kernel_lines();
  line.set_code("TB4_CONTROLLER");
  line.set_text(kRefused);
  facts.clear_rdma_devices();
  facts.set_internet_sharing(v1::FACT_YES);
  v1::ThunderboltPort& port = *facts.mutable_ports(0);
  port.clear_rdma_device();
  port.set_is_thunderbolt5(v1::FACT_NO);
  port.set_speed_gbps(40);
  port.mutable_peers(0)->set_advertises_rdma(v1::FACT_YES);
  snapshot.mutable_nodes(1)->mutable_facts()->mutable_ports(0)->set_speed_gbps(40);
  snapshot.mutable_nodes(1)
      ->mutable_facts()
      ->mutable_ports(0)
      ->mutable_peers(0)
      ->set_advertises_rdma(v1::FACT_NO);
  v1::LinkMeasurement& measured = *old.add_measurements();
  measured.set_from_node_id("mini-a");
  measured.set_to_node_id("mini-b");
  measured.set_from_ip("10.77.5.1");
  measured.set_to_ip("10.77.5.2");
  measured.set_kind(v1::INTERFACE_KIND_THUNDERBOLT);
  measured.set_round_trip_us_min(210);
  measured.set_round_trip_us_p50(260);
  measured.set_round_trip_us_p99(410);
  measured.set_round_trips(50);
  measured.set_bandwidth_bytes_per_second(1.9e9);
  for (const v1::TransportRefusal& refusal : transport::NewRefusals(snapshot)) {
    *snapshot.add_refusals() = refusal;
  }
  return snapshot;
}

}  // namespace

v1::LinksView SamplePair() {
  const v1::LinkSnapshot snapshot = Snapshot();
  v1::LinksView view;
  *view.mutable_links() = transport::JudgeLinks(snapshot);
  *view.mutable_nodes() = snapshot.nodes();
  *view.mutable_refusals() = snapshot.refusals();
  for (const v1::NodeLinks& node : snapshot.nodes()) {
    v1::NodeIdentity& identity = *view.add_identities();
    identity.set_node_id(node.node_id());
    identity.set_hostname(node.facts().hostname());
  }
  return view;
}

v1::Diagnosis SampleDiagnosis() {
  const v1::LinkSnapshot snapshot = Snapshot();
  const v1::Reason run =
      MakeReason("CONNECT_FAILED", "Couldn't allocate protection domain", "mini-a");
  return transport::Diagnose(snapshot, transport::JudgeLinks(snapshot), {}, {&run, 1});
}

v1::NetPlan SampleNetPlan() {
  v1::NetPlan plan;
  const auto add = [&](const std::string& node, const std::string& command,
                       const std::string& undo) {
    v1::NetCommand& one = *plan.add_commands();
    one.set_node_id(node);
    one.set_command(command);
    one.set_undo(undo);
  };
  const std::string own = HealthyCluster().answered_by(), other = "another";
  add(own, "networksetup -setnetworkserviceenabled \"Thunderbolt Bridge\" off",
      "networksetup -setnetworkserviceenabled \"Thunderbolt Bridge\" on");
  add(own, "networksetup -setmanual \"Thunderbolt 2\" 10.77.0.1 255.255.255.252",
      "networksetup -setdhcp \"Thunderbolt 2\"");
  add(other, "networksetup -setmanual \"Thunderbolt 1\" 10.77.0.2 255.255.255.252",
      "networksetup -setdhcp \"Thunderbolt 1\"");
  return plan;
}

}  // namespace macrame::cli
