// Llama and Mistral: the frame as it is.

#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {

void ReadLlama(const nlohmann::json& config, ModelConfig& out) {
  ReadFrame(config, out);
  ExpectSilu(config);
  out.qkv_bias = out.output_bias = ReadBool(config, "attention_bias", false);
  out.mlp_bias = ReadBool(config, "mlp_bias", false);
}

// All layers see the window unless "layer_types" tells them apart.
void ReadMistral(const nlohmann::json& config, ModelConfig& out) {
  ReadFrame(config, out);
  ExpectSilu(config);
  out.qkv_bias = out.output_bias = ReadBool(config, "attention_bias", false);
  ReadSlidingWindows(config, 0, out);
}

}  // namespace macrame::runtime::engine
