#pragma once

// A status's message for the log: Abseil's own string view is unknown to fmt.

#include <string>

#include "absl/status/status.h"

namespace macrame::agentd {

inline std::string LogText(const absl::Status& status) { return std::string(status.message()); }

}  // namespace macrame::agentd
