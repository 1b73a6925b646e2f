#pragma once

// How somebody on another machine names a model: what a node's disk holds is told to nobody who
// can't look at it anyway. Owner thread.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agentd/node/node_views.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

// What is looked for when `caller` names a model so. Whoever may open this machine's socket, and
// members that pass something on, name models as they like. An access file's clusterctl gives
// names: a path is taken for the model that some member's model folders hold at it, and any other
// path, whatever is there, is MODEL_NOT_FOUND in the same words. No disk is looked at.
absl::StatusOr<std::string> ModelNameFrom(const transport::Caller& caller,
                                          const std::string& name_or_path,
                                          const std::vector<NodeFacts>& nodes);

}  // namespace macrame::agentd
