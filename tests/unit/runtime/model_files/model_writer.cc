#include "tests/unit/runtime/model_files/model_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/fresh_folder.h"

namespace macrame::runtime {

std::string MakeFolder(const std::string& name) {
  const std::string folder = FreshFolder() + "/" + name;
  std::filesystem::create_directories(folder);
  return folder;
}

nlohmann::json SmallConfig() {
  return {{"model_type", "llama"},          {"architectures", {"LlamaForCausalLM"}},
          {"num_hidden_layers", 2},         {"hidden_size", 64},
          {"intermediate_size", 128},       {"num_attention_heads", 4},
          {"num_key_value_heads", 2},       {"vocab_size", 100},
          {"max_position_embeddings", 512}, {"rms_norm_eps", 1e-5},
          {"tie_word_embeddings", false}};
}

TestTensors SmallTensors() {
  TestTensors tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    tensors[name + ".weight"] = {"BF16", std::move(shape)};
  };
  add("model.embed_tokens", {100, 64});
  add("model.norm", {64});
  add("lm_head", {100, 64});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    add(prefix + "self_attn.q_proj", {64, 64});
    add(prefix + "self_attn.k_proj", {32, 64});
    add(prefix + "self_attn.v_proj", {32, 64});
    add(prefix + "self_attn.o_proj", {64, 64});
    add(prefix + "mlp.gate_proj", {128, 64});
    add(prefix + "mlp.up_proj", {128, 64});
    add(prefix + "mlp.down_proj", {64, 128});
    add(prefix + "input_layernorm", {64});
    add(prefix + "post_attention_layernorm", {64});
  }
  return tensors;
}

TestTensors QuantizedTensors(int bits, int group_size) {
  TestTensors tensors;
  for (const auto& [name, tensor] : SmallTensors()) {
    if (tensor.shape.size() != 2) {
      tensors[name] = tensor;
      continue;
    }
    const std::string module = name.substr(0, name.rfind('.'));
    tensors[name] = {"U32", {tensor.shape[0], tensor.shape[1] * bits / 32}};
    for (const char* part : {".scales", ".biases"}) {
      tensors[module + part] = {"BF16", {tensor.shape[0], tensor.shape[1] / group_size}};
    }
  }
  return tensors;
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

void WriteConfig(const std::string& folder, const nlohmann::json& config) {
  WriteFile(folder + "/config.json", config.dump(1));
}

void WriteSafetensors(const std::string& path, const TestTensors& tensors, char fill) {
  nlohmann::json header = nlohmann::json::object();
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    uint64_t bytes =
        tensor.dtype == "F32" || tensor.dtype == "U32" || tensor.dtype == "I32" ? 4 : 2;
    if (tensor.dtype == "F8_E4M3" || tensor.dtype == "U8") bytes = 1;
    for (int64_t size : tensor.shape) bytes *= static_cast<uint64_t>(size);
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  const std::string text = header.dump();
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(text.size() >> (8 * i));
  WriteFile(path, file + text + std::string(offset, fill));
  // Without one a folder is no model's.
  WriteFile(std::filesystem::path(path).parent_path() / "tokenizer.json", "{}");
}

void WriteModel(const std::string& folder, const nlohmann::json& config, const TestTensors& tensors,
                char fill) {
  std::filesystem::create_directories(folder);
  WriteConfig(folder, config);
  WriteSafetensors(folder + "/model.safetensors", tensors, fill);
}

}  // namespace macrame::runtime
