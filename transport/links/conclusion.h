#pragma once

// The doctor's sentence on a set of nodes: what they run together, and why not more. Pure. Internal
// to diagnosis.

#include <span>
#include <string>

#include "macrame/v1/link.pb.h"

namespace macrame::transport {

// One or two sentences. `cause`, when not null, is why RDMA is not there. Without one it is said
// what the nodes lack: hardware, when every one of them is known to have none; else cables, what
// goes with them, or the support list. `nodes`: the facts of the set, by node id.
std::string ConclusionOf(const v1::GroupVerdict& group, const v1::Reason* cause,
                         std::span<const v1::LinkFacts* const> nodes,
                         const v1::ClusterLinks& links);

}  // namespace macrame::transport
