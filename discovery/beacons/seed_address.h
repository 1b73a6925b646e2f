#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace macrame::discovery {

// A host to which beacons are sent though it is on no network of ours.
struct SeedAddress {
  std::string host;  // a name or an address
  uint16_t port = 0;
};

// "10.0.0.7", "mac-studio.lan:8888", "fd00::7", "[fd00::7]:8888". INVALID_ARGUMENT with what to
// write instead.
absl::StatusOr<SeedAddress> ParseSeed(std::string_view text, uint16_t default_port);

}  // namespace macrame::discovery
