#include "transport/links/net_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/reasons.h"
#include "transport/links/ipv4.h"
#include "transport/links/link_ends.h"
#include "transport/links/node_links.h"

namespace macrame::transport {
namespace {

constexpr uint32_t kLinkPrefix = 30;
constexpr uint32_t kAddressesPerLink = 4;
constexpr char kServicePrefix[] = "Macrame link";
// Blocks that home routers and Internet Sharing do not hand out.
constexpr const char* kBlocks[] = {"10.77.0.0/20", "10.177.0.0/20", "198.18.0.0/20",
                                   "172.29.64.0/20"};

std::vector<Ipv4Subnet> SubnetsInUse(const NodesById& nodes) {
  std::vector<Ipv4Subnet> used;
  for (const auto& [id, node] : nodes) {
    for (const v1::LinkInterface& interface : node->facts().interfaces()) {
      for (const v1::NodeAddress& address : interface.addresses()) {
        const auto ip = ParseIpv4(address.ip());
        if (ip) used.push_back(SubnetOf(*ip, address.prefix_length()));
      }
    }
    for (const v1::NetworkRoute& route : node->facts().routes()) {
      const auto subnet = ParseDestination(route.destination());
      if (subnet && subnet->prefix_length >= 8) used.push_back(*subnet);
    }
  }
  return used;
}

bool IsFree(const Ipv4Subnet& subnet, const std::vector<Ipv4Subnet>& used) {
  return std::none_of(used.begin(), used.end(),
                      [&](const Ipv4Subnet& other) { return other.Overlaps(subnet); });
}

class AddressPlan {
 public:
  AddressPlan(const v1::LinkSnapshot& snapshot, const v1::ClusterLinks& links)
      : links_(links), nodes_(NodesOf(snapshot)), used_(SubnetsInUse(nodes_)) {}

  absl::StatusOr<v1::NetPlan> Make(const std::string& requested) {
    for (const v1::LinkVerdict& link : links_.links()) {
      if (link.kind() == v1::LINK_KIND_THUNDERBOLT && !link.b().node_id().empty()) {
        cables_.push_back(&link);
      }
    }
    const absl::Status chosen = ChooseBlock(requested);
    if (!chosen.ok()) return chosen;
    Warn();
    std::set<std::string> prepared;
    uint32_t base = block_.network;
    for (const v1::LinkVerdict* link : cables_) {
      if (HasGoodAddresses(*link)) continue;
      while (!IsFree(SubnetOf(base, kLinkPrefix), used_)) base += kAddressesPerLink;
      for (const auto& [end, host] : {std::pair(&link->a(), 1u), std::pair(&link->b(), 2u)}) {
        if (prepared.insert(end->node_id()).second) PrepareNode(end->node_id());
        Address(*link, *end, base + host);
      }
      base += kAddressesPerLink;
    }
    return std::move(plan_);
  }

 private:
  absl::Status ChooseBlock(const std::string& requested) {
    const uint32_t needed = static_cast<uint32_t>(cables_.size()) * kAddressesPerLink;
    if (!requested.empty()) {
      const auto block = ParseDestination(requested);
      if (!block || requested.find('/') == std::string::npos ||
          block->prefix_length > kLinkPrefix || block->prefix_length < 8) {
        return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                            absl::StrCat("'", requested.substr(0, 64),
                                         "' is no block of addresses like 10.77.0.0/20"));
      }
      if (!IsFree(*block, used_)) {
        return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kAddressCollision,
                            absl::StrCat(requested, " is in use: ", UserOf(*block)));
      }
      if (uint64_t{1} << (32 - block->prefix_length) < needed) {
        return ReasonStatus(
            absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
            absl::StrCat(requested, " is too small for ", cables_.size(), " links"));
      }
      block_ = *block;
    } else {
      for (const char* text : kBlocks) {
        const auto block = ParseDestination(text);
        if (!IsFree(*block, used_)) continue;
        block_ = *block;
        break;
      }
      if (block_.prefix_length == 0) {
        return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kAddressCollision,
                            absl::StrCat("each of ", absl::StrJoin(kBlocks, ", "),
                                         " is in use in part; name a block with --block"));
      }
    }
    plan_.set_block(absl::StrCat(Ipv4Text(block_.network), "/", block_.prefix_length));
    return absl::OkStatus();
  }

  std::string UserOf(const Ipv4Subnet& block) const {
    for (const auto& [id, node] : nodes_) {
      for (const v1::LinkInterface& interface : node->facts().interfaces()) {
        for (const v1::NodeAddress& address : interface.addresses()) {
          const auto ip = ParseIpv4(address.ip());
          if (!ip || !SubnetOf(*ip, address.prefix_length()).Overlaps(block)) continue;
          return absl::StrCat(address.ip(), " on ", interface.name(), " of ",
                              node->facts().hostname());
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
      for (const v1::Reason& warning : NodeWarnings(node->facts())) {
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
    const auto node = nodes_.find(node_id);
    if (node == nodes_.end() || node->second->facts().bridge_service().empty()) return;
    const std::string& service = node->second->facts().bridge_service();
    Add(node_id, absl::StrFormat("networksetup -setnetworkserviceenabled \"%s\" off", service),
        absl::StrFormat("networksetup -setnetworkserviceenabled \"%s\" on", service),
        "the bridge holds the Thunderbolt ports");
  }

  void Address(const v1::LinkVerdict& link, const v1::LinkEnd& end, uint32_t ip) {
    const auto node = nodes_.find(end.node_id());
    const v1::LinkInterface* interface =
        node == nodes_.end() ? nullptr : FindInterface(node->second->facts(), end.interface_name());
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
    const std::string service = absl::StrCat(kServicePrefix, " ", end.interface_name());
    Add(end.node_id(),
        absl::StrFormat("networksetup -createnetworkservice \"%s\" \"%s\"", service, port),
        absl::StrFormat("networksetup -removenetworkservice \"%s\"", service),
        absl::StrCat("a service of its own for ", port));
    Add(end.node_id(),
        absl::StrFormat("networksetup -setmanual \"%s\" %s 255.255.255.252", service, Ipv4Text(ip)),
        "", absl::StrCat("the address of this end of ", out.link()));
  }

  const v1::ClusterLinks& links_;
  const NodesById nodes_;
  const std::vector<Ipv4Subnet> used_;
  std::vector<const v1::LinkVerdict*> cables_;
  Ipv4Subnet block_;
  v1::NetPlan plan_;
};

}  // namespace

absl::StatusOr<v1::NetPlan> PlanAddresses(const v1::LinkSnapshot& snapshot,
                                          const v1::ClusterLinks& links, const std::string& block) {
  return AddressPlan(snapshot, links).Make(block);
}

}  // namespace macrame::transport
