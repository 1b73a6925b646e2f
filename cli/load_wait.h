#pragma once

// A model is loaded while somebody waits: progress on stderr until it is ready.

#include "cli/command.h"
#include "macrame/v1/cluster.pb.h"

namespace macrame::cli {

// kExitOk with `loaded` filled in; else what went wrong was said, and this is the exit code. Ctrl-C
// ends the wait alone: the load goes on. `client` asks nothing more after it.
int LoadAndWait(const Invocation& run, AgentClient& client, const v1::LoadModelRequest& request,
                v1::DeploymentStatus* loaded);

}  // namespace macrame::cli
