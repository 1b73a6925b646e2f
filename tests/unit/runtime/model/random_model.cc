#include "tests/unit/runtime/model/random_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::runtime::engine {
namespace {

class RandomWeights {
 public:
  explicit RandomWeights(const RandomModelShape& shape) : shape_(shape), state_(shape.seed) {}

  std::map<std::string, FixtureTensor> All() {
    const int64_t hidden = shape_.hidden;
    const int64_t queries = int64_t{shape_.heads} * shape_.head_dim;
    const int64_t keys = int64_t{shape_.kv_heads} * shape_.head_dim;
    Linear("model.embed_tokens", shape_.vocabulary, hidden);
    if (!shape_.tied_embeddings) Linear("lm_head", shape_.vocabulary, hidden);
    Norm("model.norm", hidden);
    for (int layer = 0; layer < shape_.layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      Linear(prefix + "self_attn.q_proj", queries, hidden);
      Linear(prefix + "self_attn.k_proj", keys, hidden);
      Linear(prefix + "self_attn.v_proj", keys, hidden);
      Linear(prefix + "self_attn.o_proj", hidden, queries);
      if (shape_.architecture == "gpt_oss") {
        GptOss(prefix, queries, keys);
      } else {
        Feeds(prefix);
      }
      Norm(prefix + "input_layernorm", hidden);
      Norm(prefix + "post_attention_layernorm", hidden);
      if (shape_.architecture == "qwen2") {
        Floats(prefix + "self_attn.q_proj.bias", {queries}, 0.0F, 0.2F);
        Floats(prefix + "self_attn.k_proj.bias", {keys}, 0.0F, 0.2F);
        Floats(prefix + "self_attn.v_proj.bias", {keys}, 0.0F, 0.2F);
      }
      if (shape_.architecture == "qwen3" || shape_.architecture == "qwen3_moe") {
        Norm(prefix + "self_attn.q_norm", shape_.head_dim);
        Norm(prefix + "self_attn.k_norm", shape_.head_dim);
      }
    }
    return std::move(tensors_);
  }

