#pragma once

// Static /30 addresses for each Thunderbolt cable, and the commands that set and undo them. Link k
// gets base + 4k, the lower node id +1, the higher +2; no subnet that any interface of any node
// has. Pure. Any thread.

#include <string>

#include "absl/status/statusor.h"
#include "macrame/v1/link.pb.h"

namespace macrame::transport {

// `block` as "10.77.0.0/16"; empty: the first free of a few. ADDRESS_COLLISION when it is in use.
absl::StatusOr<v1::NetPlan> PlanAddresses(const v1::LinkSnapshot& snapshot,
                                          const v1::ClusterLinks& links, const std::string& block);

}  // namespace macrame::transport
