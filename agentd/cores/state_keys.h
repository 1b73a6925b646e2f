#pragma once

// What the keys of the desired state begin with (README.md, "Desired state").

#include "absl/strings/string_view.h"

namespace macrame::agentd {

inline constexpr absl::string_view kDeploymentPrefix = "deployment/";
inline constexpr absl::string_view kGangPrefix = "gang/";

}  // namespace macrame::agentd
