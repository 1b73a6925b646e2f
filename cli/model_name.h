#pragma once

// Names of models that people type. `model profile --alias` gives a model other names, which the
// whole cluster knows; every command that names a model takes them.

#include <string>

#include "cli/agent_client.h"

namespace macrame::cli {

// The model whose alias `name` is; `name` itself where it is no alias, or a model is served under
// it. Asks the agent; where that can't tell, `name`, and the command's own call says what is wrong.
std::string ModelMeantBy(AgentClient& client, const std::string& name);

}  // namespace macrame::cli
