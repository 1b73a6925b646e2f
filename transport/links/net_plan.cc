#include "transport/links/net_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/reasons.h"
#include "transport/links/ipv4.h"
#include "transport/links/link_ends.h"
#include "transport/links/network_services.h"
#include "transport/links/node_links.h"

namespace macrame::transport {
namespace {

constexpr uint32_t kLinkPrefix = 30;
constexpr uint32_t kAddressesPerLink = 4;
constexpr char kServicePrefix[] = "Macrame link";
// Blocks that home routers and Internet Sharing do not hand out.
constexpr const char* kBlocks[] = {"10.77.0.0/20", "10.177.0.0/20", "198.18.0.0/20",
                                   "172.29.64.0/20"};

using Facts = std::vector<const v1::LinkFacts*>;

Facts FactsOf(const v1::LinkSnapshot& snapshot, const v1::LinkSnapshot& absent) {
  Facts facts;
  for (const v1::NodeLinks& node : snapshot.nodes()) facts.push_back(&node.facts());
  for (const v1::NodeLinks& node : absent.nodes()) facts.push_back(&node.facts());
  return facts;
}

std::optional<Ipv4Subnet> HeldBy(const v1::NodeAddress& address) {
  const auto ip = ParseIpv4(address.ip());
  if (!ip) return std::nullopt;
  return SubnetHeld(*ip, address.prefix_length());
}

std::vector<Ipv4Subnet> SubnetsInUse(const Facts& all) {
  std::vector<Ipv4Subnet> used;
  for (const v1::LinkFacts* facts : all) {
    for (const v1::LinkInterface& interface : facts->interfaces()) {
      for (const v1::NodeAddress& address : interface.addresses()) {
        if (const auto held = HeldBy(address)) used.push_back(*held);
      }
    }
    for (const v1::NetworkRoute& route : facts->routes()) {
      const auto subnet = ParseDestination(route.destination());
      if (subnet && subnet->prefix_length >= 8) used.push_back(*subnet);
    }
  }
  return used;
}

// As such a plan gives them: a block that holds nothing else has room for more.
std::vector<Ipv4Subnet> SubnetsOfCables(const Facts& all) {
  std::vector<Ipv4Subnet> of_cables;
  for (const v1::LinkFacts* facts : all) {
    for (const v1::LinkInterface& interface : facts->interfaces()) {
      if (interface.kind() != v1::INTERFACE_KIND_THUNDERBOLT) continue;
      for (const v1::NodeAddress& address : interface.addresses()) {
        const auto held = HeldBy(address);
        if (held && held->prefix_length == kLinkPrefix) of_cables.push_back(*held);
      }
    }
  }
  return of_cables;
}

// "255.255.255.252"
std::string MaskText(uint32_t prefix_length) {
  return Ipv4Text(prefix_length == 0 ? 0 : ~uint32_t{0} << (32 - std::min(prefix_length, 32u)));
}

bool IsWithin(const Ipv4Subnet& subnet, const std::vector<Ipv4Subnet>& wider) {
  return std::any_of(wider.begin(), wider.end(), [&](const Ipv4Subnet& one) {
    return one.prefix_length <= subnet.prefix_length && one.Contains(subnet.network);
  });
}

// A cable without addresses that work.
struct BareCable {
  const v1::LinkVerdict* link;
  // Of a cable whose other end has its address already, as after 'net apply' on one machine: the
  // end that lacks one, or has a wrong one, and which it gets.
  const v1::LinkEnd* lacking = nullptr;
  uint32_t ip = 0;
};

class AddressPlan {
 public:
  AddressPlan(const v1::LinkSnapshot& snapshot, const v1::ClusterLinks& links,
              const v1::LinkSnapshot& absent)
      : links_(links),
        nodes_(NodesOf(snapshot)),
        facts_(FactsOf(snapshot, absent)),
        used_(SubnetsInUse(facts_)),
        of_cables_(SubnetsOfCables(facts_)) {}

  absl::StatusOr<v1::NetPlan> Make(const std::string& requested) {
    for (const v1::LinkVerdict& link : links_.links()) {
      if (link.kind() != v1::LINK_KIND_THUNDERBOLT || link.b().node_id().empty()) continue;
      if (HasGoodAddresses(link)) continue;
      cables_.push_back(Look(link));
      if (cables_.back().lacking == nullptr) ++subnets_needed_;
    }
    const absl::Status chosen = ChooseBlock(requested);
    if (!chosen.ok()) return chosen;
    Warn();
    auto base = bases_.begin();
    for (const BareCable& cable : cables_) {
      if (cable.lacking != nullptr) {
        Address(*cable.link, *cable.lacking, cable.ip);
        continue;
      }
      Address(*cable.link, cable.link->a(), *base + 1);
      Address(*cable.link, cable.link->b(), *base + 2);
      ++base;
    }
    return std::move(plan_);
  }

