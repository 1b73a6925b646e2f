#pragma once

// What a GGUF model becomes: its config.json, and for each tensor its name and form in a folder
// that MLX and rankd read. Pure: reads the metadata and, of the weights, only vectors.
//
// Architectures: "llama", in which GGUF keeps Mistral's models and Mixtral too, "qwen2", "qwen3",
// "qwen2moe", "qwen3moe"; one of another is refused by name, before anything is written.
//
// GGUF's "llama" keeps the rows of q and k in the order in which neighbours are turned together;
// they go back to halves of a head (`heads` of a planned tensor). Its rope_freqs.weight, factors by
// frequency, becomes the "llama3" scaling that it was computed from.
//
// Errors: MODEL_ARCHITECTURE_UNKNOWN, MODEL_FORMAT_UNSUPPORTED, MODEL_CONFIG_INVALID,
// MODEL_FILE_BROKEN; each names the key or tensor.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/gguf/block_forms.h"
#include "runtime/gguf/gguf_file.h"

namespace macrame::runtime::gguf {

struct PlannedTensor {
  const GgufModel::Tensor* source = nullptr;
  const BlockForm* form = nullptr;
  std::string module;  // "model.layers.0.self_attn.q_proj"
  bool is_bias = false;
  uint64_t heads = 0;  // above 0: rows within each head are put in order

  // The gate of a shared expert is a vector there and a matrix of one row here.
  bool is_vector() const { return source->dimensions == 1 && !one_row; }
  bool one_row = false;
  // The row of the file that becomes row `row`.
  uint64_t SourceRow(uint64_t row) const;
};

struct ImportPlan {
  nlohmann::json config;
  std::vector<PlannedTensor> tensors;
  // "F16", "BF16" or "F32" for all vectors: the smallest that holds each of their numbers exactly.
  std::string vector_type;
};

absl::StatusOr<ImportPlan> PlanImport(const GgufModel& model);

}  // namespace macrame::runtime::gguf
