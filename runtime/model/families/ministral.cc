// Ministral 3, and Mistral 3, whose checkpoints hold a vision tower beside a text model (Devstral).

#include "absl/strings/str_cat.h"
#include "proto/reason_codes.h"
#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {

using nlohmann::json;

// Mistral's layers with queries that grow with their position, as Llama 4's do.
void ReadMinistral3(const json& config, ModelConfig& out) {
  out.tied_embeddings = true;
  ReadFrame(config, out);
  if (FindField(config, "layer_types") != nullptr) ReadSlidingWindows(config, 0, out);
  const json* rope = FindField(config, "rope_parameters");
  if (rope == nullptr) return;
  out.temperature_beta = ReadNumberFromZero(*rope, "llama_4_scaling_beta", 0.0);
  if (out.temperature_beta == 0) return;
  out.temperature_context = ReadInt(*rope, "original_max_position_embeddings", std::nullopt);
}

void ReadMistral3(const json& config, ModelConfig& out) {
  const json text = TextConfig(config, {{"tie_word_embeddings", false}});
  const std::string inner = ReadText(text, "model_type", "mistral");
  if (inner == "ministral3") return ReadMinistral3(text, out);
  if (inner == "mistral") return ReadMistral(text, out);
  throw ConfigError{reasons::kModelArchitectureUnknown,
                    absl::StrCat("architecture 'mistral3' around text of '", inner, "'")};
}

}  // namespace macrame::runtime::engine