 private:
  const v1::LinkInterface* InterfaceOf(const v1::LinkEnd& end) const {
    const auto node = nodes_.find(end.node_id());
    if (node == nodes_.end()) return nullptr;
    return FindInterface(node->second->facts(), end.interface_name());
  }

  static std::vector<const v1::NodeAddress*> AddressesOf(const v1::LinkInterface* interface) {
    std::vector<const v1::NodeAddress*> addresses;
    if (interface == nullptr) return addresses;
    for (const v1::NodeAddress& address : interface->addresses()) {
      const auto ip = ParseIpv4(address.ip());
      if (ip && !IsLinkLocal(*ip)) addresses.push_back(&address);
    }
    return addresses;
  }

  BareCable Look(const v1::LinkVerdict& link) const {
    for (const auto& [has, lacks] :
         {std::pair(&link.a(), &link.b()), std::pair(&link.b(), &link.a())}) {
      const auto held = AddressesOf(InterfaceOf(*has));
      if (held.size() != 1) continue;
      const uint32_t ip = *ParseIpv4(held[0]->ip());
      const Ipv4Subnet subnet = SubnetHeld(ip, held[0]->prefix_length());
      const uint32_t host = ip - subnet.network;
      if (subnet.prefix_length != kLinkPrefix || (host != 1 && host != 2)) continue;
      if (!IsHeldByOthers(subnet, link)) return {&link, lacks, subnet.network + 3 - host};
    }
    return {&link};
  }

  // By anything but the interfaces of its two ends.
  bool IsHeldByOthers(const Ipv4Subnet& subnet, const v1::LinkVerdict& link) const {
    for (const v1::LinkFacts* facts : facts_) {
      const auto is_end = [&](const std::string& interface) {
        return (facts->node_id() == link.a().node_id() && interface == link.a().interface_name()) ||
               (facts->node_id() == link.b().node_id() && interface == link.b().interface_name());
      };
      for (const v1::LinkInterface& interface : facts->interfaces()) {
        if (is_end(interface.name())) continue;
        for (const v1::NodeAddress& address : interface.addresses()) {
          const auto held = HeldBy(address);
          if (held && held->Overlaps(subnet)) return true;
        }
      }
      for (const v1::NetworkRoute& route : facts->routes()) {
        const auto to = ParseDestination(route.destination());
        // A wider one is for what has no way of its own.
        const bool is_narrow = to && to->prefix_length >= subnet.prefix_length;
        if (is_narrow && to->Overlaps(subnet) && !is_end(route.interface_name())) return true;
      }
    }
    return false;
  }

  // Takes the first subnets that nobody has, one for each cable that needs one. False: there is no
  // room, and nothing is taken.
  bool TakeSubnets(const Ipv4Subnet& block) {
    const auto end_of = [](const Ipv4Subnet& subnet) {
      return subnet.network + (uint64_t{1} << (32 - subnet.prefix_length));
    };
    std::vector<uint32_t> bases;
    for (uint64_t at = block.network; bases.size() < subnets_needed_;) {
      if (at + kAddressesPerLink > end_of(block)) return false;
      const auto base = static_cast<uint32_t>(at);
      const Ipv4Subnet wanted = SubnetOf(base, kLinkPrefix);
      const auto taken = std::find_if(used_.begin(), used_.end(), [&](const Ipv4Subnet& other) {
        return other.Overlaps(wanted);
      });
      if (taken == used_.end()) bases.push_back(base);
      at += kAddressesPerLink;
      if (taken != used_.end()) at = std::max(at, end_of(*taken));
    }
    bases_ = std::move(bases);
    plan_.set_block(absl::StrCat(Ipv4Text(block.network), "/", block.prefix_length));
    return true;
  }

  // Nothing but cables has addresses of it.
  bool IsForCables(const Ipv4Subnet& block) const {
    return std::all_of(used_.begin(), used_.end(), [&](const Ipv4Subnet& subnet) {
      return !subnet.Overlaps(block) || IsWithin(subnet, of_cables_);
    });
  }

