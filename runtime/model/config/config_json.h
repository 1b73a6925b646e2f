#pragma once

// config.json and the files beside it as JSON. Any thread.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace macrame::runtime::engine {

inline constexpr size_t kConfigBytesMax = size_t{1} << 20;
// What is nested deeper is refused before anything copies it, which takes as deep a stack.
inline constexpr int kConfigDepthMax = 32;

// As Python reads it (python_json.h). Discarded (is_discarded) when `text` is not JSON or nested
// too deeply.
nlohmann::json ParseConfigJson(std::string_view text);

// An object, or MODEL_CONFIG_INVALID; `folder` appears in the error message only.
absl::StatusOr<nlohmann::json> ParseConfigObject(std::string_view text, const std::string& folder);

}  // namespace macrame::runtime::engine
