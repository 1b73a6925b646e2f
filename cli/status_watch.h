#pragma once

// The cluster's status again and again, repainted in place: `status --watch` and `top`.

#include <functional>
#include <string>

#include "cli/command.h"
#include "macrame/v1/cluster.pb.h"

namespace macrame::cli {

using StatusAsText = std::function<std::string(const v1::ClusterStatus&)>;

// Until Ctrl-C, across restarts of the agent; `until_key`: or until q is pressed. Returns the exit
// code. Documents, one after the other, where they are wanted.
int WatchStatusAs(const Invocation& run, StatusAsText view, bool until_key);

// What `status -o json` prints.
Json StatusDocument(v1::ClusterStatus status);

}  // namespace macrame::cli
