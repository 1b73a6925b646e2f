#pragma once

// Static /30 addresses for each Thunderbolt cable that lacks them, and the commands that set and
// undo them: the free ones of the block in turn, the lower node id +1, the higher +2; no subnet
// that any interface of any known node has. A cable of which one end has its address (the plan was
// carried out on one machine so far) keeps that subnet. A port that has a network service already
// keeps it: a second one would give the port a second address. Pure. Any thread.

#include <string>

#include "absl/status/statusor.h"
#include "macrame/v1/link.pb.h"

namespace macrame::transport {

// `block` as "10.77.0.0/16"; empty: the first of a few that nothing but cables uses; none is taken
// when no cable needs a subnet. ADDRESS_COLLISION when anything but cables uses it, or these leave
// no room. `absent`: nodes that are known and not alive, which come back with their addresses.
absl::StatusOr<v1::NetPlan> PlanAddresses(const v1::LinkSnapshot& snapshot,
                                          const v1::ClusterLinks& links, const std::string& block,
                                          const v1::LinkSnapshot& absent = {});

}  // namespace macrame::transport
