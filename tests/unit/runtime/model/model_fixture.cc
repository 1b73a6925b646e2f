#include "tests/unit/runtime/model/model_fixture.h"

#include <array>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "proto/check.h"
#include "tests/unit/fresh_folder.h"

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

namespace {

// `values` numbers as their upper halves.
std::string Bfloat16Bytes(const std::vector<float>& values) {
  std::string bytes(values.size() * 2, '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    std::memcpy(bytes.data() + 2 * i, reinterpret_cast<const char*>(&values[i]) + 2, 2);
  }
  return bytes;
}

class ModelWriter {
 public:
  explicit ModelWriter(const ModelShape& shape) : shape_(shape) {}

  void Vector(const std::string& name, int size, float middle) {
    FixtureTensor tensor = RandomTensor({size}, ++seed_);
    Enlarge(tensor, middle);
    tensors_[name] = std::move(tensor);
  }
  void Linear(const std::string& module, int rows, int columns, bool bias = false) {
    if (bias) Vector(module + ".bias", rows, 0.0F);
    if (shape_.mxfp4 && module.find("experts.") != std::string::npos) {
      return ByteScaled("mxfp4", module, rows, columns);
    }
    if (!shape_.mode.empty()) return ByteScaled(shape_.mode, module, rows, columns);
    if (shape_.bits != 0) return Quantised(module, rows, columns);
    FixtureTensor tensor = RandomTensor({rows, columns}, ++seed_);
    Enlarge(tensor, 0.0F);
    tensors_[module + ".weight"] = std::move(tensor);
  }
  // down(silu(gate(x)) * up(x)), with these names.
  void Feed(const std::string& prefix, int inner, bool biases,
            const std::array<const char*, 3>& names = {"gate_proj", "up_proj", "down_proj"}) {
    Linear(prefix + names[0], inner, shape_.hidden, biases);
    Linear(prefix + names[1], inner, shape_.hidden, biases);
    Linear(prefix + names[2], shape_.hidden, inner, biases);
  }
  // Experts by themselves, and their bytes one after the other where they are stacked.
  void Experts(const std::string& prefix) {
    const bool mixtral = shape_.architecture == "mixtral";
    const std::array<const char*, 3> own =
        mixtral ? std::array<const char*, 3>{"w1", "w3", "w2"}
                : std::array<const char*, 3>{"gate_proj", "up_proj", "down_proj"};
    Linear(prefix + "gate", shape_.experts, shape_.hidden);
    if (shape_.latent > 0) {
      Vector(prefix + "gate.e_score_correction_bias", shape_.experts, 0.5F);
      Feed(prefix + "shared_experts.", shape_.inner, false);
    }
    for (int expert = 0; expert < shape_.experts; ++expert) {
      Feed(prefix + "experts." + std::to_string(expert) + ".", shape_.inner, false, own);
    }
    if (shape_.shared_inner > 0) {
      Feed(prefix + "shared_expert.", shape_.shared_inner, false);
      Linear(prefix + "shared_expert_gate", 1, shape_.hidden);
    }
    if (!shape_.stacked) return;
    const std::array<const char*, 3> together{"gate_proj", "up_proj", "down_proj"};
    for (size_t map = 0; map < own.size(); ++map) {
      for (const char* part : {".weight", ".scales", ".biases"}) {
        Stack(prefix + "experts.", std::string(".") + own[map] + part,
              prefix + "switch_mlp." + together[map] + part);
      }
    }
  }
  // gpt-oss's: all together, with biases.
  void GptOssExperts(const std::string& prefix) {
    Linear(prefix + "router", shape_.experts, shape_.hidden, /*bias=*/true);
    for (int expert = 0; expert < shape_.experts; ++expert) {
      const std::string own = prefix + "experts." + std::to_string(expert) + ".";
      Feed(own, shape_.inner, /*biases=*/true);
      if (shape_.blocks) AsBlocks(own);
    }
    const auto stack = [&](const std::string& name) {
      Stack(prefix + "experts.", "." + name, prefix + "experts." + name);
    };
    for (const std::string map : {"gate_up_proj", "down_proj"}) {
      for (const char* part : {"_blocks", "_scales", "_bias"}) stack(map + part);
    }
    for (const std::string map : {"gate_proj", "up_proj", "down_proj"}) {
      for (const char* part : {".weight", ".scales", ".biases", ".bias"}) stack(map + part);
    }
  }
  // All but o_proj.
  void Latent(const std::string& prefix) {
    const int heads = shape_.heads, width = shape_.nope + shape_.rope;
    const int from = shape_.query_latent > 0 ? shape_.query_latent : shape_.hidden;
    if (shape_.query_latent > 0) {
      Linear(prefix + "q_a_proj", shape_.query_latent, shape_.hidden, shape_.biases);
      Vector(prefix + "q_a_layernorm.weight", shape_.query_latent, 1.0F);
    }
    Linear(prefix + (shape_.query_latent > 0 ? "q_b_proj" : "q_proj"), heads * width, from);
    Linear(prefix + "kv_a_proj_with_mqa", shape_.latent + shape_.rope, shape_.hidden,
           shape_.biases);
    Vector(prefix + "kv_a_layernorm.weight", shape_.latent, 1.0F);
    if (shape_.index_top > 0) {
      const std::string indexer = prefix + "indexer.";
      Linear(indexer + "wq_b", shape_.index_heads * shape_.index_dim, from);
      Linear(indexer + "wk", shape_.index_dim, shape_.hidden);
      Linear(indexer + "weights_proj", shape_.index_heads, shape_.hidden);
      Vector(indexer + "k_norm.weight", shape_.index_dim, 1.0F);
      Vector(indexer + "k_norm.bias", shape_.index_dim, 0.0F);
    }
    if (!shape_.by_head) {
      return Linear(prefix + "kv_b_proj", heads * (shape_.nope + shape_.value), shape_.latent);
    }
    ByHead(prefix + "embed_q", shape_.latent, shape_.nope);
    ByHead(prefix + "unembed_out", shape_.value, shape_.latent);
  }
  void RaiseKeys(const std::string& bias) {
    std::string& bytes = tensors_[bias].bytes;
    for (int head = 0; head < shape_.kv_heads; ++head) {
      std::memcpy(bytes.data() + head * shape_.head_dim * 4, &shape_.key_bias, 4);
    }
  }
  std::string Bytes() const { return Safetensors(tensors_); }

