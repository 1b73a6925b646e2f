#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/reasons.h"
#include "transport/links/ipv4.h"
#include "transport/links/link_ends.h"
#include "transport/links/node_links.h"

namespace macrame::transport {
namespace {

// What a path is taken to carry until it is measured, bytes a second: payload of a Thunderbolt IP
// link as ring users report it, line rate less framing for Ethernet of unknown speed (1 Gb/s), and
// a usual Wi-Fi. Only the order matters.
constexpr double kThunderboltAssumed = 2.5e9;
constexpr double kEthernetAssumed = 117e6;
constexpr double kWifiAssumed = 40e6;
constexpr double kBytesPerMegabit = 125e3;
// Bandwidths within a factor of two of each other count as equal; then the kind decides.
constexpr double kBandwidthStep = 2;
constexpr double kRoundTripStep = 1.5;
// The way in use is kept while it has this part of the best one's bandwidth.
constexpr double kKeepRatio = 0.7;
constexpr char kLoopbackIp[] = "127.0.0.1";

struct Way {
  std::string from_ip, to_ip, from_interface, to_interface;
  v1::InterfaceKind kind = v1::INTERFACE_KIND_UNSPECIFIED;
  bool link_local = false;
  double assumed = 0;
  const v1::LinkMeasurement* measured = nullptr;
  std::optional<v1::Reason> refused;

  double bandwidth() const {
    const bool known = measured != nullptr && measured->bandwidth_bytes_per_second() > 0;
    return known ? measured->bandwidth_bytes_per_second() : assumed;
  }
  double round_trip_us() const { return measured == nullptr ? 0 : measured->round_trip_us_p50(); }
};

int KindRank(v1::InterfaceKind kind) {
  switch (kind) {
    case v1::INTERFACE_KIND_LOOPBACK:
      return 0;
    case v1::INTERFACE_KIND_THUNDERBOLT:
      return 1;
    case v1::INTERFACE_KIND_ETHERNET:
      return 2;
    case v1::INTERFACE_KIND_UNSPECIFIED:
      return 3;
    case v1::INTERFACE_KIND_WIFI:
      return 4;
    case v1::INTERFACE_KIND_BRIDGE:
      return 5;
    default:
      return 6;
  }
}

std::string KindText(v1::InterfaceKind kind) {
  switch (kind) {
    case v1::INTERFACE_KIND_LOOPBACK:
      return "loopback";
    case v1::INTERFACE_KIND_THUNDERBOLT:
      return "Thunderbolt";
    case v1::INTERFACE_KIND_ETHERNET:
      return "Ethernet";
    case v1::INTERFACE_KIND_WIFI:
      return "Wi-Fi";
    case v1::INTERFACE_KIND_BRIDGE:
      return "bridge";
    case v1::INTERFACE_KIND_VPN:
      return "VPN";
    default:
      return "network";
  }
}

double Assumed(const v1::LinkInterface& a, const v1::LinkInterface& b, v1::InterfaceKind kind) {
  if (kind == v1::INTERFACE_KIND_LOOPBACK) return 4e9;
  if (kind == v1::INTERFACE_KIND_THUNDERBOLT) return kThunderboltAssumed;
  if (kind == v1::INTERFACE_KIND_WIFI) return kWifiAssumed;
  const uint64_t slower = std::min(a.speed_mbps(), b.speed_mbps());
  return slower == 0 ? kEthernetAssumed : static_cast<double>(slower) * kBytesPerMegabit;
}

int Step(double value, double factor) {
  return value <= 0 ? 0 : static_cast<int>(std::lround(std::log(value) / std::log(factor)));
}

// Better is smaller. Wi-Fi and link-local addresses come last whatever they measured: they are not
// steady enough to be compared by one figure.
auto OrderOf(const Way& way) {
  return std::make_tuple(way.kind == v1::INTERFACE_KIND_WIFI, way.link_local,
                         -Step(way.bandwidth(), kBandwidthStep), KindRank(way.kind),
                         Step(way.round_trip_us(), kRoundTripStep), way.from_ip, way.to_ip);
}

struct Address {
  const v1::LinkInterface* interface;
  uint32_t ip;
  Ipv4Subnet subnet;
};

std::vector<Address> AddressesOf(const v1::LinkFacts& facts) {
  std::vector<Address> found;
  for (const v1::LinkInterface& interface : facts.interfaces()) {
    if (interface.is_up() == v1::FACT_NO || interface.has_carrier() == v1::FACT_NO) continue;
    if (interface.kind() == v1::INTERFACE_KIND_LOOPBACK) continue;
    for (const v1::NodeAddress& address : interface.addresses()) {
      const auto ip = ParseIpv4(address.ip());
      if (!ip || IsLoopback(*ip) || IsNoHost(*ip)) continue;
      found.push_back({&interface, *ip, SubnetHeld(*ip, address.prefix_length())});
    }
  }
  return found;
}

// Two agents in one network stack: the same machine, and an address that both hold (or none at
// all).
bool ShareStack(const v1::LinkFacts& a, const v1::LinkFacts& b) {
  if (a.hardware_id().empty() || a.hardware_id() != b.hardware_id()) return false;
  std::set<std::pair<uint32_t, std::string>> mine;
  for (const Address& address : AddressesOf(a)) mine.emplace(address.ip, address.interface->name());
  const std::vector<Address> theirs = AddressesOf(b);
  if (mine.empty() && theirs.empty()) return true;
  return std::any_of(theirs.begin(), theirs.end(), [&](const Address& address) {
    return mine.contains({address.ip, address.interface->name()});
  });
}

v1::InterfaceKind SlowerKind(v1::InterfaceKind a, v1::InterfaceKind b) {
  return KindRank(a) >= KindRank(b) ? a : b;
}

class PathChooser {
 public:
  PathChooser(const v1::LinkSnapshot& snapshot, const NodesById& nodes, const v1::NodeLinks& from,
              const v1::NodeLinks& to)
      : snapshot_(snapshot), nodes_(nodes), from_(from.facts()), to_(to.facts()) {
    path_.set_from_node_id(from.node_id());
    path_.set_to_node_id(to.node_id());
  }

