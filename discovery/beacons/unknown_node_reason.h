#pragma once

// Why the node behind a beacon is not admitted, in words for its and our user. Pure.

#include <optional>
#include <string>

#include "discovery/beacons/beacon_codec.h"
#include "macrame/v1/node.pb.h"

namespace macrame::discovery {

// For the verdicts kOtherCluster, kNoSecret and kBadSignature; nullopt for the others.
// `own_cluster` is empty when this node has none.
std::optional<v1::UnknownNode> UnknownNodeOf(const DecodedBeacon& decoded,
                                             const std::string& source_ip,
                                             const std::string& own_cluster, uint64_t now_unix_ms);

}  // namespace macrame::discovery
