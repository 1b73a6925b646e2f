#pragma once

// Which GIDs two devices meet under. RoCE devices carry one GID per address and protocol version;
// only IPv4-mapped ones (::ffff:a.b.c.d) of version 2 are routed like the addresses that links are
// judged by. Pure.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace macrame::transport {

struct Gid {
  std::array<uint8_t, 16> bytes{};
  uint8_t index = 0;  // in its device's table
};

// The IPv4 address in an IPv4-mapped GID, host order.
std::optional<uint32_t> Ipv4Of(const Gid& gid);
std::string GidText(const std::array<uint8_t, 16>& gid);  // "0000:…:ffff:0a00:0101"

// The pair (own, theirs) of IPv4-mapped GIDs that share the longest prefix: on one link the two
// addresses of its subnet. Both ends get the same pair. nullopt when one has none.
std::optional<std::pair<Gid, Gid>> ChooseGids(std::span<const Gid> own,
                                              std::span<const Gid> theirs);

}  // namespace macrame::transport