  // Unset when nothing leads there.
  std::optional<v1::NodePath> Choose(const v1::NodePath* previous) {
    ListWays();
    const Way* best = nullptr;
    for (const Way& way : ways_) {
      if (!way.refused && (best == nullptr || OrderOf(way) < OrderOf(*best))) best = &way;
    }
    if (best == nullptr) return std::nullopt;
    if (previous != nullptr) best = Keep(*previous, best);
    path_.set_from_ip(best->from_ip);
    path_.set_to_ip(best->to_ip);
    path_.set_kind(best->kind);
    if (best->measured != nullptr) {
      path_.set_round_trip_us(best->measured->round_trip_us_p50());
      path_.set_bandwidth_bytes_per_second(best->measured->bandwidth_bytes_per_second());
    }
    for (const Way& way : ways_) {
      if (&way != best) *path_.add_rejected() = WhyNot(way, *best);
    }
    return path_;
  }

 private:
  void ListWays() {
    if (ShareStack(from_, to_)) {
      Way way;
      way.from_ip = way.to_ip = kLoopbackIp;
      way.kind = v1::INTERFACE_KIND_LOOPBACK;
      way.assumed = 4e9;
      way.measured = Measured(kLoopbackIp, kLoopbackIp);
      ways_.push_back(std::move(way));
      return;
    }
    for (const Address& a : AddressesOf(from_)) {
      for (const Address& b : AddressesOf(to_)) AddWay(a, b);
    }
  }

  const v1::LinkMeasurement* Measured(const std::string& from_ip, const std::string& to_ip) const {
    return FindMeasurement(nodes_, path_.from_node_id(), from_ip, path_.to_node_id(), to_ip);
  }

  void AddWay(const Address& a, const Address& b) {
    Way way;
    way.from_ip = Ipv4Text(a.ip);
    way.to_ip = Ipv4Text(b.ip);
    way.from_interface = a.interface->name();
    way.to_interface = b.interface->name();
    way.kind = SlowerKind(a.interface->kind(), b.interface->kind());
    way.link_local = IsLinkLocal(a.ip) || IsLinkLocal(b.ip);
    way.assumed = Assumed(*a.interface, *b.interface, way.kind);
    way.measured = Measured(way.from_ip, way.to_ip);
    // Two machines that hold one address, or addresses of two subnets that nothing was ever seen to
    // pass between, are no way at all.
    if (a.ip == b.ip) return;
    if (way.measured == nullptr && !(a.subnet == b.subnet)) return;
    if (way.measured != nullptr && way.measured->has_failure()) {
      if (!(a.subnet == b.subnet)) return;
      way.refused = way.measured->failure();
    }
    if (way.kind == v1::INTERFACE_KIND_BRIDGE) {
      way.refused = Refuse(way, reasons::kBridgeAddress, "lies on a bridge");
    } else if (way.kind == v1::INTERFACE_KIND_VPN && !snapshot_.allow_vpn()) {
      way.refused = Refuse(way, reasons::kVpnNotUsed, "lies on a VPN");
    }
    ways_.push_back(std::move(way));
  }

  v1::Reason Refuse(const Way& way, std::string_view code, std::string_view why) const {
    return MakeReason(code,
                      absl::StrCat(WayText(way), " ", absl::string_view(why.data(), why.size())),
                      path_.from_node_id());
  }

