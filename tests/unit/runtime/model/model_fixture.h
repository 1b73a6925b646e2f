#pragma once

// Tiny models on disk for tests: random weights as safetensors, written byte by byte.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace macrame::runtime::engine {

struct FixtureTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

// A safetensors file's bytes.
std::string Safetensors(const std::map<std::string, FixtureTensor>& tensors);

// float32 numbers in (-0.1, 0.1) that `seed` fixes.
FixtureTensor RandomTensor(std::vector<int64_t> shape, uint32_t seed);

// A two-layer Llama of 64 hidden units, 4 heads, 2 key-value heads and 96 tokens, in float32.
std::map<std::string, FixtureTensor> TinyLlama();
std::string TinyLlamaConfig();

// A Llama of these sizes; the default is one that two or three ranks can't share evenly.
struct ModelShape {
  std::string architecture = "llama";
  int layers = 2;
  int hidden = 64;
  int inner = 352;
  int heads = 6;
  int kv_heads = 3;
  int head_dim = 32;
  int vocab = 101;
  int bits = 0;  // 0: float32; 4, 6 or 8
  int group = 32;
  std::string mode{};  // "mxfp8", "nvfp4": all maps in this mode of MLX; `bits` is then 0
  bool tied = false;
  bool biases = false;  // of attention and of the feed-forward
  // Above 0: every layer but the first has so many experts, of which a token takes two; of
  // `inner` units each. The architecture is then one that has experts.
  int experts = 0;
  bool stacked = true;   // all in one tensor; else each by itself
  int shared_inner = 0;  // of an expert that all tokens take (qwen2_moe)
  bool mxfp4 = false;    // the experts are MXFP4, as MLX stores it (gpt_oss)
  bool blocks = false;   // or as OpenAI does
  // Above 0: multi-head latent attention (deepseek_v3), of which `kv_heads` and `head_dim` say
  // nothing; experts are then in groups of two.
  int latent = 0;
  int query_latent = 0;
  int nope = 32, rope = 16, value = 32;
  bool by_head = true;  // embed_q and unembed_out; else kv_b_proj
  // Above 0: an indexer chooses so many positions; the architecture is then deepseek_v32. With few
  // heads many scores would be exactly zero, and equal.
  int index_top = 0, index_heads = 16, index_dim = 32;
  nlohmann::json more{};  // of config.json
  // With biases: of each key head's first dimension, as some models have; 0: like the others'.
  float key_bias = 0.0F;
};
// "config.json" and "model.safetensors" of random weights, large enough that every part of them
// matters to the logits.
std::map<std::string, std::string> RandomModel(const ModelShape& shape);

// A fresh folder with these files in it (name -> content).
std::string WriteFolder(const std::map<std::string, std::string>& files);

// Numbers large enough that every part of a model matters to the logits: norms around 1, maps that
// keep the size of what they are given.
void Enlarge(std::map<std::string, FixtureTensor>& tensors);

// The tiny Llama's weights with what other architectures add, under their config.
// Kinds: "llama", "llama-bias", "llama3", "linear", "qwen2", "qwen3", "mistral"; and "latent"
// "sparse" and "sparse wide", models of their own.
std::string TinyFolder(const std::string& kind);

// Every float32 tensor of a safetensors file in bfloat16.
std::string InBfloat16(const std::string& file);

}  // namespace macrame::runtime::engine