 private:
  FixtureTensor Taken(const std::string& name) {
    FixtureTensor tensor = std::move(tensors_.at(name));
    tensors_.erase(name);
    return tensor;
  }
  // Rows of both in turn.
  static FixtureTensor InTurn(const FixtureTensor& first, const FixtureTensor& second) {
    FixtureTensor both = first;
    both.shape[0] *= 2;
    both.bytes.clear();
    const size_t row = first.bytes.size() / static_cast<size_t>(first.shape[0]);
    for (size_t at = 0; at < first.bytes.size(); at += row) {
      both.bytes += first.bytes.substr(at, row) + second.bytes.substr(at, row);
    }
    return both;
  }
  static FixtureTensor Bytes16(FixtureTensor words) {
    return {"U8", {words.shape[0], words.shape[1] / 4, 16}, std::move(words.bytes)};
  }
  // One expert's maps as OpenAI names and orders them.
  void AsBlocks(const std::string& own) {
    const auto pair = [&](const char* part) {
      const FixtureTensor gate = Taken(own + "gate_proj" + part);
      return InTurn(gate, Taken(own + "up_proj" + part));
    };
    tensors_[own + "gate_up_proj_blocks"] = Bytes16(pair(".weight"));
    tensors_[own + "gate_up_proj_scales"] = pair(".scales");
    tensors_[own + "gate_up_proj_bias"] = pair(".bias");
    tensors_[own + "down_proj_blocks"] = Bytes16(Taken(own + "down_proj.weight"));
    tensors_[own + "down_proj_scales"] = Taken(own + "down_proj.scales");
    tensors_[own + "down_proj_bias"] = Taken(own + "down_proj.bias");
  }
  std::string RandomBytes(int count) {
    std::string all(static_cast<size_t>(count), '\0');
    uint32_t state = ++seed_ * 2654435761U;
    for (char& byte : all) {
      state = state * 1664525U + 1013904223U;
      byte = static_cast<char>(state >> 24);
    }
    return all;
  }
  // A byte for a scale. Any bits are numbers, and scales keep most of them within 0.4.
  void ByteScaled(const std::string& mode, const std::string& module, int rows, int columns) {
    const int bits = mode == "mxfp8" ? 8 : 4, group = mode == "nvfp4" ? 16 : 32;
    const int least = mode == "mxfp4" ? 122 : mode == "mxfp8" ? 118 : 0x18;
    FixtureTensor scales{"U8", {rows, columns / group}, RandomBytes(rows * columns / group)};
    for (char& scale : scales.bytes) {
      scale = static_cast<char>(least + (scale & (mode == "nvfp4" ? 7 : 1)));
    }
    FixtureTensor weights{
        "U32", {rows, columns * bits / 32}, RandomBytes(rows * columns * bits / 8)};
    for (char& byte : weights.bytes) {
      if (bits == 8 && (byte & 0x7f) == 0x7f) byte = 0;  // no number
    }
    tensors_[module + ".weight"] = std::move(weights);
    tensors_[module + ".scales"] = std::move(scales);
  }
  void ByHead(const std::string& module, int rows, int columns) {
    Linear(module, shape_.heads * rows, columns);
    for (const char* part : {".weight", ".scales", ".biases"}) {
      const auto found = tensors_.find(module + part);
      if (found == tensors_.end()) continue;
      found->second.shape = {shape_.heads, rows, found->second.shape[1]};
    }
  }
  // BEGIN0END, BEGIN1END, … become one tensor.
  void Stack(const std::string& begin, const std::string& end, const std::string& name) {
    if (tensors_.count(begin + "0" + end) == 0) return;
    FixtureTensor stacked = tensors_.at(begin + "0" + end);
    stacked.bytes.clear();
    stacked.shape.insert(stacked.shape.begin(), shape_.experts);
    for (int expert = 0; expert < shape_.experts; ++expert) {
      const auto own = tensors_.find(begin + std::to_string(expert) + end);
      stacked.bytes += own->second.bytes;
      tensors_.erase(own);
    }
    tensors_[name] = std::move(stacked);
  }
  static void Enlarge(FixtureTensor& tensor, float middle) {
    for (size_t i = 0; i < tensor.bytes.size(); i += 4) {
      float value = 0;
      std::memcpy(&value, tensor.bytes.data() + i, 4);
      value = middle + 3.0F * value;
      std::memcpy(tensor.bytes.data() + i, &value, 4);
    }
  }
  // Any bits are a quantised matrix. A scale that keeps numbers within 0.3, zero in the middle.
  void Quantised(const std::string& module, int rows, int columns) {
    const int words = columns * shape_.bits / 32, groups = columns / shape_.group;
    FixtureTensor weight{"U32", {rows, words}, std::string(size_t(rows) * size_t(words) * 4, 0)};
    uint32_t state = ++seed_ * 2654435761U;
    for (char& byte : weight.bytes) {
      state = state * 1664525U + 1013904223U;
      byte = static_cast<char>(state >> 24);
    }
    std::vector<float> scales, biases;
    for (int i = 0; i < rows * groups; ++i) {
      state = state * 1664525U + 1013904223U;
      const float largest = 0.1F + 0.2F * static_cast<float>(state >> 8) / 16777216.0F;
      scales.push_back(2.0F * largest / static_cast<float>((1 << shape_.bits) - 1));
      biases.push_back(-largest);
    }
    tensors_[module + ".weight"] = std::move(weight);
    tensors_[module + ".scales"] = {"BF16", {rows, groups}, Bfloat16Bytes(scales)};
    tensors_[module + ".biases"] = {"BF16", {rows, groups}, Bfloat16Bytes(biases)};
  }

