#include "discovery/base/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace macrame::discovery {
namespace {

struct IfaddrsDeleter {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};

uint32_t CountBits(const uint8_t* bytes, size_t count) {
  uint32_t bits = 0;
  for (size_t i = 0; i < count; ++i) bits += static_cast<uint32_t>(std::popcount(bytes[i]));
  return bits;
}

bool AddressOf(const ifaddrs& entry, InterfaceAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (entry.ifa_addr->sa_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(entry.ifa_addr);
    if (inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text)) == nullptr) return false;
    address.ip = text;
    if (entry.ifa_netmask != nullptr) {
      const auto* mask = reinterpret_cast<const sockaddr_in*>(entry.ifa_netmask);
      address.prefix_length = CountBits(reinterpret_cast<const uint8_t*>(&mask->sin_addr), 4);
    }
    address.broadcast = DirectedBroadcast(address.ip, address.prefix_length);
    return true;
  }
  if (entry.ifa_addr->sa_family != AF_INET6) return false;
  const auto* in = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr);
  in6_addr ip = in->sin6_addr;
  // BSD kernels keep the zone inside link-local addresses.
  if (IN6_IS_ADDR_LINKLOCAL(&ip)) ip.s6_addr[2] = ip.s6_addr[3] = 0;
  if (inet_ntop(AF_INET6, &ip, text, sizeof(text)) == nullptr) return false;
  address.ip = text;
  address.is_v6 = true;
  if (entry.ifa_netmask != nullptr) {
    const auto* mask = reinterpret_cast<const sockaddr_in6*>(entry.ifa_netmask);
    address.prefix_length = CountBits(mask->sin6_addr.s6_addr, 16);
  }
  return true;
}

bool IsLinkLocal(const std::string& ip) {
  return ip.starts_with("169.254.") || ip.starts_with("fe8") || ip.starts_with("fe9") ||
         ip.starts_with("fea") || ip.starts_with("feb");
}

int KindOrder(v1::InterfaceKind kind) {
  switch (kind) {
    case v1::INTERFACE_KIND_THUNDERBOLT:
      return 0;
    case v1::INTERFACE_KIND_ETHERNET:
      return 1;
    case v1::INTERFACE_KIND_WIFI:
      return 2;
    case v1::INTERFACE_KIND_LOOPBACK:
      return 4;
    case v1::INTERFACE_KIND_VPN:
      return 5;
    case v1::INTERFACE_KIND_BRIDGE:
      return 6;
    default:
      return 3;
  }
}

}  // namespace

absl::StatusOr<std::vector<Interface>> ListInterfaces(const InterfaceKindLookup& kind_of) {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) {
    return absl::InternalError(
        absl::StrCat("the list of network interfaces can't be read: ", std::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, IfaddrsDeleter> list(raw);
  std::map<std::string, Interface> by_name;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_name == nullptr) continue;
    if (!by_name.contains(entry->ifa_name) && by_name.size() >= kInterfacesMax) continue;
    Interface& interface = by_name[entry->ifa_name];
    if (interface.name.empty()) {
      interface.name = entry->ifa_name;
      interface.index = if_nametoindex(entry->ifa_name);
      interface.is_up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
      interface.is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
      interface.can_multicast = (entry->ifa_flags & IFF_MULTICAST) != 0;
      interface.is_point_to_point = (entry->ifa_flags & IFF_POINTOPOINT) != 0;
      interface.kind =
          interface.is_loopback ? v1::INTERFACE_KIND_LOOPBACK : kind_of(interface.name);
    }
    InterfaceAddress address;
    if (entry->ifa_addr != nullptr && interface.addresses.size() < kAddressesPerInterfaceMax &&
        AddressOf(*entry, address)) {
      interface.addresses.push_back(std::move(address));
    }
  }
  std::vector<Interface> interfaces;
  for (auto& [name, interface] : by_name) interfaces.push_back(std::move(interface));
  return interfaces;
}

std::string DirectedBroadcast(const std::string& ip, uint32_t prefix_length) {
  in_addr address{};
  if (prefix_length == 0 || prefix_length > 30 || inet_pton(AF_INET, ip.c_str(), &address) != 1) {
    return "";
  }
  address.s_addr |= htonl(0xFFFFFFFFu >> prefix_length);
  char text[INET_ADDRSTRLEN] = {};
  return inet_ntop(AF_INET, &address, text, sizeof(text)) == nullptr ? "" : text;
}

bool InSameSubnet(const std::string& a, const std::string& b, uint32_t prefix_length) {
  uint8_t first[16] = {};
  uint8_t second[16] = {};
  size_t bits = 32;
  if (inet_pton(AF_INET, a.c_str(), first) != 1 || inet_pton(AF_INET, b.c_str(), second) != 1) {
    bits = 128;
    if (inet_pton(AF_INET6, a.c_str(), first) != 1 || inet_pton(AF_INET6, b.c_str(), second) != 1) {
      return false;
    }
  }
  if (prefix_length == 0 || prefix_length > bits) return false;
  const size_t whole = prefix_length / 8;
  if (std::memcmp(first, second, whole) != 0) return false;
  const uint32_t rest = prefix_length % 8;
  return rest == 0 || (first[whole] >> (8 - rest)) == (second[whole] >> (8 - rest));
}

std::vector<v1::NodeAddress> NodeAddresses(const std::vector<Interface>& interfaces,
                                           bool with_loopback) {
  std::vector<v1::NodeAddress> addresses;
  for (const Interface& interface : interfaces) {
    if (!interface.is_up || (interface.is_loopback && !with_loopback)) continue;
    for (const InterfaceAddress& address : interface.addresses) {
      if (address.is_v6 && IsLinkLocal(address.ip)) continue;
      v1::NodeAddress node_address;
      node_address.set_ip(address.ip);
      node_address.set_interface_name(interface.name);
      node_address.set_interface_kind(interface.kind);
      node_address.set_prefix_length(address.prefix_length);
      addresses.push_back(std::move(node_address));
    }
  }
  SortAddresses(addresses);
  return addresses;
}

void SortAddresses(std::vector<v1::NodeAddress>& addresses) {
  const auto key = [](const v1::NodeAddress& address) {
    return std::make_tuple(KindOrder(address.interface_kind()), IsLinkLocal(address.ip()),
                           address.ip().find(':') != std::string::npos, address.ip(),
                           address.interface_name());
  };
  std::sort(addresses.begin(), addresses.end(),
            [&](const auto& a, const auto& b) { return key(a) < key(b); });
}

}  // namespace macrame::discovery
