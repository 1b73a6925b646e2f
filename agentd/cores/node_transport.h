#pragma once

// What one node has for ranks that span machines. Pure.

#include <set>
#include <string>

#include "macrame/v1/link.pb.h"

namespace macrame::agentd {

// The best way from `node` to each of the other `live` nodes: "jaccl" or "verbs" where RDMA works
// to all of them, "jaccl 1/2" where it works to one of two, else "ring"; "none" when no way leads
// to any of them. Empty: it is alone, dead, or nothing was probed yet.
std::string NodeTransport(const v1::ClusterLinks& links, const std::string& node,
                          const std::set<std::string>& live);

}  // namespace macrame::agentd