  const ModelShape shape_;
  uint32_t seed_ = 0;
  std::map<std::string, FixtureTensor> tensors_;
};

void AddLatentConfig(const ModelShape& shape, nlohmann::json& config) {
  config.erase("head_dim");
  config["kv_lora_rank"] = shape.latent;
  if (shape.query_latent > 0) config["q_lora_rank"] = shape.query_latent;
  config["qk_nope_head_dim"] = shape.nope;
  config["qk_rope_head_dim"] = shape.rope;
  config["v_head_dim"] = shape.value;
  if (shape.index_top > 0) {
    config["index_topk"] = shape.index_top;
    config["index_n_heads"] = shape.index_heads;
    config["index_head_dim"] = shape.index_dim;
  }
  if (shape.experts == 0) return;
  config["n_routed_experts"] = shape.experts;
  config["n_shared_experts"] = 1;
  config["first_k_dense_replace"] = 1;
  config["routed_scaling_factor"] = 1.5;
  config["n_group"] = shape.experts / 2;
  config["topk_group"] = 2;
}

}  // namespace

std::map<std::string, std::string> RandomModel(const ModelShape& shape) {
  ModelWriter writer(shape);
  const int heads = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
  writer.Linear("model.embed_tokens", shape.vocab, shape.hidden);
  if (!shape.tied) writer.Linear("lm_head", shape.vocab, shape.hidden);
  writer.Vector("model.norm.weight", shape.hidden, 1.0F);
  for (int i = 0; i < shape.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    if (shape.latent > 0) {
      writer.Latent(layer + "self_attn.");
    } else {
      writer.Linear(layer + "self_attn.q_proj", heads, shape.hidden, shape.biases);
      writer.Linear(layer + "self_attn.k_proj", kv, shape.hidden, shape.biases);
      if (shape.key_bias != 0.0F) writer.RaiseKeys(layer + "self_attn.k_proj.bias");
      writer.Linear(layer + "self_attn.v_proj", kv, shape.hidden, shape.biases);
    }
    const int mixed = shape.latent > 0 ? shape.heads * shape.value : heads;
    writer.Linear(layer + "self_attn.o_proj", shape.hidden, mixed, shape.biases);
    const bool mixtral = shape.architecture == "mixtral";
    if (shape.architecture == "gpt_oss") {
      writer.Vector(layer + "self_attn.sinks", shape.heads, 1.0F);
      writer.GptOssExperts(layer + "mlp.");
    } else if (shape.experts > 0 && (i > 0 || mixtral)) {
      writer.Experts(layer + (mixtral ? "block_sparse_moe." : "mlp."));
    } else {
      writer.Feed(layer + "mlp.", shape.inner, shape.biases);
    }
    writer.Vector(layer + "input_layernorm.weight", shape.hidden, 1.0F);
    writer.Vector(layer + "post_attention_layernorm.weight", shape.hidden, 1.0F);
    if (shape.architecture != "qwen3" && shape.architecture != "qwen3_moe") continue;
    writer.Vector(layer + "self_attn.q_norm.weight", shape.head_dim, 1.0F);
    writer.Vector(layer + "self_attn.k_norm.weight", shape.head_dim, 1.0F);
  }
  nlohmann::json config = {
      {"model_type", shape.architecture},   {"num_hidden_layers", shape.layers},
      {"hidden_size", shape.hidden},        {"intermediate_size", shape.inner},
      {"num_attention_heads", shape.heads}, {"num_key_value_heads", shape.kv_heads},
      {"head_dim", shape.head_dim},         {"vocab_size", shape.vocab},
      {"max_position_embeddings", 512},     {"tie_word_embeddings", shape.tied},
      {"attention_bias", shape.biases},     {"mlp_bias", shape.biases}};
  if (shape.bits != 0) {
    config["quantization"] = {{"bits", shape.bits}, {"group_size", shape.group}};
  }
  if (shape.mxfp4 && !shape.blocks) {
    config["quantization"] = {{"bits", 4}, {"group_size", 32}, {"mode", "mxfp4"}};
  }
  if (!shape.mode.empty()) {
    config["quantization"] = {{"bits", shape.mode == "mxfp8" ? 8 : 4},
                              {"group_size", shape.mode == "nvfp4" ? 16 : 32},
                              {"mode", shape.mode}};
  }
  if (shape.blocks) config["quantization_config"] = {{"quant_method", "mxfp4"}};
  if (shape.architecture == "gpt_oss") config["sliding_window"] = 12;
  if (shape.experts > 0) {
    config["num_experts"] = config["num_local_experts"] = shape.experts;
    config["num_experts_per_tok"] = 2;
    config["moe_intermediate_size"] = shape.inner;
    config["shared_expert_intermediate_size"] = shape.shared_inner;
    config["norm_topk_prob"] = true;
    config["mlp_only_layers"] = {0};
  }
  if (shape.latent > 0) AddLatentConfig(shape, config);
  if (shape.more.is_object()) config.update(shape.more);
  return {{"config.json", config.dump()}, {"model.safetensors", writer.Bytes()}};
}

