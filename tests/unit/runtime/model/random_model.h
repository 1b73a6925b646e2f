#pragma once

// Models of random weights on disk, of every architecture and storage that rankd serves. Their text
// is noise, but every number of theirs matters to it.

#include <cstdint>
#include <string>

namespace macrame::runtime::engine {

struct RandomModelShape {
  std::string architecture = "llama";  // or "qwen2", "qwen3", "mistral", "qwen3_moe", "gpt_oss"
  int bits = 0;                        // 4, 6, 8; 0: bfloat16
  bool mxfp4 = false;                  // the 4 bits are MXFP4
  int group_size = 32;
  int layers = 3;
  int hidden = 64;
  int intermediate = 256;
  int experts = 0;  // in each layer, of `intermediate` units; a token takes two
  int heads = 8;
  int kv_heads = 4;
  int head_dim = 16;
  int vocabulary = 3072;  // at least the tokenizer's
  int context = 1024;
  int sliding_window = 0;  // Mistral's, gpt-oss's
  bool tied_embeddings = false;
  uint64_t seed = 1;
};

// A fresh folder with config.json, model.safetensors and the tokenizer of the model in
// `tokenizer_folder`.
std::string WriteRandomModel(const RandomModelShape& shape, const std::string& tokenizer_folder);

// Its files of a tokenizer, beside a model of other weights.
void CopyTokenizer(const std::string& tokenizer_folder, const std::string& folder);

}  // namespace macrame::runtime::engine
