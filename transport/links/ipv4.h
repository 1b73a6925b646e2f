#pragma once

// IPv4 addresses and subnets, as far as judging links needs them. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace macrame::transport {

struct Ipv4Subnet {
  uint32_t network = 0;  // host order, host bits zero
  uint32_t prefix_length = 0;

  bool Contains(uint32_t address) const;
  // One of them contains the other.
  bool Overlaps(const Ipv4Subnet& other) const;
  bool operator==(const Ipv4Subnet&) const = default;
};

// "10.0.0.1"; nullopt for anything else (IPv6, short forms, zones).
std::optional<uint32_t> ParseIpv4(std::string_view text);
std::string Ipv4Text(uint32_t address);
Ipv4Subnet SubnetOf(uint32_t address, uint32_t prefix_length);
// Of an interface's address. A length of 0 was not found out: no more than the address itself.
Ipv4Subnet SubnetHeld(uint32_t address, uint32_t prefix_length);
// "10.0.1.0/30", "10.0.1", "127", "default": as routing tables print it.
std::optional<Ipv4Subnet> ParseDestination(std::string_view text);

bool IsLoopback(uint32_t address);
bool IsLinkLocal(uint32_t address);
// 0.0.0.0, broadcast, multicast: never an address of a machine.
bool IsNoHost(uint32_t address);

}  // namespace macrame::transport