  static std::string WayText(const Way& way) {
    return absl::StrCat(way.from_ip, " (", way.from_interface, ") to ", way.to_ip, " (",
                        way.to_interface, ")");
  }

  const Way* Keep(const v1::NodePath& previous, const Way* best) const {
    for (const Way& way : ways_) {
      if (way.refused || way.from_ip != previous.from_ip() || way.to_ip != previous.to_ip())
        continue;
      const bool same_kind =
          KindRank(way.kind) == KindRank(best->kind) && way.link_local == best->link_local;
      if (same_kind && way.bandwidth() >= kKeepRatio * best->bandwidth()) return &way;
    }
    return best;
  }

  v1::Reason WhyNot(const Way& way, const Way& best) const {
    if (way.refused) return *way.refused;
    const auto figure = [](const Way& one) {
      return absl::StrFormat("%s, %.0f MB/s%s", KindText(one.kind), one.bandwidth() / 1e6,
                             one.measured == nullptr ? " expected" : "");
    };
    return MakeReason(reasons::kPathNotChosen,
                      absl::StrCat(WayText(way), ": ", figure(way), "; taken: ", figure(best)),
                      path_.from_node_id());
  }

  const v1::LinkSnapshot& snapshot_;
  const NodesById& nodes_;
  const v1::LinkFacts& from_;
  const v1::LinkFacts& to_;
  v1::NodePath path_;
  std::vector<Way> ways_;
};

const v1::NodePath* PreviousOf(const v1::ClusterLinks* previous, const std::string& from,
                               const std::string& to) {
  return previous == nullptr ? nullptr : PathBetween(*previous, from, to);
}

}  // namespace

std::vector<v1::NodePath> ChoosePaths(const v1::LinkSnapshot& snapshot, const NodesById& nodes,
                                      const v1::ClusterLinks* previous) {
  std::vector<v1::NodePath> paths;
  for (const auto& [from_id, from] : nodes) {
    for (const auto& [to_id, to] : nodes) {
      if (from_id == to_id) continue;
      std::optional<v1::NodePath> path =
          PathChooser(snapshot, nodes, *from, *to).Choose(PreviousOf(previous, from_id, to_id));
      if (path.has_value()) paths.push_back(*std::move(path));
    }
  }
  return paths;
}

const v1::NodePath* PathBetween(const v1::ClusterLinks& links, const std::string& from_node_id,
                                const std::string& to_node_id) {
  for (const v1::NodePath& path : links.paths()) {
    if (path.from_node_id() == from_node_id && path.to_node_id() == to_node_id) return &path;
  }
  return nullptr;
}

bool IsPrivateWay(const v1::ClusterLinks& links, const std::string& from_node_id,
                  const std::string& to_node_id, const std::string& to_ip) {
  if (from_node_id == to_node_id || absl::StartsWith(to_ip, "127.")) return true;
  const v1::NodePath* path = PathBetween(links, from_node_id, to_node_id);
  if (path == nullptr || path->kind() != v1::INTERFACE_KIND_THUNDERBOLT || path->to_ip() != to_ip) {
    return false;
  }
  // That both addresses are on such interfaces is not enough: each may lead to a third machine.
  const auto is_end = [](const v1::LinkEnd& end, const std::string& node, const std::string& ip) {
    return end.node_id() == node && end.ip() == ip;
  };
  return std::any_of(links.links().begin(), links.links().end(), [&](const v1::LinkVerdict& link) {
    if (link.kind() != v1::LINK_KIND_THUNDERBOLT) return false;
    return (is_end(link.a(), from_node_id, path->from_ip()) &&
            is_end(link.b(), to_node_id, to_ip)) ||
           (is_end(link.b(), from_node_id, path->from_ip()) && is_end(link.a(), to_node_id, to_ip));
  });
}

// Measured from either side: a round trip is the same both ways.
const v1::LinkMeasurement* FindMeasurement(const NodesById& nodes, const std::string& from_node_id,
                                           const std::string& from_ip,
                                           const std::string& to_node_id,
                                           const std::string& to_ip) {
  if (from_ip.empty() || to_ip.empty()) return nullptr;
  const auto look = [&](const std::string& a, const std::string& a_ip, const std::string& b,
                        const std::string& b_ip) -> const v1::LinkMeasurement* {
    const auto node = nodes.find(a);
    if (node == nodes.end()) return nullptr;
    for (const v1::LinkMeasurement& measured : node->second->measurements()) {
      if (measured.to_node_id() == b && measured.from_ip() == a_ip && measured.to_ip() == b_ip) {
        return &measured;
      }
    }
    return nullptr;
  };
  const v1::LinkMeasurement* forth = look(from_node_id, from_ip, to_node_id, to_ip);
  return forth != nullptr ? forth : look(to_node_id, to_ip, from_node_id, from_ip);
}

}  // namespace macrame::transport
