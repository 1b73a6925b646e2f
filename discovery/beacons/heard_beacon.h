#pragma once

#include <cstdint>
#include <string>

#include "proto/ids.h"

namespace macrame::discovery {

// What a member's beacon says besides where it came from.
struct HeardBeacon {
  NodeId node;
  std::string machine;  // as in NodeIdentity; empty where it can't be told
  uint32_t control_port = 0;
  uint64_t incarnation = 0;
  uint64_t sequence = 0;  // rises within an incarnation
  uint64_t news = 0;      // Beacon.news; 0: not told, as in whole beacons
};

}  // namespace macrame::discovery
