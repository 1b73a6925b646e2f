#pragma once

// Which tensors a rank holds, and which part of each: pure, derived from the config and the rank's
// place alone, so that a folder can be checked in whole before anything is loaded.
//
// A tensor split gives each rank a run of equal slices of the model, which need not be as long as
// another's: of the output rows of q, k, v, gate and up, of the input columns of o and down, of the
// rows of the embedding and the head (tensor_cut.h says where they are cut), or whole experts. What
// the ranks' o and down give is summed over the ranks, and so are embeddings, which are zeros where
// a rank does not hold a token's row; the logits of each rank's rows go to rank 0.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/cuts/tensor_cut.h"
#include "runtime/model/weights/weight_files.h"

namespace macrame::runtime::engine {

enum class Split { kNone, kRows, kColumns };

// A linear map stored as [rows, columns], whole-model sizes; its module has a weight and perhaps a
// bias.
//
// An expert's is stored by itself, or in one tensor with those of all experts of its layer: then
// `module` names that one, of [experts, rows, columns], or `blocks` does. StoredNamesOf says which
// it is.
struct LinearNeed {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  int rows = 0;
  int columns = 0;
  Split split = Split::kNone;
  Range part{};  // this rank's rows or columns, by `split`
  bool bias = false;
  int experts = 0;  // in the layer; 0: no expert's
  int expert = 0;
  std::string own_module{};  // where an expert is stored by itself
  // Of a tensor that holds more than this map, one below the other: its rows, and where this map's
  // begin. 0: the tensor is the map.
  int stored_rows = 0;
  int first_row = 0;
  int heads = 0;             // above 0: stored as [heads, rows / heads, columns]
  bool may_be_flat = false;  // such a one may also be stored as [rows, columns]
  bool exact = false;        // what is multiplied by it is float32 on every device
  int all_stored_rows() const { return stored_rows == 0 ? rows : stored_rows; }
  // Where all experts are stored as OpenAI does: MXFP4 as bytes [experts, turns * rows, groups, 16]
  // in "BLOCKS_blocks", scales in "BLOCKS_scales", biases in "BLOCKS_bias". Row r of this map is
  // row turns * r + turn there.
  std::string blocks{};
  int turns = 1;
  int turn = 0;
  // Where all experts are stored as Qwen publishes them: one tensor without ".weight" that holds
  // `fused_rows` rows of each, this map's from `fused_row` on, [experts, fused_rows, columns]; or
  // each turned over, [experts, columns, fused_rows]. The shape tells; of a square, `fused_turned`.
  // Where there are turns, rows stand in turn here too; biases are in "FUSED_bias".
  std::string fused{};
  int fused_rows = 0;
  int fused_row = 0;
  bool fused_turned = false;
  int part_rows() const { return split == Split::kRows ? part.size() : rows; }
  int part_columns() const { return split == Split::kColumns ? part.size() : columns; }
};

struct VectorNeed {
  std::string name;  // "model.norm.weight"
  int size = 0;
  Range part{};           // this rank's, where a tensor split cuts it; else empty
  bool adds_one = false;  // stored as its difference from one
  bool exact = false;     // used in float32 whatever the model's type
  // A tensor that shows by its layout that the model is stored as it was published; the vector is
  // its difference from one only then. Empty: that is as `adds_one` says.
  std::string published_by{};
  // Above 0: weights of a convolution over time, channel by channel, [size / taps, taps, 1] or, as
  // published, [size / taps, 1, taps].
  int taps = 0;
};

// A feed-forward: down(gated(gate(x), up(x))); without a gate, whose module is empty then,
// down(activation(up(x))).
struct FeedNeeds {
  LinearNeed gate, up, down;
};

// Of the indexer that chooses positions; whole on each rank.
struct IndexNeeds {
  LinearNeed wq_b, wk, weights;
  VectorNeed key_norm, key_norm_bias;
};

// Of multi-head latent attention. What has heads is split by them; the rest is whole on each rank.
struct LatentNeeds {
  std::optional<LinearNeed> q_a;  // unset: q_b is q_proj
  LinearNeed q_b, kv_a;
  // By head, [rows of the latent vector, nope] and [value, latent]. Models as they were published,
  // and older copies of them, have both in kv_b: by head the nope rows of the first, turned over,
  // then those of the second.
  LinearNeed embed_q, unembed_out, kv_b;
  VectorNeed q_a_norm, kv_a_norm;
  std::optional<IndexNeeds> index;
};

// Of a layer with a state: what has heads is split by key heads (recurrent_cut.h).
struct RecurrentNeeds {
  // q, k, v, z, b, a; or, by key head, qkvz and ba. Of a state space: z, v, k, q, steps.
  std::vector<LinearNeed> in;
  // All channels and value heads of the model, of which a rank picks its own.
  VectorNeed taps, taps_bias, decay, step_bias;
  VectorNeed skip;  // of a state space: how much of a value each head gives as it is
  VectorNeed norm;  // of a head's output; of a state space of all heads', side by side
};

// Of a layer that has a feed-forward and experts: norms, and how its router's input is weighed. All
// whole on each rank.
struct BesideNeeds {
  VectorNeed feed_out_norm, experts_in_norm, experts_out_norm;
  VectorNeed router_scale;   // of what the router sees, after a norm without weights
  VectorNeed expert_scales;  // of each expert's weight
};

// Of a layer that takes an input of its own (ModelConfig::layer_input_width); whole on each rank.
struct LayerInputNeeds {
  LinearNeed gate, projection;
  VectorNeed norm;
};

// Of what makes all layers' inputs, one layer's behind the other's, before the first of them.
struct InputNeeds {
  LinearNeed embedding;   // by token, its rows cut as those of the model's embedding
  LinearNeed projection;  // of the model's embedding; whole on each rank
  VectorNeed norm;        // of each layer's part of that
};

// Of DeepSeek-V4.1's attention. Queries and the groups' output maps are split by groups of heads;
// the rest is whole on each rank.
struct CompressedNeeds {
  LinearNeed q_a, q_b, kv, group_out;
  VectorNeed q_a_norm, kv_norm;
  // Of a layer that makes entries; no modules else. The gate only where more than one position
  // makes an entry.
  LinearNeed entry, entry_gate, index_key;
  VectorNeed entry_norm, index_key_norm;
  // Of a layer that chooses.
  LinearNeed index_q, index_weights;
};

// Of the indexer by which key-value heads choose blocks of positions. Its queries are split by the
// heads that they serve; keys are whole on each rank.
struct BlockIndexNeeds {
  LinearNeed query, key;
  VectorNeed query_norm, key_norm;
};

// What half a layer makes of the residual streams: whole on each rank.
struct StreamNeeds {
  LinearNeed map;  // [mixes, streams * hidden]
  VectorNeed base, scale;
};

struct LayerNeeds {
  // No modules unless the layer attends, with keys and values by head; k and v have none where it
  // attends to another layer's, v where keys are values.
  LinearNeed q, k, v;
  LinearNeed o;  // of what the layer's first half gives; no module where it has none
  std::optional<LatentNeeds> latent;
  std::optional<RecurrentNeeds> recurrent;
  std::optional<CompressedNeeds> compressed;
  std::optional<BlockIndexNeeds> block_index;  // beside q, k and v
  std::optional<StreamNeeds> attention_streams, feed_streams;
  std::optional<FeedNeeds> feed;  // unset in a layer of experts alone, or without a second half
  // An empty name: there is none.
  VectorNeed attention_norm, feed_norm;          // of what goes in
  VectorNeed attention_out_norm, feed_out_norm;  // of what comes out
  VectorNeed q_norm, k_norm;
  VectorNeed sinks;  // of this rank's heads
  // In a layer of experts.
  std::optional<LinearNeed> router;  // whole on each rank: [experts, hidden]
  VectorNeed score_bias;
  std::vector<FeedNeeds> experts;  // those that this rank has a part of, from first_expert on
  int first_expert = 0;
  std::optional<FeedNeeds> shared;
  std::optional<LinearNeed> shared_router;  // whole on each rank: [1, hidden]; unset: no gate
  std::optional<BesideNeeds> beside;        // where there is `feed` too
  std::optional<LayerInputNeeds> input;
  VectorNeed scalar;  // of what the layer gives
};

// All of a layer's. The gates of all experts are followed by what goes up of all, as stacked files
// have them.
std::vector<const LinearNeed*> LinearsOf(const LayerNeeds& needs, const WeightFiles& files);
// The same without files: `is_by_head` where latent attention has a map for each head.
std::vector<const LinearNeed*> LinearsOf(const LayerNeeds& needs, bool is_by_head);
std::vector<const VectorNeed*> VectorsOf(const LayerNeeds& needs);

// The tensors that hold a need: of an expert the stacked ones where they are there, else OpenAI's
// blocks, else Qwen's fused ones, else its own; packed ones (packed_weights.h) where a module has
// those.
struct StoredNames {
  std::string module;  // as config.json's "quantization" has it
  std::string weight, scales, biases, bias;
  bool stacked = false;  // they hold all experts of the layer
  bool blocks = false;   // they are OpenAI's
  int turns = 1, turn = 0;
  bool fused = false;   // they are Qwen's
  bool turned = false;  // of each expert, rows and columns have changed places
  bool packed = false;  // `biases` is empty: they follow from the scales
};
StoredNames StoredNamesOf(const LinearNeed& need, const WeightFiles& files);

// Whether a vector is stored as its difference from one.
bool IsStoredAsDifference(const VectorNeed& need, const WeightFiles& files);

// Whether an expert's gate and up are in one tensor.
bool AreExpertsFused(const LayerNeeds& needs, const WeightFiles& files);

// Whether embed_q and unembed_out are there; kv_b is needed otherwise.
bool IsStoredByHead(const LatentNeeds& needs, const WeightFiles& files);

LayerNeeds NeedsOfLayer(const ModelConfig& config, const ShardPlace& place, int layer);
LinearNeed EmbeddingNeed(const ModelConfig& config, const ShardPlace& place);
// Unset where layers take no input of their own.
std::optional<InputNeeds> InputNeedsOf(const ModelConfig& config, const ShardPlace& place);
// The embedding table when it is tied.
LinearNeed HeadNeed(const ModelConfig& config, const ShardPlace& place);
VectorNeed FinalNormNeed(const ModelConfig& config);
// Whether this rank loads a head of its own: the embedding that it has may be it.
bool LoadsHead(const ModelConfig& config, const ShardPlace& place);

// Holds the folder against the config: every tensor that this rank needs is there with the shape
// and type that the config implies, and no layer is left over. All faults are named, up to
// kFaultsNamedMax. MODEL_CONFIG_INVALID or MODEL_FORMAT_UNSUPPORTED.
absl::Status CheckWeights(const ModelConfig& config, const ShardPlace& place,
                          const WeightFiles& files);

inline constexpr int kFaultsNamedMax = 5;

}  // namespace macrame::runtime::engine
