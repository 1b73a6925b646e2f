// gpt-oss: layers that look at a window and layers that see everything in turn, a learnt sink in
// each head's softmax, experts with biases whose gate and up are clamped.

#include "absl/strings/str_cat.h"
#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

// Without "layer_types" the first layer has a window, and every other one after it.
void ReadGptOssWindows(const json& config, ModelConfig& out) {
  json frame = {{"sliding_window", 128}};
  frame.update(config);
  ReadSlidingWindows(frame, out.layer_count, out);
  const json* types = FindField(config, "layer_types");
  const int window = ReadInt(config, "sliding_window", 128);
  if (types == nullptr) {
    for (size_t layer = 0; layer < out.sliding_windows.size(); layer += 2) {
      out.sliding_windows[layer] = window;
    }
    return;
  }
  if (!types->is_array()) Invalid("'layer_types' is not a list");
  for (const json& type : *types) {
    if (type != "sliding_attention" && type != "full_attention") {
      Unsupported(absl::StrCat("'layer_types' names ", type.dump(),
                               "; sliding_attention and full_attention are implemented"));
    }
  }
}

}  // namespace

void ReadGptOss(const json& config, ModelConfig& out) {
  ReadFrame(config, out);
  if (out.activation != Activation::kSilu) Unsupported("gpt_oss with an activation beside silu");
  out.qkv_bias = out.output_bias = true;
  out.attention_sinks = true;
  ReadGptOssWindows(config, out);
  ExpertTraits& experts = out.experts;
  experts.count = ReadInt(config, "num_local_experts", std::nullopt);
  experts.width = ReadInt(config, "intermediate_size", std::nullopt);
  experts.normalized = true;
  experts.module = "mlp";
  experts.router_name = "router";
  experts.router_bias = true;
  experts.gate_name = experts.up_name = experts.down_name = "";
  experts.stacked_name = "experts";
  experts.stored_as_blocks = true;
  experts.fused_name = "experts";
  experts.fused_turned = true;
  experts.bias = true;
  experts.swiglu_limit = static_cast<float>(ReadNumber(config, "swiglu_limit", 7.0));
  experts.swiglu_alpha = static_cast<float>(ReadNumber(config, "swiglu_alpha", 1.702));
  ReadActiveExperts(config, out);
}

}  // namespace macrame::runtime::engine