  absl::Status ChooseBlock(const std::string& requested) {
    if (!requested.empty()) return TakeBlock(requested);
    if (subnets_needed_ == 0) return absl::OkStatus();
    for (const char* text : kBlocks) {
      const auto block = ParseDestination(text);
      if (IsForCables(*block) && TakeSubnets(*block)) return absl::OkStatus();
    }
    return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kAddressCollision,
                        absl::StrCat("each of ", absl::StrJoin(kBlocks, ", "),
                                     " is in use in part; name a block with --block"));
  }

  absl::Status TakeBlock(const std::string& requested) {
    const auto block = ParseDestination(requested);
    if (!block || requested.find('/') == std::string::npos || block->prefix_length > kLinkPrefix ||
        block->prefix_length < 8) {
      return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                          absl::StrCat("'", requested.substr(0, 64),
                                       "' is no block of addresses like 10.77.0.0/20"));
    }
    if (IsNoHost(block->network) || IsLoopback(block->network) || IsLinkLocal(block->network)) {
      return ReasonStatus(
          absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
          absl::StrCat(requested, " holds no addresses that a machine may be given"));
    }
    if (subnets_needed_ == 0) return absl::OkStatus();
    const std::string links =
        absl::StrCat(subnets_needed_, subnets_needed_ == 1 ? " link" : " links");
    if (!IsForCables(*block)) {
      return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kAddressCollision,
                          absl::StrCat(requested, " is in use: ", UserOf(*block)));
    }
    if ((uint64_t{1} << (32 - block->prefix_length)) < subnets_needed_ * kAddressesPerLink) {
      return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                          absl::StrCat(requested, " is too small for ", links));
    }
    if (!TakeSubnets(*block)) {
      return ReasonStatus(
          absl::StatusCode::kFailedPrecondition, reasons::kAddressCollision,
          absl::StrCat(requested, " has no room for ", links, " beside those that have it"));
    }
    return absl::OkStatus();
  }

  std::string UserOf(const Ipv4Subnet& block) const {
    for (const v1::LinkFacts* facts : facts_) {
      for (const v1::LinkInterface& interface : facts->interfaces()) {
        for (const v1::NodeAddress& address : interface.addresses()) {
          const auto held = HeldBy(address);
          if (!held || !held->Overlaps(block) || IsWithin(*held, of_cables_)) continue;
          return absl::StrCat(address.ip(), " on ", interface.name(), " of ", facts->hostname());
        }
      }
    }
    return "a route";
  }

  // Addresses that work are left alone.
  static bool HasGoodAddresses(const v1::LinkVerdict& link) {
    if (link.a().ip().empty() || link.b().ip().empty()) return false;
    const auto a = ParseIpv4(link.a().ip());
    if (!a || IsLinkLocal(*a)) return false;
    return std::none_of(link.reasons().begin(), link.reasons().end(), [](const v1::Reason& reason) {
      return LayerOf(reason.code()) == Layer::kAddress;
    });
  }

  void Warn() {
    std::set<std::string> seen;
    for (const v1::LinkVerdict& link : links_.links()) {
      for (const v1::Reason& warning : link.warnings()) {
        if (warning.code() == reasons::kBridgeLoopRisk && seen.insert(warning.code()).second) {
          *plan_.add_warnings() = warning;
        }
      }
    }
    for (const auto& [id, node] : nodes_) {
      for (const v1::Reason& warning : NodeWarnings(node->facts(), /*now_unix_ms=*/0)) {
        if (warning.code() == reasons::kInternetSharing) *plan_.add_warnings() = warning;
      }
    }
  }

  void Add(const std::string& node_id, std::string command, std::string undo, std::string why) {
    v1::NetCommand& out = *plan_.add_commands();
    out.set_node_id(node_id);
    out.set_command(std::move(command));
    out.set_undo(std::move(undo));
    out.set_why(std::move(why));
    out.set_survives_restart(true);
  }

  // The bridge would keep the ports to itself.
  void PrepareNode(const std::string& node_id) {
    if (!prepared_.insert(node_id).second) return;
    const auto node = nodes_.find(node_id);
    if (node == nodes_.end() || node->second->facts().bridge_service().empty()) return;
    const std::string service = QuotedName(node->second->facts().bridge_service());
    Add(node_id, absl::StrFormat("networksetup -setnetworkserviceenabled %s off", service),
        absl::StrFormat("networksetup -setnetworkserviceenabled %s on", service),
        "the bridge holds the Thunderbolt ports");
  }

  void Address(const v1::LinkVerdict& link, const v1::LinkEnd& end, uint32_t ip) {
    PrepareNode(end.node_id());
    const v1::LinkInterface* interface = InterfaceOf(end);
    const std::string port = interface != nullptr && !interface->hardware_port().empty()
                                 ? interface->hardware_port()
                                 : absl::StrCat("Thunderbolt ", end.socket());
    v1::NetLinkAddress& out = *plan_.add_addresses();
    out.set_link(absl::StrCat(link.a().hostname(), " socket ", link.a().socket(), " - ",
                              link.b().hostname(), " socket ", link.b().socket()));
    out.set_node_id(end.node_id());
    out.set_interface_name(end.interface_name());
    out.set_hardware_port(port);
    out.set_ip(Ipv4Text(ip));
    out.set_prefix_length(kLinkPrefix);
    const std::optional<NetworkService> held = TakeService(end);
    const std::string service = QuotedName(
        held.has_value() ? held->name : absl::StrCat(kServicePrefix, " ", end.interface_name()));
    if (!held.has_value()) {
      Add(end.node_id(),
          absl::StrFormat("networksetup -createnetworkservice %s %s", service, QuotedName(port)),
          absl::StrFormat("networksetup -removenetworkservice %s", service),
          absl::StrCat("a service of its own for ", port));
    }
    Add(end.node_id(),
        absl::StrFormat("networksetup -setmanual %s %s %s", service, Ipv4Text(ip),
                        MaskText(kLinkPrefix)),
        held.has_value() ? AsBefore(service, interface) : "",
        absl::StrCat("the address of this end of ", out.link()));
  }

  // The service that the port has, enabled and alone: a second one on a port brings an address of
  // its own, and with it the GID of the first moves off the index that JACCL takes. nullopt: the
  // port has none.
  std::optional<NetworkService> TakeService(const v1::LinkEnd& end) {
    const auto node = nodes_.find(end.node_id());
    if (node == nodes_.end() || end.interface_name().empty()) return std::nullopt;
    std::vector<NetworkService> of_port;
    for (NetworkService& service : ServicesOf(node->second->facts())) {
      if (service.device == end.interface_name()) of_port.push_back(std::move(service));
    }
    if (of_port.empty()) return std::nullopt;
    // One that is on, and of these one that an earlier plan made.
    const auto best =
        std::min_element(of_port.begin(), of_port.end(), [](const auto& a, const auto& b) {
          const auto rank = [](const NetworkService& one) {
            return std::pair(!one.is_enabled, !absl::StartsWith(one.name, kServicePrefix));
          };
          return rank(a) < rank(b);
        });
    for (auto other = of_port.begin(); other != of_port.end(); ++other) {
      if (other->is_enabled && other != best) {
        Switch(end, other->name, /*on=*/false, "a second service gives this port a second address");
      }
    }
    if (!best->is_enabled) Switch(end, best->name, /*on=*/true, "the service that this port has");
    return *best;
  }

  void Switch(const v1::LinkEnd& end, const std::string& name, bool on, std::string why) {
    const auto command = [&](bool is_on) {
      return absl::StrFormat("networksetup -setnetworkserviceenabled %s %s", QuotedName(name),
                             is_on ? "on" : "off");
    };
    Add(end.node_id(), command(on), command(!on), std::move(why));
  }

  // Nothing on a cable hands out addresses: one that is there was set by hand, else the service
  // asks by DHCP, as macOS makes it.
  static std::string AsBefore(const std::string& service, const v1::LinkInterface* interface) {
    const auto held = AddressesOf(interface);
    if (held.empty()) return absl::StrFormat("networksetup -setdhcp %s", service);
    return absl::StrFormat("networksetup -setmanual %s %s %s", service, held[0]->ip(),
                           MaskText(held[0]->prefix_length()));
  }

  const v1::ClusterLinks& links_;
  const NodesById nodes_;
  const Facts facts_;  // of all nodes that are known
  const std::vector<Ipv4Subnet> used_;
  const std::vector<Ipv4Subnet> of_cables_;
  std::vector<BareCable> cables_;
  size_t subnets_needed_ = 0;
  std::set<std::string> prepared_;  // nodes
  std::vector<uint32_t> bases_;     // of the subnets that cables get
  v1::NetPlan plan_;
};

}  // namespace

absl::StatusOr<v1::NetPlan> PlanAddresses(const v1::LinkSnapshot& snapshot,
                                          const v1::ClusterLinks& links, const std::string& block,
                                          const v1::LinkSnapshot& absent) {
  return AddressPlan(snapshot, links, absent).Make(block);
}

}  // namespace macrame::transport
