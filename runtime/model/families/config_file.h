#pragma once

// Reads a model's config.json: its family says what the fields mean. Pure, but for LoadModelConfig.

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/model/config/model_config.h"

namespace macrame::runtime::engine {

// All that are served, as config.json's "model_type" spells them.
std::span<const std::string_view> KnownFamilies();

// `folder` appears in error messages only. Errors carry a Reason: MODEL_CONFIG_INVALID,
// MODEL_ARCHITECTURE_UNKNOWN or MODEL_FORMAT_UNSUPPORTED.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json,
                                             const std::string& folder);

// Reads FOLDER/config.json (at most 1 MiB).
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& folder);

}  // namespace macrame::runtime::engine