 private:
  void Feeds(const std::string& prefix) {
    const int64_t hidden = shape_.hidden;
    if (shape_.experts > 0) Linear(prefix + "mlp.gate", shape_.experts, hidden);
    for (int i = 0; i < std::max(1, shape_.experts); ++i) {
      const std::string feed =
          prefix + (shape_.experts > 0 ? "mlp.experts." + std::to_string(i) + "." : "mlp.");
      Linear(feed + "gate_proj", shape_.intermediate, hidden);
      Linear(feed + "up_proj", shape_.intermediate, hidden);
      Linear(feed + "down_proj", hidden, shape_.intermediate);
    }
  }
  // What is gpt-oss's own: experts in one tensor, sinks, biases everywhere.
  void GptOss(const std::string& prefix, int64_t queries, int64_t keys) {
    const int64_t hidden = shape_.hidden, width = shape_.intermediate;
    Linear(prefix + "mlp.router", shape_.experts, hidden);
    Stacked(prefix + "mlp.experts.gate_proj", width, hidden);
    Stacked(prefix + "mlp.experts.up_proj", width, hidden);
    Stacked(prefix + "mlp.experts.down_proj", hidden, width);
    Floats(prefix + "mlp.router.bias", {shape_.experts}, 0.0F, 0.2F);
    Floats(prefix + "self_attn.sinks", {shape_.heads}, 1.0F, 1.0F);
    for (const auto& [map, size] :
         {std::pair{"q", queries}, {"k", keys}, {"v", keys}, {"o", hidden}}) {
      Floats(prefix + "self_attn." + map + "_proj.bias", {size}, 0.0F, 0.2F);
    }
  }
  // The same map of all experts, with biases.
  void Stacked(const std::string& name, int64_t rows, int64_t columns) {
    Linear(name, shape_.experts * rows, columns);
    for (const char* part : {".weight", ".scales", ".biases"}) {
      const auto found = tensors_.find(name + part);
      if (found == tensors_.end()) continue;
      found->second.shape = {shape_.experts, rows, found->second.shape[1]};
    }
    Floats(name + ".bias", {shape_.experts, rows}, 0.0F, 0.2F);
  }
  uint32_t Next() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<uint32_t>(state_ >> 32);
  }
  float Uniform() { return static_cast<float>(Next() >> 8) / 8388608.0F - 1.0F; }
  static uint16_t Bfloat16(float value) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    return static_cast<uint16_t>(bits >> 16);
  }

  // bfloat16 numbers within `range` of `middle`.
  void Floats(const std::string& name, std::vector<int64_t> sizes, float middle, float range) {
    size_t count = 1;
    for (const int64_t size : sizes) count *= static_cast<size_t>(size);
    FixtureTensor tensor{"BF16", std::move(sizes), std::string(count * 2, '\0')};
    for (size_t i = 0; i < count; ++i) {
      const uint16_t value = Bfloat16(middle + range * Uniform());
      std::memcpy(tensor.bytes.data() + 2 * i, &value, sizeof(value));
    }
    tensors_[name] = std::move(tensor);
  }
  void Norm(const std::string& name, int64_t size) { Floats(name + ".weight", {size}, 1.0F, 0.5F); }

  // So that a product is about as large as what it is made from.
  void Linear(const std::string& name, int64_t rows, int64_t columns) {
    const float range = std::sqrt(3.0F / static_cast<float>(columns));
    if (shape_.bits == 0) return Floats(name + ".weight", {rows, columns}, 0.0F, range);
    FixtureTensor weights{"U32", {rows, columns * shape_.bits / 32}, ""};
    weights.bytes.resize(static_cast<size_t>(rows * columns * shape_.bits / 8));
    for (size_t i = 0; i < weights.bytes.size(); i += 4) {
      const uint32_t word = Next();
      std::memcpy(weights.bytes.data() + i, &word, sizeof(word));
    }
    tensors_[name + ".weight"] = std::move(weights);
    if (shape_.mxfp4) {
      // Random numbers are 2.93 by root mean square.
      const auto exponent = std::lround(std::log2(range / std::sqrt(3.0F) / 2.93F));
      const auto scale = static_cast<char>(127 + exponent);
      const int64_t groups = columns / 32;
      tensors_[name + ".scales"] = {
          "U8", {rows, groups}, std::string(static_cast<size_t>(rows * groups), scale)};
      return;
    }
    const auto middle = static_cast<float>(1 << (shape_.bits - 1));
    const std::vector<int64_t> groups{rows, columns / shape_.group_size};
    Floats(name + ".scales", groups, range / middle, range / middle / 4);
    FixtureTensor biases = tensors_[name + ".scales"];
    for (size_t i = 0; i < biases.bytes.size(); i += 2) {
      uint16_t half = 0;
      std::memcpy(&half, biases.bytes.data() + i, sizeof(half));
      float scale = 0;
      const uint32_t bits = uint32_t{half} << 16;
      std::memcpy(&scale, &bits, sizeof(scale));
      half = Bfloat16(-scale * middle);
      std::memcpy(biases.bytes.data() + i, &half, sizeof(half));
    }
    tensors_[name + ".biases"] = std::move(biases);
  }

  const RandomModelShape shape_;
  uint64_t state_;
  std::map<std::string, FixtureTensor> tensors_;
};

std::string ConfigOf(const RandomModelShape& shape) {
  nlohmann::json config = {{"model_type", shape.architecture},
                           {"num_hidden_layers", shape.layers},
                           {"hidden_size", shape.hidden},
                           {"intermediate_size", shape.intermediate},
                           {"num_attention_heads", shape.heads},
                           {"num_key_value_heads", shape.kv_heads},
                           {"head_dim", shape.head_dim},
                           {"vocab_size", shape.vocabulary},
                           {"max_position_embeddings", shape.context},
                           {"rms_norm_eps", 1e-5},
                           {"tie_word_embeddings", shape.tied_embeddings}};
  if (shape.experts > 0) {
    config["num_experts"] = shape.experts;
    config["num_experts_per_tok"] = 2;
    config["moe_intermediate_size"] = shape.intermediate;
    config["norm_topk_prob"] = true;
  }
  if (shape.sliding_window > 0) config["sliding_window"] = shape.sliding_window;
  if (shape.architecture == "gpt_oss") config["num_local_experts"] = shape.experts;
  if (shape.mxfp4) {
    config["quantization"] = {{"bits", 4}, {"group_size", 32}, {"mode", "mxfp4"}};
  } else if (shape.bits > 0) {
    config["quantization"] = {{"bits", shape.bits}, {"group_size", shape.group_size}};
  }
  return config.dump();
}

}  // namespace

void CopyTokenizer(const std::string& tokenizer_folder, const std::string& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    std::filesystem::copy_file(tokenizer_folder + "/" + name, folder + "/" + name);
  }
}

std::string WriteRandomModel(const RandomModelShape& shape, const std::string& tokenizer_folder) {
  const std::string folder =
      WriteFolder({{"config.json", ConfigOf(shape)},
                   {"model.safetensors", Safetensors(RandomWeights(shape).All())}});
  CopyTokenizer(tokenizer_folder, folder);
  return folder;
}

}  // namespace macrame::runtime::engine
