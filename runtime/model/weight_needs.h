#pragma once

// Which tensors a rank holds, and which part of each: pure, derived from the config and the rank's
// place alone, so that a folder can be checked in whole before anything is loaded.
//
// A tensor split gives each rank a run of equal slices of the model, which need not be as long as
// another's: of the output rows of q, k, v, gate and up, of the input columns of o and down, of the
// rows of the embedding and the head (tensor_cut.h says where they are cut). What the ranks' o and
// down give is summed over the ranks, and so are embeddings, which are zeros where a rank does not
// hold a token's row; the logits of each rank's rows go to rank 0.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/model/model_config.h"
#include "runtime/model/tensor_cut.h"
#include "runtime/model/weight_files.h"

namespace macrame::runtime::engine {

enum class Split { kNone, kRows, kColumns };

// A linear map stored as [rows, columns], whole-model sizes; its module has a weight and perhaps a
// bias.
struct MatrixNeed {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  int rows = 0;
  int columns = 0;
  Split split = Split::kNone;
  Range part{};  // this rank's rows or columns, by `split`
  bool bias = false;
  int part_rows() const { return split == Split::kRows ? part.size() : rows; }
  int part_columns() const { return split == Split::kColumns ? part.size() : columns; }
};

struct VectorNeed {
  std::string name;  // "model.norm.weight"
  int size = 0;
};

struct LayerNeeds {
  MatrixNeed q, k, v, o, gate, up, down;
  VectorNeed input_norm, post_attention_norm;
  VectorNeed q_norm, k_norm;  // empty names unless the config has qk_norm
};

// A rank's place: layers [layer_begin, layer_end), slices [slice_begin, slice_end) of slice_count.
struct ShardPlace {
  int layer_begin = 0;
  int layer_end = 0;
  int tp = 1;
  int tp_rank = 0;
  int slice_begin = 0;
  int slice_end = 1;
  int slice_count = 1;
  SliceRange slices() const { return {slice_begin, slice_end, slice_count}; }
  bool embeds = true;    // turns tokens into hidden states: every rank of the first stage
  bool has_head = true;  // final norm and the logits of its rows: every rank of the last stage
};

LayerNeeds NeedsOfLayer(const ModelConfig& config, const ShardPlace& place, int layer);
MatrixNeed EmbeddingNeed(const ModelConfig& config, const ShardPlace& place);
// The embedding table when it is tied.
MatrixNeed HeadNeed(const ModelConfig& config, const ShardPlace& place);
VectorNeed FinalNormNeed(const ModelConfig& config);

// Holds the folder against the config: every tensor that this rank needs is there with the shape
// and type that the config implies, and no layer is left over. All faults are named, up to
// kFaultsNamedMax. MODEL_CONFIG_INVALID or MODEL_FORMAT_UNSUPPORTED.
absl::Status CheckWeights(const ModelConfig& config, const ShardPlace& place,
                          const WeightFiles& files);

inline constexpr int kFaultsNamedMax = 5;

}  // namespace macrame::runtime::engine
