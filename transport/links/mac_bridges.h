#pragma once

// macOS makes bridge100 and up by itself, for Internet Sharing and for virtual machines; bridge0 is
// the Thunderbolt Bridge, and what lies between is somebody's own. Names of services and hardware
// ports are in the system's language; these never are. Any thread.

#include <algorithm>
#include <charconv>
#include <string_view>

#include "macrame/v1/link.pb.h"

namespace macrame::transport {

inline constexpr int kFirstMadeBridge = 100;

// "bridge0" → 0; -1: no bridge of a Mac.
inline int BridgeNumber(std::string_view name) {
  constexpr std::string_view kPrefix = "bridge";
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  int number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool is_number = error == std::errc() && end == name.data() + name.size();
  return is_number && number >= 0 ? number : -1;
}

// With members other than a virtual machine's.
inline bool IsOfInternetSharing(const v1::NetworkBridge& bridge) {
  return BridgeNumber(bridge.name()) >= kFirstMadeBridge &&
         std::any_of(bridge.members().begin(), bridge.members().end(),
                     [](std::string_view member) { return !member.starts_with("vmenet"); });
}

}  // namespace macrame::transport
