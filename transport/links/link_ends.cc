#include "transport/links/link_ends.h"

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/reasons.h"
#include "transport/links/ipv4.h"
#include "transport/links/network_services.h"

namespace macrame::transport {
namespace {

struct EndInput {
  const v1::LinkFacts& facts;
  const v1::ThunderboltPort& port;
  const v1::ThunderboltPeer* peer;
  const v1::LinkFacts* peer_facts;
  const v1::ThunderboltPort* peer_port;
};

v1::Reason At(const EndInput& in, std::string_view code, std::string message,
              std::string evidence = "") {
  v1::Reason reason = MakeReason(code, std::move(message), in.facts.node_id());
  reason.set_evidence(std::move(evidence));
  return reason;
}

v1::Reason Unknown(const EndInput& in, std::string what) {
  return At(in, reasons::kFactUnknown, absl::StrCat(PortText(in.facts, in.port), ": ", what));
}

bool HasRdmaDevice(const v1::LinkFacts& facts) {
  return std::any_of(
      facts.rdma_devices().begin(), facts.rdma_devices().end(),
      [](const v1::RdmaDevice& device) { return device.name().rfind("rdma_", 0) == 0; });
}

void JudgeOs(const EndInput& in, EndVerdict& out) {
  const v1::LinkFacts& facts = in.facts;
  if (facts.is_virtual_machine() == v1::FACT_YES) {
    out.reasons.push_back(
        At(in, reasons::kVirtual, absl::StrCat(facts.hostname(), " is a virtual machine")));
  }
  if (facts.os_version().empty()) {
    out.unknown.push_back(Unknown(in, "the version of macOS is not known"));
  } else if (CompareVersions(facts.os_version(), kRdmaOsVersionMin) < 0) {
    out.reasons.push_back(At(in, reasons::kOsTooOld,
                             absl::StrCat(facts.hostname(), " runs macOS ", facts.os_version(),
                                          "; RDMA needs ", kRdmaOsVersionMin, " or later")));
  }
}

std::string RefusalLine(const v1::LinkFacts& facts) {
  for (const v1::KernelLine& line : facts.kernel_lines()) {
    if (line.code() == reasons::kTb4Controller) return line.text();
  }
  return "";
}

void JudgeController(const EndInput& in, EndVerdict& out) {
  const bool refused = in.facts.kernel_refuses_rdma() == v1::FACT_YES;
  const bool listed = !in.port.rdma_device().empty();
  const auto older = [&](std::string evidence) {
    out.reasons.push_back(
        At(in, reasons::kTb4Controller,
           absl::StrCat("the Thunderbolt controller of ", PortText(in.facts, in.port),
                        " is not Thunderbolt 5; macOS refuses RDMA on it"),
           std::move(evidence)));
  };
  if (in.port.is_thunderbolt5() == v1::FACT_NO) {
    older(refused ? RefusalLine(in.facts) : in.port.controller_evidence());
  } else if (refused && !listed) {
    // The driver itself says so, in so many words: nothing outweighs it for this build of macOS.
    older(RefusalLine(in.facts));
  } else if (in.port.is_thunderbolt5() == v1::FACT_UNKNOWN && !listed) {
    out.unknown.push_back(Unknown(in, "the generation of its controller is not known"));
  }
  if (refused && listed) {
    out.warnings.push_back(
        At(in, reasons::kConflictingFacts,
           absl::StrCat("the kernel's log refuses RDMA, yet ", in.port.rdma_device(), " is listed"),
           RefusalLine(in.facts)));
  }
}

void JudgeEnablement(const EndInput& in, EndVerdict& out) {
  const v1::LinkFacts& facts = in.facts;
  if (facts.rdma_ctl_missing()) {
    out.reasons.push_back(
        At(in, reasons::kRdmaCtlMissing, absl::StrCat(facts.hostname(), " has no rdma_ctl")));
  } else if (facts.rdma_enabled() == v1::FACT_NO) {
    out.reasons.push_back(At(in, reasons::kRdmaDisabledLocal,
                             absl::StrCat("RDMA is off on ", facts.hostname()),
                             facts.rdma_ctl_text()));
  } else if (facts.rdma_enabled() == v1::FACT_UNKNOWN && !HasRdmaDevice(facts)) {
    out.unknown.push_back(Unknown(in, "whether RDMA is on is not known"));
  }
}

// Whether a peer is there, and straight at the other end.
void JudgePeer(const EndInput& in, EndVerdict& out) {
  const std::string where = PortText(in.facts, in.port);
  if (in.peer == nullptr) {
    out.reasons.push_back(At(in, reasons::kNoPeer, absl::StrCat("no computer at ", where)));
    return;
  }
  if (in.peer->devices_between() > 0) {
    out.reasons.push_back(At(in, reasons::kPeerBehindDock,
                             absl::StrCat(in.peer->devices_between(), " device",
                                          in.peer->devices_between() == 1 ? "" : "s", " between ",
                                          where, " and ", in.peer->device_name())));
  }
  if (in.peer_facts == nullptr) {
    const std::string peer = in.peer->domain_uuid().empty()
                                 ? std::string("its domain UUID is not known")
                                 : absl::StrCat("domain ", in.peer->domain_uuid());
    out.unknown.push_back(At(in, reasons::kPeerUnknown,
                             absl::StrCat(in.peer->device_name(), " at ", where,
                                          " is no member of this cluster (", peer, ")")));
  }
}

void JudgePeerEnablement(const EndInput& in, EndVerdict& out) {
  if (in.peer == nullptr) return;
  const bool says_off = in.peer_facts != nullptr && in.peer_facts->rdma_enabled() == v1::FACT_NO;
  const bool says_on = in.peer_facts != nullptr && in.peer_facts->rdma_enabled() == v1::FACT_YES;
  if (says_off || (in.peer->advertises_rdma() == v1::FACT_NO && !says_on)) {
    v1::Reason reason =
        At(in, reasons::kRdmaDisabledPeer,
           absl::StrCat("the Mac at the other end of ", PortText(in.facts, in.port),
                        " has RDMA off: it does not offer the service (protocol 64087)"));
    if (in.peer_facts != nullptr) reason.set_node_id(in.peer_facts->node_id());
    out.reasons.push_back(std::move(reason));
  } else if (in.peer->advertises_rdma() == v1::FACT_UNKNOWN && !says_on) {
    out.unknown.push_back(Unknown(in, "whether its peer has RDMA on is not known"));
  }
}

void JudgeSpeed(const EndInput& in, EndVerdict& out) {
  if (in.peer == nullptr) return;
  const std::string where = PortText(in.facts, in.port);
  if (in.port.is_asymmetric()) {
    out.reasons.push_back(At(in, reasons::kAsymmetricLink,
                             absl::StrCat("the link at ", where, " runs at 120 Gb/s one way only"),
                             in.port.speed_text()));
  } else if (in.port.speed_gbps() == 0) {
    out.unknown.push_back(Unknown(in, "the speed of its link is not known"));
  } else if (in.port.speed_gbps() < kThunderbolt5Gbps) {
    v1::Reason reason =
        At(in, reasons::kLink40g,
           absl::StrCat("the link at ", where, " runs at ", in.port.speed_gbps(), " Gb/s"),
           in.port.speed_text());
    const bool both_fifth = in.port.is_thunderbolt5() == v1::FACT_YES && in.peer_port != nullptr &&
                            in.peer_port->is_thunderbolt5() == v1::FACT_YES;
    if (!both_fifth) {
      reason.set_remedy(
          "see first that both Macs have Thunderbolt 5, because Thunderbolt 4 never runs RDMA; "
          "only then a Thunderbolt 5 cable, straight, without dock or hub");
    }
    out.reasons.push_back(std::move(reason));
  }
}

void JudgePort(const EndInput& in, EndVerdict& out) {
  const std::string where = PortText(in.facts, in.port);
  if (in.port.interface_name().empty()) {
    out.unknown.push_back(
        At(in, reasons::kPortMap, absl::StrCat("no network interface is known for ", where)));
    return;
  }
  if (in.port.rdma_device().empty()) {
    if (in.facts.rdma_devices_listed() != v1::FACT_YES) {
      out.unknown.push_back(Unknown(in, "the list of RDMA devices could not be read"));
    } else if (HasRdmaDevice(in.facts)) {
      out.reasons.push_back(At(in, reasons::kNoRdmaDevice,
                               absl::StrCat("RDMA devices are listed on ", in.facts.hostname(),
                                            ", but none for ", where)));
    } else {
      out.reasons.push_back(
          At(in, reasons::kNoRdmaDevice,
             absl::StrCat("RDMA is on and no device is listed on ", in.facts.hostname())));
    }
    return;
  }
  const v1::RdmaDevice* device = FindDevice(in.facts, in.port.rdma_device());
  if (device == nullptr || device->port_state() == v1::RDMA_PORT_STATE_UNKNOWN) {
    out.unknown.push_back(
        Unknown(in, absl::StrCat("the state of ", in.port.rdma_device(), " is not known")));
  } else if (device->port_state() != v1::RDMA_PORT_STATE_ACTIVE) {
    out.reasons.push_back(
        At(in, reasons::kPortDown,
           absl::StrCat("the port of ", device->name(), " at ", where, " is not active")));
  }
}

// macOS gives self-assigned addresses, and with them their GIDs, some minutes after a start.
constexpr uint64_t kStartedLatelySeconds = 5 * 60;

void MindTheStart(const v1::LinkFacts& facts, v1::Reason& reason) {
  const uint64_t now = facts.probed_unix_ms() / 1000, start = facts.boot_time_unix_seconds();
  if (start == 0 || now < start || now - start >= kStartedLatelySeconds) return;
  reason.set_message(absl::StrCat(reason.message(), " yet; the Mac started ", now - start,
                                  " s before, and macOS assigns addresses of its own late"));
  reason.set_remedy(
      "wait until it has been up for 5 minutes, then 'clusterctl links recheck'; static addresses "
      "are there at once: 'clusterctl net plan'");
}

struct Held {
  uint32_t address;
  Ipv4Subnet subnet;
};

std::vector<Held> Ipv4Of(const v1::LinkInterface& interface) {
  std::vector<Held> held;
  for (const v1::NodeAddress& address : interface.addresses()) {
    const auto ip = ParseIpv4(address.ip());
    if (!ip || IsLoopback(*ip) || IsNoHost(*ip)) continue;
    held.push_back({*ip, SubnetHeld(*ip, address.prefix_length())});
  }
  return held;
}

// The address that goes with the peer's; else the first.
std::optional<Held> AddressTowards(const EndInput& in, std::optional<Held>* peer_address) {
  const v1::LinkInterface* own = FindInterface(in.facts, in.port.interface_name());
  if (own == nullptr) return std::nullopt;
  const std::vector<Held> mine = Ipv4Of(*own);
  if (mine.empty()) return std::nullopt;
  if (in.peer_facts != nullptr && in.peer_port != nullptr) {
    const v1::LinkInterface* other = FindInterface(*in.peer_facts, in.peer_port->interface_name());
    const std::vector<Held> theirs = other == nullptr ? std::vector<Held>() : Ipv4Of(*other);
    // A static one before one that may be another after the next start.
    for (const bool self_assigned : {false, true}) {
      for (const Held& a : mine) {
        for (const Held& b : theirs) {
          if (!(a.subnet == b.subnet) || a.address == b.address) continue;
          if (IsLinkLocal(a.address) != self_assigned) continue;
          *peer_address = b;
          return a;
        }
      }
    }
  }
  return mine.front();
}

void JudgeGid(const EndInput& in, const Held& held, EndVerdict& out) {
  const v1::RdmaDevice* device = FindDevice(in.facts, in.port.rdma_device());
  if (device == nullptr) return;  // said before
  if (!device->gids_known()) {
    out.unknown.push_back(
        Unknown(in, absl::StrCat("the GIDs of ", device->name(), " could not be read")));
    return;
  }
  const std::string ip = Ipv4Text(held.address);
  for (const v1::RdmaGid& gid : device->gids()) {
    if (gid.ipv4() != ip) continue;
    out.end.set_gid_index(gid.index());
    if (gid.index() == kJacclGidIndex) return;
    out.reasons.push_back(At(in, reasons::kGidIndexShifted,
                             absl::StrCat(ip, " is GID ", gid.index(), " of ", device->name(),
                                          "; JACCL takes index ", kJacclGidIndex)));
    return;
  }
  out.reasons.push_back(
      At(in, reasons::kNoIpv4Gid, absl::StrCat(device->name(), " has no GID for ", ip)));
  MindTheStart(in.facts, out.reasons.back());
}

bool PeerHasIpv4(const EndInput& in) {
  if (in.peer_facts == nullptr || in.peer_port == nullptr) return false;
  const v1::LinkInterface* other = FindInterface(*in.peer_facts, in.peer_port->interface_name());
  return other != nullptr && !Ipv4Of(*other).empty();
}

void JudgeSubnet(const EndInput& in, const Held& held, bool matches, EndVerdict& out) {
  if (!matches && PeerHasIpv4(in)) {
    out.reasons.push_back(
        At(in, reasons::kSubnetMismatch,
           absl::StrCat(Ipv4Text(held.address), " of ", PortText(in.facts, in.port),
                        " and the other end's address are in two subnets")));
    return;
  }
  for (const v1::LinkInterface& other : in.facts.interfaces()) {
    if (other.name() == in.port.interface_name()) continue;
    for (const Held& theirs : Ipv4Of(other)) {
      if (!theirs.subnet.Overlaps(held.subnet)) continue;
      out.reasons.push_back(At(in, reasons::kSubnetMismatch,
                               absl::StrCat("the subnet of ", PortText(in.facts, in.port),
                                            " is on ", other.name(), " too")));
      return;
    }
  }
}

// The route that the system takes: the longest prefix that holds the address.
const v1::NetworkRoute* RouteTo(const v1::LinkFacts& facts, uint32_t address) {
  const v1::NetworkRoute* best = nullptr;
  uint32_t best_length = 0;
  for (const v1::NetworkRoute& route : facts.routes()) {
    const auto subnet = ParseDestination(route.destination());
    if (!subnet || !subnet->Contains(address)) continue;
    if (best != nullptr && subnet->prefix_length <= best_length) continue;
    best = &route;
    best_length = subnet->prefix_length;
  }
  return best;
}

void JudgeRoute(const EndInput& in, uint32_t peer_address, EndVerdict& out) {
  if (in.facts.routes().empty()) {
    out.unknown.push_back(Unknown(in, "the routing table could not be read"));
    return;
  }
  const v1::NetworkRoute* route = RouteTo(in.facts, peer_address);
  const bool direct = route != nullptr && !route->is_reject() &&
                      route->interface_name() == in.port.interface_name() &&
                      !ParseIpv4(route->gateway()).has_value();
  if (direct) return;
  const std::string by = route == nullptr
                             ? std::string("no route")
                             : absl::StrCat(route->interface_name(), " ", route->gateway());
  out.reasons.push_back(At(in, reasons::kRouteWrongIf,
                           absl::StrCat(Ipv4Text(peer_address), " is reached by ", by,
                                        " instead of ", in.port.interface_name()),
                           route == nullptr
                               ? ""
                               : absl::StrCat(route->destination(), " ", route->gateway(), " ",
                                              route->interface_name())));
}

// Queue pairs go by device and GID, so that RDMA works with them. TCP goes by subnets, which all
// such addresses share.
void JudgeSelfAssigned(const EndInput& in, const Held& held,
                       const std::optional<Held>& peer_address, EndVerdict& out) {
  v1::Reason self_assigned =
      At(in, reasons::kNoIpv4,
         absl::StrCat(PortText(in.facts, in.port), " has a self-assigned address alone (",
                      Ipv4Text(held.address), "), which may be another after each start"));
  self_assigned.set_remedy("RDMA works with it; 'clusterctl net plan' gives each link static ones");
  out.warnings.push_back(std::move(self_assigned));
  EndVerdict for_tcp;
  JudgeSubnet(in, held, /*matches=*/true, for_tcp);
  if (peer_address) JudgeRoute(in, peer_address->address, for_tcp);
  for (v1::Reason& reason : for_tcp.reasons) out.warnings.push_back(std::move(reason));
}

void JudgeAddress(const EndInput& in, EndVerdict& out) {
  if (in.port.interface_name().empty()) return;
  const v1::LinkInterface* own = FindInterface(in.facts, in.port.interface_name());
  if (own == nullptr) {
    out.unknown.push_back(Unknown(in, "its interface's addresses could not be read"));
    return;
  }
  std::optional<Held> peer_address;
  const std::optional<Held> held = AddressTowards(in, &peer_address);
  if (!held) {
    out.reasons.push_back(At(in, reasons::kNoIpv4,
                             absl::StrCat(PortText(in.facts, in.port), " has no IPv4 address")));
    MindTheStart(in.facts, out.reasons.back());
    return;
  }
  out.end.set_ip(Ipv4Text(held->address));
  JudgeGid(in, *held, out);
  if (IsLinkLocal(held->address) && (peer_address || !PeerHasIpv4(in))) {
    return JudgeSelfAssigned(in, *held, peer_address, out);
  }
  JudgeSubnet(in, *held, peer_address.has_value(), out);
  if (peer_address) JudgeRoute(in, peer_address->address, out);
}

void WarnOfPort(const EndInput& in, EndVerdict& out) {
  const v1::LinkInterface* own = FindInterface(in.facts, in.port.interface_name());
  if (own != nullptr && !own->bridge().empty()) {
    v1::Reason warning =
        At(in, reasons::kBridgeMember,
           absl::StrCat(PortText(in.facts, in.port), " is a member of ", own->bridge()));
    // Its service has a name in the system's language.
    if (!in.facts.bridge_service().empty()) {
      warning.set_remedy(absl::StrCat("'sudo networksetup -setnetworkserviceenabled ",
                                      QuotedName(in.facts.bridge_service()), " off'"));
    }
    out.warnings.push_back(std::move(warning));
  }
  if (in.port.is_next_to_ethernet() && in.peer != nullptr) {
    out.warnings.push_back(
        At(in, reasons::kPortNextToEthernet,
           absl::StrCat(PortText(in.facts, in.port), " lies beside the Ethernet port")));
  }
}

bool Has(const EndVerdict& verdict, std::string_view code) {
  return std::any_of(verdict.reasons.begin(), verdict.reasons.end(),
                     [&](const v1::Reason& reason) { return reason.code() == code; });
}

void Drop(std::initializer_list<std::string_view> codes, EndVerdict& verdict) {
  const auto is_one = [&](const v1::Reason& reason) {
    return std::find(codes.begin(), codes.end(), reason.code()) != codes.end();
  };
  verdict.reasons.erase(std::remove_if(verdict.reasons.begin(), verdict.reasons.end(), is_one),
                        verdict.reasons.end());
}

// A port that can't do RDMA at all says nothing by being slow or down; one without RDMA on has no
// device. Only what would remain when the cause is fixed is kept.
void DropConsequences(EndVerdict& verdict) {
  const auto drop = [&](std::initializer_list<std::string_view> codes) { Drop(codes, verdict); };
  if (Has(verdict, reasons::kTb4Controller)) {
    drop({reasons::kRdmaCtlMissing, reasons::kRdmaDisabledLocal, reasons::kRdmaDisabledPeer,
          reasons::kNoRdmaDevice, reasons::kLink40g, reasons::kPortDown, reasons::kNoIpv4Gid,
          reasons::kGidIndexShifted});
  }
  if (Has(verdict, reasons::kOsTooOld) || Has(verdict, reasons::kVirtual)) {
    drop({reasons::kRdmaCtlMissing, reasons::kRdmaDisabledLocal, reasons::kNoRdmaDevice});
  }
  if (Has(verdict, reasons::kRdmaCtlMissing) || Has(verdict, reasons::kRdmaDisabledLocal)) {
    drop({reasons::kNoRdmaDevice, reasons::kPortDown});
  }
  if (Has(verdict, reasons::kNoPeer) || Has(verdict, reasons::kRdmaDisabledPeer) ||
      Has(verdict, reasons::kLink40g)) {
    drop({reasons::kPortDown, reasons::kNoIpv4, reasons::kNoIpv4Gid, reasons::kGidIndexShifted,
          reasons::kRouteWrongIf, reasons::kSubnetMismatch});
  }
}

}  // namespace

void DropWhatTheOtherEndExplains(const EndVerdict& other, EndVerdict& verdict) {
  if (Has(other, reasons::kTb4Controller)) {
    // Neither a better cable nor a walk to Recovery gives this link RDMA.
    Drop({reasons::kRdmaDisabledLocal, reasons::kRdmaDisabledPeer, reasons::kLink40g,
          reasons::kPortDown, reasons::kNoIpv4Gid, reasons::kGidIndexShifted},
         verdict);
  }
  if (Has(other, reasons::kOsTooOld) || Has(other, reasons::kVirtual) ||
      Has(other, reasons::kRdmaCtlMissing)) {
    Drop({reasons::kRdmaDisabledPeer, reasons::kPortDown}, verdict);
  }
  verdict.end.clear_reasons();
  for (const v1::Reason& reason : verdict.reasons) *verdict.end.add_reasons() = reason;
}

int CompareVersions(std::string_view a, std::string_view b) {
  const auto parts = [](std::string_view text) {
    std::vector<uint32_t> numbers;
    for (const absl::string_view part :
         absl::StrSplit(absl::string_view(text.data(), text.size()), '.')) {
      uint32_t number = 0;
      if (!absl::SimpleAtoi(part.substr(0, part.find_first_not_of("0123456789")), &number)) break;
      numbers.push_back(number);
    }
    numbers.resize(4);
    return numbers;
  };
  const std::vector<uint32_t> left = parts(a), right = parts(b);
  return left < right ? -1 : left > right ? 1 : 0;
}

const v1::LinkInterface* FindInterface(const v1::LinkFacts& facts, const std::string& name) {
  if (name.empty()) return nullptr;
  for (const v1::LinkInterface& interface : facts.interfaces()) {
    if (interface.name() == name) return &interface;
  }
  return nullptr;
}

const v1::RdmaDevice* FindDevice(const v1::LinkFacts& facts, const std::string& name) {
  if (name.empty()) return nullptr;
  for (const v1::RdmaDevice& device : facts.rdma_devices()) {
    if (device.name() == name) return &device;
  }
  return nullptr;
}

std::string PortText(const v1::LinkFacts& facts, const v1::ThunderboltPort& port) {
  const std::string name = facts.hostname().empty() ? facts.node_id() : facts.hostname();
  const std::string socket = port.socket() == 0 ? "?" : absl::StrCat(port.socket());
  return absl::StrCat(
      name, " socket ", socket,
      port.interface_name().empty() ? "" : absl::StrCat(" (", port.interface_name(), ")"));
}

EndVerdict JudgeEnd(const v1::LinkFacts& facts, const v1::ThunderboltPort& port,
                    const v1::ThunderboltPeer* peer, const v1::LinkFacts* peer_facts,
                    const v1::ThunderboltPort* peer_port) {
  const EndInput in{facts, port, peer, peer_facts, peer_port};
  EndVerdict out;
  out.end.set_node_id(facts.node_id());
  out.end.set_hostname(facts.hostname());
  out.end.set_socket(port.socket());
  out.end.set_interface_name(port.interface_name());
  out.end.set_rdma_device(port.rdma_device());
  JudgeOs(in, out);
  JudgeController(in, out);
  JudgeEnablement(in, out);
  JudgePeer(in, out);
  JudgePeerEnablement(in, out);
  JudgeSpeed(in, out);
  JudgePort(in, out);
  JudgeAddress(in, out);
  WarnOfPort(in, out);
  DropConsequences(out);
  for (const v1::Reason& reason : out.reasons) *out.end.add_reasons() = reason;
  return out;
}

}  // namespace macrame::transport
