#pragma once

// Which tensors a rank holds, and which part of each: pure, derived from the config and the rank's
// place alone, so that a folder can be checked in whole before anything is loaded.
//
// A tensor split cuts layers into equal slices and gives each rank a run of them, which need not be
// as long as another's: of the output rows of q, k, v, gate and up, of the input columns of o and
// down. What the ranks' o and down give is summed over the
// ranks.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/model/model_config.h"
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
  bool bias = false;
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
  // Of a whole that slice_count divides: this rank's share, and what lies before it.
  template <typename Number>
  Number ShareOf(Number whole) const {
    return whole / static_cast<Number>(slice_count) * static_cast<Number>(slice_end - slice_begin);
  }
  template <typename Number>
  Number BeforeShareOf(Number whole) const {
    return whole / static_cast<Number>(slice_count) * static_cast<Number>(slice_begin);
  }
  bool embeds = true;      // turns tokens into hidden states: every rank of the first stage
  bool normalizes = true;  // applies the final norm: every rank of the last stage
  bool has_head = true;    // computes logits: the first rank of the last stage
};

LayerNeeds NeedsOfLayer(const ModelConfig& config, int layer);
MatrixNeed EmbeddingNeed(const ModelConfig& config);
// The embedding table when it is tied.
MatrixNeed HeadNeed(const ModelConfig& config);
VectorNeed FinalNormNeed(const ModelConfig& config);

// Holds the folder against the config: every tensor that this rank needs is there with the shape
// and type that the config implies, no layer is left over, and the splits fit the heads and groups.
// All faults are named, up to kFaultsNamedMax. MODEL_CONFIG_INVALID, MODEL_FORMAT_UNSUPPORTED,
// HEADS_INDIVISIBLE or GROUPS_INDIVISIBLE.
absl::Status CheckWeights(const ModelConfig& config, const ShardPlace& place,
                          const WeightFiles& files);

inline constexpr int kFaultsNamedMax = 5;

}  // namespace macrame::runtime::engine
