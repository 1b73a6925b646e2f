#include "tests/unit/runtime/model/model_fixture.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "proto/check.h"

namespace macrame::runtime::engine {

std::string Safetensors(const std::map<std::string, FixtureTensor>& tensors) {
  nlohmann::json header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  const std::string text = header.dump();
  std::string out(8, '\0');
  const uint64_t length = text.size();
  std::memcpy(out.data(), &length, sizeof(length));
  return out + text + data;
}

FixtureTensor RandomTensor(std::vector<int64_t> shape, uint32_t seed) {
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  std::vector<float> values(count);
  uint32_t state = seed * 2654435761U + 1;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = (static_cast<float>(state >> 8) / 16777216.0F - 0.5F) * 0.2F;
  }
  std::string bytes(count * 4, '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return {"F32", std::move(shape), std::move(bytes)};
}

std::map<std::string, FixtureTensor> TinyLlama() {
  std::map<std::string, FixtureTensor> tensors;
  uint32_t seed = 1;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    tensors[name + ".weight"] = RandomTensor(std::move(shape), seed++);
  };
  add("model.embed_tokens", {96, 64});
  add("model.norm", {64});
  add("lm_head", {96, 64});
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    add(layer + "self_attn.q_proj", {64, 64});
    add(layer + "self_attn.k_proj", {32, 64});
    add(layer + "self_attn.v_proj", {32, 64});
    add(layer + "self_attn.o_proj", {64, 64});
    add(layer + "mlp.gate_proj", {128, 64});
    add(layer + "mlp.up_proj", {128, 64});
    add(layer + "mlp.down_proj", {64, 128});
    add(layer + "input_layernorm", {64});
    add(layer + "post_attention_layernorm", {64});
  }
  return tensors;
}

std::string TinyLlamaConfig() {
  return R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64,
             "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,
             "vocab_size": 96, "max_position_embeddings": 128, "rms_norm_eps": 1e-5})";
}

std::string WriteFolder(const std::map<std::string, std::string>& files) {
  std::string folder = "/tmp/macrame-model-XXXXXX";
  MACRAME_CHECK(mkdtemp(folder.data()) != nullptr) << folder;
  for (const auto& [name, content] : files) {
    std::ofstream(folder + "/" + name, std::ios::binary) << content;
  }
  return folder;
}

}  // namespace macrame::runtime::engine
