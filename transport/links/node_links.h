#pragma once

// The nodes of a snapshot, by id, and the ports of all of them by domain UUID. Internal to judging.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "macrame/v1/link.pb.h"
#include "proto/reason_codes.h"

namespace macrame::transport {

// By node id, so that the order in which nodes are given does not matter. Of a node that is given
// twice the higher revision counts.
using NodesById = std::map<std::string, const v1::NodeLinks*>;
NodesById NodesOf(const v1::LinkSnapshot& snapshot);

// Reasons that keep a whole set of nodes off RDMA although its links are good.
inline bool IsGroupVeto(std::string_view code) {
  return code == reasons::kMlxOld || code == reasons::kOsFrameMismatch ||
         code == reasons::kCoordinator;
}

// Cables between Macs and what each can do, and one-ended ones whose peer is no member.
std::vector<v1::LinkVerdict> JudgeThunderbolt(const NodesById& nodes);
// Pairs of verbs devices that share a subnet, on machines that are not Macs.
std::vector<v1::LinkVerdict> JudgeVerbs(const NodesById& nodes);
// The best way of each ordered pair of nodes; `previous` (may be null) keeps a way that is about as
// good as the best, so that jitter does not flip it.
std::vector<v1::NodePath> ChoosePaths(const v1::LinkSnapshot& snapshot, const NodesById& nodes,
                                      const v1::ClusterLinks* previous);

const v1::LinkMeasurement* FindMeasurement(const NodesById& nodes, const std::string& from_node_id,
                                           const std::string& from_ip,
                                           const std::string& to_node_id, const std::string& to_ip);

}  // namespace macrame::transport
