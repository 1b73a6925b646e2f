#pragma once

// Fields of a config.json that change what a model computes and that a family's read function does
// not take: what mlx-lm's or transformers' code for the family reads beyond it. Where such a field
// says something else than what the engine computes, the model is refused by the field's name. It
// is never served as another model in silence.
//
// All throw ConfigError (config_fields.h).

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "runtime/model/config/model_config.h"

namespace macrame::runtime::engine {

// Puts fields that the references know under a second name under the name that is read here.
// `type`: config.json's own "model_type".
void NameFields(std::string_view type, nlohmann::json& config);

// Before the family reads it: fields that the engine has in one form alone.
void CheckFixedFields(std::string_view type, const nlohmann::json& config);

// After: "layer_types" and "mlp_layer_types" name what the family's reader made of each layer.
void CheckLayerKinds(const nlohmann::json& config, const ModelConfig& read);

// Layers have experts as "mlp_layer_types" says, where it is there (transformers 5).
void ReadFeedKinds(const nlohmann::json& config, ModelConfig& out);

}  // namespace macrame::runtime::engine
