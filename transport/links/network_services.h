#pragma once

// The network services of a Mac: which ones its ports have already. They are found by the BSD name
// of their device, because names of services and hardware ports are in the system's language and
// people rename them. Pure. Any thread.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "macrame/v1/link.pb.h"

namespace macrame::transport {

struct NetworkService {
  std::string name;
  std::string hardware_port;
  std::string device;  // may be empty (VPN)
  bool is_enabled = true;
};

// What `networksetup -listnetworkserviceorder` prints; a service that was cut off is left out.
std::vector<NetworkService> ParseServiceOrder(std::string_view text);

inline constexpr char kServiceOrderCommand[] = "networksetup -listnetworkserviceorder";

// Those that the node's probe listed, in their order; none where it could not.
std::vector<NetworkService> ServicesOf(const v1::LinkFacts& facts);

// In double quotes, as a shell and 'clusterctl net apply' take it: names are people's own.
std::string QuotedName(const std::string& name);

}  // namespace macrame::transport
