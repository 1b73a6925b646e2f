#pragma once

// The machine's network interfaces: names, kinds and addresses.
//
// Which interfaces exist and their addresses come from getifaddrs. The kind comes from sysfs on
// Linux and from `networksetup -listallhardwareports` on a Mac, where names mean nothing (en5 may
// be Ethernet, Wi-Fi or Thunderbolt); what neither tells is judged by name, and stays UNSPECIFIED
// when that fails.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "macrame/v1/node.pb.h"

namespace macrame::discovery {

inline constexpr size_t kInterfacesMax = 64;
inline constexpr size_t kAddressesPerInterfaceMax = 16;

struct InterfaceAddress {
  std::string ip;  // textual, without a zone
  bool is_v6 = false;
  uint32_t prefix_length = 0;
  std::string broadcast;  // IPv4 directed broadcast; empty when there is none (/31, /32, IPv6)

  bool operator==(const InterfaceAddress&) const = default;
};

struct Interface {
  std::string name;
  uint32_t index = 0;
  v1::InterfaceKind kind = v1::INTERFACE_KIND_UNSPECIFIED;
  bool is_up = false;  // up and running
  bool is_loopback = false;
  bool can_multicast = false;
  bool is_point_to_point = false;
  std::vector<InterfaceAddress> addresses;

  bool operator==(const Interface&) const = default;
};

// Name → kind. UNSPECIFIED when it can't be told.
using InterfaceKindLookup = std::function<v1::InterfaceKind(const std::string& name)>;

// Of this machine, by name. Errors: the system call's. Thread-safe.
absl::StatusOr<std::vector<Interface>> ListInterfaces(const InterfaceKindLookup& kind_of);

// Linux: from `root`/sys/class/net/NAME (wireless, bridge, tun_flags, type, driver of Thunderbolt).
// `root` is "" on a live machine.
v1::InterfaceKind KindFromSysfs(const std::string& root, const std::string& name);

// macOS: from the output of `networksetup -listallhardwareports`: device → kind. Unknown ports are
// left out. Never fails: what is cut off is not there.
std::map<std::string, v1::InterfaceKind> ParseHardwarePorts(std::string_view text);

// By name alone: "lo0", "utun3", "bridge0", "docker0", "awdl0", …
v1::InterfaceKind KindFromName(std::string_view name);

// Directed broadcast of an IPv4 address, "" for /31, /32 and what is not an IPv4 address.
std::string DirectedBroadcast(const std::string& ip, uint32_t prefix_length);

// Whether two textual addresses of one family share their first `prefix_length` bits.
bool InSameSubnet(const std::string& a, const std::string& b, uint32_t prefix_length);

// All addresses at which peers might reach this machine, best first (SortAddresses). Loopback
// only when asked for; never IPv6 link-local ones, which mean nothing without the reader's own
// interface.
std::vector<v1::NodeAddress> NodeAddresses(const std::vector<Interface>& interfaces,
                                           bool with_loopback);

// Best first: Thunderbolt, Ethernet, Wi-Fi, unknown, loopback, VPN, bridge; routable before
// link-local, IPv4 before IPv6, then by text, so that all nodes agree.
void SortAddresses(std::vector<v1::NodeAddress>& addresses);

}  // namespace macrame::discovery
