#pragma once

// What the keys of the desired state begin with (README.md, "Desired state").

#include "absl/strings/string_view.h"

namespace macrame::agentd {

inline constexpr absl::string_view kDeploymentPrefix = "deployment/";
inline constexpr absl::string_view kGangPrefix = "gang/";
inline constexpr absl::string_view kRefusalPrefix = "refusal/";  // a transport that is not tried
inline constexpr absl::string_view kCrashPrefix = "crash/";      // of a node
inline constexpr absl::string_view kCordonPrefix = "cordon/";    // of a node
inline constexpr absl::string_view kMarksPrefix = "marks/";      // of a node
inline constexpr absl::string_view kProfilePrefix = "profile/";  // of a model
inline constexpr absl::string_view kApiKeyPrefix = "key/";       // of the HTTP API
inline constexpr absl::string_view kTenantPrefix = "tenant/";    // limits of its keys together
inline constexpr absl::string_view kPauseKey = "pause";          // of the whole cluster
inline constexpr absl::string_view kStoppedPrefix =
    "stopped/";  // a deployment of a stopped cluster
inline constexpr absl::string_view kLinksKey = "links";
inline constexpr absl::string_view kSpeedsKey = "speeds";

}  // namespace macrame::agentd
