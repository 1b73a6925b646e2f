#pragma once

// Small models of random weights of every family: the tensors are those that weight_needs.h asks
// for. That their names and their meaning are the family's, tests/conformance/engine shows.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace macrame::runtime::engine {

// Names of configs: a family's "model_type", or that and what is special ("glm4_moe groups").
std::vector<std::string> FamilyNames();

struct FamilyShape {
  std::string name;
  // Of MLX's affine quantisation in groups of 32; 0: float32, or what the config's
  // "quantization_config" says.
  int bits = 0;
  int vocabulary = 101;
};
nlohmann::json FamilyConfig(const FamilyShape& shape);

// "config.json" and "model.safetensors".
std::map<std::string, std::string> FamilyModel(const FamilyShape& shape);
// Of any config that the engine reads. Its "test_experts", "fused" or "turned", has experts that
// are not quantised stored as Qwen publishes them.
std::map<std::string, std::string> ModelOfConfig(const nlohmann::json& config);
// Of 4 bits whose biases follow from their scales: as MLX stores them, or its layers packed as
// compressed-tensors does. The numbers are the same.
std::map<std::string, std::string> SymmetricModel(const std::string& name, bool packed);

}  // namespace macrame::runtime::engine
