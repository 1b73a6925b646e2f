#include "tests/unit/runtime/model/model_fixture.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "proto/check.h"

namespace macrame::runtime::engine {
namespace {

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace

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

void Enlarge(std::map<std::string, FixtureTensor>& tensors) {
  for (auto& [name, tensor] : tensors) {
    std::vector<float> values(tensor.bytes.size() / 4);
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    const bool norm = name.find("norm") != std::string::npos;
    for (float& value : values) value = norm ? 1.0F + 2.0F * value : 3.0F * value;
    std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  }
}

std::string TinyFolder(const std::string& kind) {
  auto tensors = TinyLlama();
  std::string config = TinyLlamaConfig();
  uint32_t seed = 100;
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    const std::string attention = layer + "self_attn.";
    if (kind == "qwen2") {
      tensors[attention + "q_proj.bias"] = RandomTensor({64}, seed++);
      tensors[attention + "k_proj.bias"] = RandomTensor({32}, seed++);
      tensors[attention + "v_proj.bias"] = RandomTensor({32}, seed++);
    } else if (kind == "qwen3") {
      tensors[attention + "q_norm.weight"] = RandomTensor({16}, seed++);
      tensors[attention + "k_norm.weight"] = RandomTensor({16}, seed++);
    } else if (kind == "llama-bias") {
      tensors[attention + "q_proj.bias"] = RandomTensor({64}, seed++);
      tensors[attention + "k_proj.bias"] = RandomTensor({32}, seed++);
      tensors[attention + "v_proj.bias"] = RandomTensor({32}, seed++);
      tensors[attention + "o_proj.bias"] = RandomTensor({64}, seed++);
      tensors[layer + "mlp.gate_proj.bias"] = RandomTensor({128}, seed++);
      tensors[layer + "mlp.up_proj.bias"] = RandomTensor({128}, seed++);
      tensors[layer + "mlp.down_proj.bias"] = RandomTensor({64}, seed++);
    }
  }
  Enlarge(tensors);
  if (kind == "qwen2" || kind == "qwen3") config = Replaced(config, "llama", kind);
  if (kind == "llama-bias") {
    config = Replaced(config, "}", R"(, "attention_bias": true, "mlp_bias": true})");
  }
  if (kind == "mistral") {
    config = Replaced(Replaced(config, "llama", kind), "}", R"(, "sliding_window": 12})");
  }
  if (kind == "llama3") {
    config = Replaced(config, "}",
                      R"(, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                         "original_max_position_embeddings": 32}})");
  }
  if (kind == "linear") {
    config = Replaced(config, "}", R"(, "rope_scaling": {"type": "linear", "factor": 4.0}})");
  }
  return WriteFolder({{"config.json", config}, {"model.safetensors", Safetensors(tensors)}});
}

}  // namespace macrame::runtime::engine
