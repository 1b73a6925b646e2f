#pragma once

// Secrets that stand in the file of settings itself.

#include <string>

#include "agentd/config/config.h"

namespace macrame::agentd {

// One line for the log when `path`, the file that `config` was read from, holds a secret (the URL
// or authorization of the webhook) and users other than the agent's may read it: which setting, and
// the command that ends it. Empty when there is nothing to warn of. A file that is another user's
// (root's) and that this agent reads by its group is taken for what somebody arranged.
std::string ExposedSecretsWarning(const std::string& path, const LoadedConfig& config);

}  // namespace macrame::agentd