std::string WriteFolder(const std::map<std::string, std::string>& files) {
  const std::string folder = FreshFolder();
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
  if (kind == "latent" || kind == "sparse" || kind == "sparse wide") {
    ModelShape shape;
    shape.architecture = kind == "latent" ? "deepseek_v3" : "deepseek_v32";
    shape.index_top = kind == "latent" ? 0 : kind == "sparse" ? 24 : 100;
    shape.inner = 64;
    shape.vocab = 96;
    shape.heads = shape.kv_heads = 5;
    shape.latent = 48;
    shape.query_latent = 40;
    shape.more["rope_scaling"] = {{"type", "yarn"},
                                  {"factor", 4.0},
                                  {"original_max_position_embeddings", 32},
                                  {"mscale", 1.0},
                                  {"mscale_all_dim", 0.7}};
    return WriteFolder(RandomModel(shape));
  }
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

std::string InBfloat16(const std::string& file) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const nlohmann::json header =
      nlohmann::json::parse(file.substr(sizeof(header_bytes), header_bytes));
  const char* const data = file.data() + sizeof(header_bytes) + header_bytes;
  std::map<std::string, FixtureTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto offsets = entry["data_offsets"].get<std::vector<size_t>>();
    FixtureTensor tensor{entry["dtype"], entry["shape"].get<std::vector<int64_t>>(),
                         std::string(data + offsets[0], data + offsets[1])};
    if (tensor.dtype == "F32") {
      std::string halves;
      for (size_t i = 0; i < tensor.bytes.size(); i += sizeof(float)) {
        halves += tensor.bytes.substr(i + 2, 2);  // the upper half, little-endian
      }
      tensor.dtype = "BF16";
      tensor.bytes = std::move(halves);
    }
    tensors[name] = std::move(tensor);
  }
  return Safetensors(tensors);
}

}  // namespace macrame::runtime::engine
