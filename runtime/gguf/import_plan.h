#pragma once

// What a GGUF model becomes: its config.json, and for each tensor its name and form in a folder
// that MLX and rankd read. Pure: reads the metadata and, of the weights, only vectors.
//
// Architectures are those of architectures.h; one of another is refused by name, before anything is
// written. So is a key of the architecture's that nobody reads, and a tensor that it does not have.
// Layers behind the last one, which predict further tokens, are left out.
//
// What llama.cpp's converter changed goes back:
//   - rows of q and k stand in the order in which neighbours are turned together (llama, granite,
//   …);
//     they go back to halves of a head (`heads` of a planned tensor)
//   - value heads of Qwen3.5's states stand one of each group after the other; they go back to
//   groups
//   - q, k, v and z of Qwen3-Next's states become one map again, by key head
//   - q, k and v, or experts' gate and up, that were joined are split
//   - norms lose the one that was added, A its form as -exp(A_log)
//
// Errors: MODEL_ARCHITECTURE_UNKNOWN, MODEL_FORMAT_UNSUPPORTED, MODEL_CONFIG_INVALID,
// MODEL_FILE_BROKEN; each names the key or tensor.

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/gguf/architectures.h"
#include "runtime/gguf/block_forms.h"
#include "runtime/gguf/gguf_file.h"

namespace macrame::runtime::gguf {

// A row of one of a planned tensor's sources.
struct RowPlace {
  uint32_t source = 0;
  uint64_t row = 0;
};

struct PlannedTensor {
  const GgufModel::Tensor* source = nullptr;
  const BlockForm* form = nullptr;  // of `source`
  std::string module;               // "model.layers.0.self_attn.q_proj"
  bool is_bias = false;
  bool is_whole = false;  // `module` is the tensor's whole name
  uint64_t heads = 0;     // above 0: rows within each head are put in order
  NumberForm numbers = NumberForm::kSame;

  // A second tensor that rows come from too.
  const GgufModel::Tensor* other = nullptr;
  // Unset: row `row` of `source`, or what `heads` says.
  std::function<RowPlace(uint64_t)> place_of;
  // Above 0: columns in runs of so many change places; run `run` of the file's row for each.
  uint64_t column_run = 0;
  std::function<uint64_t(uint64_t)> run_of;

  // In numbers: [rows, columns], with experts before them.
  std::vector<uint64_t> shape;
  int bits = 0;           // as stored; 0: floats
  bool is_flat = false;   // stored as one of the model's vectors, whatever its shape
  bool is_exact = false;  // such a one, always in float32

  bool is_vector() const { return is_flat; }
  uint64_t rows() const;  // of all experts together
  uint64_t columns() const;
  // The row of the file that becomes row `row`.
  uint64_t SourceRow(uint64_t row) const;
  RowPlace PlaceOf(uint64_t row) const;
  const GgufModel::Tensor& SourceOf(const RowPlace& place) const;
  // Of a vector: a number as the model has it.
  float NumberAt(uint64_t index) const;
};

struct ImportPlan {
  nlohmann::json config;
  std::vector<PlannedTensor> tensors;
  // "F16", "BF16" or "F32" for all vectors: the smallest that holds each of their numbers exactly.
  std::string vector_type;
};

absl::StatusOr<ImportPlan> PlanImport(const GgufModel& model);

}  // namespace macrame::runtime::gguf
