#include "agentd/node/lost_nodes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

v1::Finding FindingOf(const NodeFacts& node) {
  const bool is_dead = node.state == v1::NODE_STATE_DEAD;
  const std::string& told = node.state_reason.message();
  v1::Finding finding;
  finding.set_severity(is_dead ? v1::SEVERITY_ERROR : v1::SEVERITY_WARNING);
  v1::Reason& reason = *finding.mutable_reason();
  reason = MakeReason(is_dead ? reasons::kNodeDead : reasons::kNodeSuspect,
                      absl::StrCat(node.display_name, is_dead ? " is dead" : " may be dead",
                                   told.empty() ? "" : ": ", told),
                      node.id.value());
  finding.set_symptom(reason.message());
  finding.set_cause(std::string(FindReasonCode(reason.code())->meaning));
  finding.add_steps(reason.remedy());
  return finding;
}

}  // namespace

v1::Reason OneWayReachable(const NodeFacts& from, const NodeFacts& to) {
  const std::string port = absl::StrCat("TCP port ", to.identity.control_port());
  std::string addresses;
  for (const v1::NodeAddress& address : to.identity.addresses()) {
    absl::StrAppend(&addresses, addresses.empty() ? " (" : ", ", address.ip());
  }
  if (!addresses.empty()) absl::StrAppend(&addresses, ")");
  v1::Reason reason = MakeReason(
      reasons::kOneWayReachable,
      absl::StrCat(from.display_name, " hears ", to.display_name, " but can't call it: ", port,
                   " of ", to.display_name, addresses, " does not answer ", from.display_name,
                   ", so it takes no orders from it and does not elect it"),
      to.id.value());
  reason.set_remedy(absl::StrCat("allow ", port, " inbound in the firewall of ", to.display_name,
                                 ", and see that one of its addresses can be reached from ",
                                 from.display_name, " (ping, routes, address translation)"));
  return reason;
}

void AddLostNodes(const std::vector<NodeFacts>& nodes, const std::set<std::string>& asked,
                  v1::Diagnosis* diagnosis) {
  std::vector<std::string> dead;
  v1::Diagnosis all;
  for (const v1::NodeState state : {v1::NODE_STATE_DEAD, v1::NODE_STATE_SUSPECT}) {
    for (const NodeFacts& node : nodes) {
      if (node.state != state || (!asked.empty() && !asked.contains(node.id.value()))) continue;
      *all.add_findings() = FindingOf(node);
      if (state == v1::NODE_STATE_DEAD) dead.push_back(node.display_name);
    }
  }
  if (all.findings().empty()) return;
  all.mutable_findings()->MergeFrom(diagnosis->findings());
  diagnosis->mutable_findings()->Swap(all.mutable_findings());
  if (dead.empty()) return;
  diagnosis->set_conclusion(absl::StrCat(absl::StrJoin(dead, ", "),
                                         dead.size() == 1 ? " is" : " are",
                                         " dead. Apart from that: ", diagnosis->conclusion()));
}

}  // namespace macrame::agentd
