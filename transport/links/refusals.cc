#include "transport/links/refusals.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/backends.h"
#include "proto/reason_codes.h"
#include "transport/links/link_ends.h"

namespace macrame::transport {
namespace {

// How long a verbs backend that could not be formed is left alone.
constexpr uint64_t kVerbsRefusalMs = 10 * 60 * 1000;

// Causes that nothing but one of the triggers can change.
constexpr std::string_view kFinalCodes[] = {reasons::kTb4Controller};

const v1::LinkFacts* FactsOf(const v1::LinkSnapshot& snapshot, const std::string& node_id) {
  for (const v1::NodeLinks& node : snapshot.nodes()) {
    if (node.node_id() == node_id) return &node.facts();
  }
  return nullptr;
}

std::set<std::string> RdmaNames(const google::protobuf::RepeatedPtrField<std::string>& names) {
  std::set<std::string> found;
  for (const std::string& name : names) found.insert(name);
  return found;
}

template <typename List>
bool Matches(const List& list, const std::string& value) {
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

bool Supports(const v1::SupportEntry& entry, const v1::LinkFacts& facts) {
  if (entry.subject() != "rdma" || !entry.supported()) return false;
  if (!Matches(entry.machine_models(), facts.machine_model())) return false;
  if (!Matches(entry.chips(), facts.chip())) return false;
  if (!entry.os_version_min().empty() &&
      (facts.os_version().empty() ||
       CompareVersions(facts.os_version(), entry.os_version_min()) < 0)) {
    return false;
  }
  return entry.mlx_version_min().empty() ||
         (!facts.mlx_version().empty() &&
          CompareVersions(facts.mlx_version(), entry.mlx_version_min()) >= 0);
}

// A newer file than the one that was known when it was decided.
std::optional<std::string> SupportTrigger(const v1::TransportRefusal& refusal,
                                          const v1::LinkFacts& facts, const v1::SupportList& list) {
  if (list.date() <= refusal.support_list_date()) return std::nullopt;
  // What such machines can do says nothing about one that restarts under load.
  if (refusal.reason().code() == reasons::kNodeCrashed) return std::nullopt;
  for (const v1::SupportEntry& entry : list.entries()) {
    if (!Supports(entry, facts)) continue;
    return absl::StrCat("what is known as of ", list.date(), " says that ", facts.machine_model(),
                        " is supported", entry.source().empty() ? "" : ": ", entry.source());
  }
  return std::nullopt;
}

std::optional<std::string> KeyTrigger(const v1::NodeKey& then, const v1::LinkFacts& facts,
                                      const v1::TransportRefusal& refusal) {
  const v1::NodeKey now = KeyOf(facts);
  const auto changed = [](const std::string& a, const std::string& b) {
    return !a.empty() && !b.empty() && a != b;
  };
  const std::string& host = facts.hostname();
  if (changed(then.hardware_id(), now.hardware_id())) {
    return absl::StrCat("the machine of ", host, " was replaced");
  }
  if (changed(then.os_build(), now.os_build())) {
    return absl::StrCat(host, " went from build ", then.os_build(), " to ", now.os_build());
  }
  if (changed(then.mlx_version(), now.mlx_version())) {
    return absl::StrCat(host, " went from MLX ", then.mlx_version(), " to ", now.mlx_version());
  }
  // A machine that crashed has all its devices when it comes back: they prove nothing.
  if (refusal.reason().code() == reasons::kNodeCrashed) return std::nullopt;
  if (then.kernel_refuses_rdma() == v1::FACT_YES && now.kernel_refuses_rdma() == v1::FACT_NO) {
    return absl::StrCat("the kernel of ", host, " refuses RDMA no more");
  }
  if (facts.rdma_devices_listed() != v1::FACT_YES) return std::nullopt;
  const std::set<std::string> before = RdmaNames(then.rdma_devices());
  for (const std::string& name : now.rdma_devices()) {
    if (!before.contains(name)) return absl::StrCat(name, " appeared on ", host);
  }
  // Ports and addresses of verbs devices come and go with cables; a refusal lasts no longer.
  if (BackendNamed(refusal.backend()) != Backend::kVerbs || then.rdma_ports_size() == 0)
    return std::nullopt;
  const std::set<std::string> ports = RdmaNames(then.rdma_ports());
  for (const std::string& port : now.rdma_ports()) {
    if (!ports.contains(port)) return absl::StrCat("on ", host, " it is now: ", port);
  }
  return ports.size() == static_cast<size_t>(now.rdma_ports_size())
             ? std::nullopt
             : std::optional<std::string>(absl::StrCat("a device of ", host, " is gone"));
}

bool IsHeld(const v1::LinkSnapshot& snapshot, const v1::TransportRefusal& refusal) {
  return std::any_of(
      snapshot.refusals().begin(), snapshot.refusals().end(),
      [&](const v1::TransportRefusal& held) { return RefusalKey(held) == RefusalKey(refusal); });
}

std::optional<v1::Reason> FinalReason(const v1::LinkVerdict& link, const std::string& node_id) {
  const v1::LinkEnd& end = link.a().node_id() == node_id ? link.a() : link.b();
  for (const v1::Reason& reason : end.reasons()) {
    for (const std::string_view code : kFinalCodes) {
      if (reason.code() == code) return reason;
    }
  }
  return std::nullopt;
}

}  // namespace

v1::NodeKey KeyOf(const v1::LinkFacts& facts) {
  v1::NodeKey key;
  key.set_node_id(facts.node_id());
  key.set_hardware_id(facts.hardware_id());
  key.set_os_build(facts.os_build());
  key.set_mlx_version(facts.mlx_version());
  key.set_kernel_refuses_rdma(facts.kernel_refuses_rdma());
  std::set<std::string> names;
  for (const v1::RdmaDevice& device : facts.rdma_devices()) names.insert(device.name());
  for (const std::string& name : names) key.add_rdma_devices(name);
  std::set<std::string> ports;
  for (const v1::RdmaDevice& device : facts.rdma_devices()) {
    std::string port = absl::StrCat(
        device.name(), device.port_state() == v1::RDMA_PORT_STATE_ACTIVE ? " active" : " down");
    for (const v1::RdmaGid& gid : device.gids()) {
      if (!gid.ipv4().empty()) absl::StrAppend(&port, " ", gid.ipv4());
    }
    ports.insert(std::move(port));
  }
  for (const std::string& port : ports) key.add_rdma_ports(port);
  return key;
}

v1::TransportRefusal MakeRefusal(const v1::LinkSnapshot& snapshot,
                                 const std::vector<std::string>& node_ids,
                                 const std::string& backend, const v1::Reason& cause,
                                 const v1::Reason& symptom) {
  v1::TransportRefusal refusal;
  const std::set<std::string> sorted(node_ids.begin(), node_ids.end());
  for (const std::string& id : sorted) {
    refusal.add_node_ids(id);
    const v1::LinkFacts* facts = FactsOf(snapshot, id);
    if (facts != nullptr) *refusal.add_keys() = KeyOf(*facts);
  }
  refusal.set_backend(backend);
  *refusal.mutable_reason() = cause;
  if (symptom.code() != cause.code()) *refusal.mutable_symptom() = symptom;
  refusal.set_decided_unix_ms(snapshot.now_unix_ms());
  refusal.set_support_list_date(snapshot.support_list().date());
  return refusal;
}

std::vector<v1::TransportRefusal> NewRefusals(const v1::LinkSnapshot& snapshot) {
  std::vector<v1::TransportRefusal> found;
  std::set<std::string> done;
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  for (const v1::LinkVerdict& link : links.links()) {
    for (const std::string& id : {link.a().node_id(), link.b().node_id()}) {
      const std::optional<v1::Reason> reason = id.empty() ? std::nullopt : FinalReason(link, id);
      if (!reason.has_value() || !done.insert(id).second) continue;
      v1::TransportRefusal refusal =
          MakeRefusal(snapshot, {id}, NameOf(Backend::kJaccl), *reason, *reason);
      if (!IsHeld(snapshot, refusal)) found.push_back(std::move(refusal));
    }
  }
  return found;
}

std::optional<std::string> TriggerToRetry(const v1::TransportRefusal& refusal,
                                          const v1::LinkSnapshot& snapshot) {
  // Cables between Linux machines heal without a trace; what crashed a machine does not.
  const bool passes = BackendNamed(refusal.backend()) == Backend::kVerbs &&
                      refusal.reason().code() != reasons::kNodeCrashed;
  if (passes && snapshot.now_unix_ms() > refusal.decided_unix_ms() + kVerbsRefusalMs) {
    return "it was some time ago";
  }
  for (const v1::NodeKey& key : refusal.keys()) {
    const v1::LinkFacts* facts = FactsOf(snapshot, key.node_id());
    if (facts == nullptr) continue;
    std::optional<std::string> trigger = KeyTrigger(key, *facts, refusal);
    if (!trigger.has_value()) trigger = SupportTrigger(refusal, *facts, snapshot.support_list());
    if (trigger.has_value()) return trigger;
  }
  return std::nullopt;
}

std::string RefusalKey(const v1::TransportRefusal& refusal) {
  const std::set<std::string> sorted(refusal.node_ids().begin(), refusal.node_ids().end());
  return absl::StrCat("refusal/", refusal.backend(), "/", absl::StrJoin(sorted, ","));
}

}  // namespace macrame::transport
