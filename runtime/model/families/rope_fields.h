#pragma once

// The rotary form as config.json writes it.

#include <nlohmann/json_fwd.hpp>

#include "runtime/model/config/model_config.h"
#include "runtime/model/config/rope.h"

namespace macrame::runtime::engine {

// "rope_theta" with "rope_parameters" or "rope_scaling", "partial_rotary_factor" and
// "rope_traditional". `head_dim`: of what it turns. Throws ConfigError.
RopeTraits ReadRope(const nlohmann::json& config, int head_dim, int context_length_max);

}  // namespace macrame::runtime::engine
