#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "transport/links/ipv4.h"
#include "transport/links/link_ends.h"
#include "transport/links/node_links.h"

namespace macrame::transport {
namespace {

// One verbs device, or an interface without one, with an address that a peer may share a subnet
// with.
struct Candidate {
  const v1::LinkFacts* facts;
  const v1::LinkInterface* interface;
  const v1::RdmaDevice* device;  // null: the interface has none
  uint32_t address;
  Ipv4Subnet subnet;
};

const v1::RdmaDevice* DeviceOf(const v1::LinkFacts& facts, const std::string& interface_name) {
  for (const v1::RdmaDevice& device : facts.rdma_devices()) {
    if (device.interface_name() == interface_name) return &device;
  }
  return nullptr;
}

std::vector<Candidate> CandidatesOf(const v1::LinkFacts& facts) {
  std::vector<Candidate> found;
  for (const v1::LinkInterface& interface : facts.interfaces()) {
    if (interface.kind() == v1::INTERFACE_KIND_LOOPBACK) continue;
    for (const v1::NodeAddress& address : interface.addresses()) {
      const auto ip = ParseIpv4(address.ip());
      if (!ip || IsLoopback(*ip) || IsNoHost(*ip)) continue;
      found.push_back({&facts, &interface, DeviceOf(facts, interface.name()), *ip,
                       SubnetHeld(*ip, address.prefix_length())});
    }
  }
  return found;
}

void Fault(v1::LinkEnd& end, std::string_view code, std::string message) {
  *end.add_reasons() = MakeReason(code, std::move(message), end.node_id());
}

// The code's own remedy is for Macs.
void PortDown(const v1::RdmaDevice& device, v1::LinkEnd& end) {
  Fault(end, reasons::kPortDown, absl::StrCat("the port of ", device.name(), " is not active"));
  const std::string& interface = device.interface_name();
  v1::Reason& why = *end.mutable_reasons(end.reasons_size() - 1);
  why.set_remedy(absl::StrCat("plug the cable in at both ends; bring the interface up",
                              interface.empty() ? "" : ": 'ip link set ", interface,
                              interface.empty() ? "" : " up'"));
}

// Why there is no device for this interface, told apart.
void ExplainMissing(const Candidate& one, v1::LinkEnd& end) {
  const std::string& host = one.facts->hostname();
  if (one.facts->verbs_library_missing()) {
    Fault(end, reasons::kVerbsLibraryMissing, absl::StrCat(host, " has no libibverbs"));
  } else if (one.facts->rdma_devices_listed() == v1::FACT_UNKNOWN) {
    Fault(end, reasons::kFactUnknown,
          absl::StrCat(host, ": its verbs devices could not be listed"));
  } else {
    Fault(end, reasons::kNoVerbsDevice,
          absl::StrCat(host, " has no verbs device on ", one.interface->name()));
  }
}

v1::LinkEnd JudgeVerbsEnd(const Candidate& one) {
  v1::LinkEnd end;
  end.set_node_id(one.facts->node_id());
  end.set_hostname(one.facts->hostname());
  end.set_interface_name(one.interface->name());
  end.set_ip(Ipv4Text(one.address));
  if (one.device == nullptr) {
    ExplainMissing(one, end);
    return end;
  }
  const v1::RdmaDevice& device = *one.device;
  end.set_rdma_device(device.name());
  if (device.has_fault()) {
    *end.add_reasons() = device.fault();
    return end;
  }
  if (device.port_state() == v1::RDMA_PORT_STATE_UNKNOWN) {
    Fault(end, reasons::kFactUnknown,
          absl::StrCat("the state of ", device.name(), " is not known"));
  } else if (device.port_state() != v1::RDMA_PORT_STATE_ACTIVE) {
    PortDown(device, end);
  }
  if (!device.gids_known()) {
    Fault(end, reasons::kFactUnknown,
          absl::StrCat("the GIDs of ", device.name(), " are not known"));
    return end;
  }
  for (const v1::RdmaGid& gid : device.gids()) {
    if (gid.ipv4() != end.ip()) continue;
    end.set_gid_index(gid.index());
    return end;
  }
  Fault(end, reasons::kNoIpv4Gid, absl::StrCat(device.name(), " has no GID for ", end.ip()));
  return end;
}

v1::LinkVerdict JudgePair(const NodesById& nodes, const Candidate& a, const Candidate& b) {
  v1::LinkVerdict link;
  link.set_kind(v1::LINK_KIND_VERBS);
  *link.mutable_a() = JudgeVerbsEnd(a);
  *link.mutable_b() = JudgeVerbsEnd(b);
  std::vector<v1::Reason> all(link.a().reasons().begin(), link.a().reasons().end());
  all.insert(all.end(), link.b().reasons().begin(), link.b().reasons().end());
  std::stable_sort(all.begin(), all.end(), [](const v1::Reason& x, const v1::Reason& y) {
    return LayerOf(x.code()) < LayerOf(y.code());
  });
  bool fails = false;
  for (const v1::Reason& reason : all) {
    fails = fails || reason.code() != reasons::kFactUnknown;
    *link.add_reasons() = reason;
  }
  link.set_rdma_usable(fails ? v1::FACT_NO : all.empty() ? v1::FACT_YES : v1::FACT_UNKNOWN);
  for (const v1::Reason& reason : all) {
    if (reason.code() == reasons::kFactUnknown) continue;
    link.set_lowest_failing_layer(std::string(LayerName(LayerOf(reason.code()))));
    break;
  }
  const uint64_t slower = std::min(a.interface->speed_mbps(), b.interface->speed_mbps());
  link.set_speed_gbps(static_cast<uint32_t>(slower / 1000));
  const v1::LinkMeasurement* measured =
      FindMeasurement(nodes, link.a().node_id(), link.a().ip(), link.b().node_id(), link.b().ip());
  if (measured != nullptr) *link.mutable_measurement() = *measured;
  return link;
}

// Devices whose interface has no IPv4 address: whoever is at the other end, nobody meets them.
void AddUnaddressed(const v1::LinkFacts& facts, const std::vector<Candidate>& candidates,
                    std::vector<v1::LinkVerdict>& links) {
  for (const v1::RdmaDevice& device : facts.rdma_devices()) {
    const bool has_address =
        std::any_of(candidates.begin(), candidates.end(),
                    [&](const Candidate& one) { return one.device == &device; });
    if (has_address || device.interface_name().empty()) continue;
    v1::LinkVerdict& link = links.emplace_back();
    link.set_kind(v1::LINK_KIND_VERBS);
    v1::LinkEnd& end = *link.mutable_a();
    end.set_node_id(facts.node_id());
    end.set_hostname(facts.hostname());
    end.set_interface_name(device.interface_name());
    end.set_rdma_device(device.name());
    if (device.port_state() == v1::RDMA_PORT_STATE_DOWN) PortDown(device, end);
    Fault(end, reasons::kNoIpv4Gid,
          absl::StrCat(device.name(), " has no IPv4-mapped GID: ", device.interface_name(), " of ",
                       facts.hostname(), " has no IPv4 address"));
    *link.mutable_reasons() = end.reasons();
    link.set_rdma_usable(v1::FACT_NO);
    link.set_lowest_failing_layer(std::string(LayerName(LayerOf(end.reasons(0).code()))));
  }
}

}  // namespace

std::vector<v1::LinkVerdict> JudgeVerbs(const NodesById& nodes) {
  std::vector<v1::LinkVerdict> links;
  for (auto a = nodes.begin(); a != nodes.end(); ++a) {
    if (a->second->facts().is_mac() == v1::FACT_YES) continue;
    const std::vector<Candidate> mine = CandidatesOf(a->second->facts());
    AddUnaddressed(a->second->facts(), mine, links);
    for (auto b = std::next(a); b != nodes.end(); ++b) {
      if (b->second->facts().is_mac() == v1::FACT_YES) continue;
      std::set<std::pair<std::string, std::string>> devices;
      for (const Candidate& one : mine) {
        for (const Candidate& other : CandidatesOf(b->second->facts())) {
          if (!(one.subnet == other.subnet) || one.address == other.address) continue;
          // Two plain interfaces are an IP link and nothing else.
          if (one.device == nullptr && other.device == nullptr) continue;
          if (!devices.emplace(one.interface->name(), other.interface->name()).second) continue;
          links.push_back(JudgePair(nodes, one, other));
        }
      }
    }
  }
  return links;
}

}  // namespace macrame::transport
