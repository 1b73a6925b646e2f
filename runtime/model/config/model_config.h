#pragma once

// What the engine needs from a model's config.json, checked. One frame of layers serves all
// families; where they differ is a trait here, never a branch on the name elsewhere. How a family's
// config.json becomes traits is in families/.
//
// Keys are those of Hugging Face's configuration classes (LlamaConfig, Qwen2Config, Qwen3Config,
// MistralConfig, Qwen2MoeConfig, Qwen3MoeConfig, MixtralConfig), in the spelling before and after
// transformers 5 ("rope_scaling", "rope_parameters"), and MLX's "quantization" object.

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/model/config/rope.h"

namespace macrame::runtime::engine {

// kAffine: each run of group_size elements of a row shares a scale and a bias. Others have a byte
// for a scale and no bias (runtime/kernels/matrix_view.h): kMxfp4 and kMxfp8, OCP's microscaling
// formats of 4 and 8 bits in groups of 32, and kNvfp4, of 4 bits in groups of 16.
enum class QuantizationMode { kAffine, kMxfp4, kMxfp8, kNvfp4 };

struct QuantizationTraits {
  int bits = 0;  // 2, 3, 4, 5, 6 or 8; 0: not quantised
  int group_size = 0;
  QuantizationMode mode = QuantizationMode::kAffine;
  bool has_biases() const { return mode == QuantizationMode::kAffine; }
  bool operator==(const QuantizationTraits&) const = default;
};

// Which of the model's rotary forms a layer has.
enum class RopeUse { kGlobal, kLocal, kNone };

// What a feed-forward's gate passes through: x * sigmoid(x), GELU in its tanh form; or, without a
// gate, what its inner numbers do: the square of what is above zero.
enum class Activation { kSilu, kGeluTanh, kRelu2 };

// What a router's numbers become: shares of one whole, or each by itself: in (0, 1), or the root of
// its softplus.
enum class RouterScores { kSoftmax, kSigmoid, kRootSoftplus };

// Layers whose feed-forward is one of many small ones for each token: a router's scores choose.
struct ExpertTraits {
  int count = 0;   // in a layer that has experts; 0: the model has none
  int active = 0;  // of a token: those with the highest scores
  int width = 0;   // an expert's intermediate size
  bool normalized =
      false;  // the active ones' weights add up to one (softmax is over all otherwise)
  RouterScores scores = RouterScores::kSoftmax;
  // A number for each expert, added to the scores by which the active ones are chosen, not to what
  // they weigh: its tensor below `module`; empty: none.
  std::string score_bias;
  // Experts stand in so many groups, of which a token may choose in those `groups_active` whose
  // `group_best` best scores add up highest.
  int groups = 1, groups_active = 1, group_best = 2;
  double weight_scale = 1.0;  // of all active ones' weights
  int shared_width = 0;       // of an expert that every token takes; 0: none
  bool shared_gate = false;   // whether a gate of its own weighs it
  std::string shared_module = "shared_expert";
  // Below "model.layers.N.": "mlp" or "block_sparse_moe".
  std::string module;
  std::string router_name = "gate";
  bool router_bias = false;
  // Within an expert that is stored by itself ("mlp.experts.3.gate_proj"): gate, up, down; empty
  // where none is. Stacked ones are "switch_mlp.gate_proj", ….
  std::string gate_name = "gate_proj", up_name = "up_proj", down_name = "down_proj";
  std::string stacked_name = "switch_mlp";
  std::string stacked_up = "up_proj", stacked_down = "down_proj";
  // Layers have a feed-forward for all tokens too, each of the two with norms of its own; the
  // router sees hidden states through a norm without the experts' (Gemma 4). Each expert's weight
  // is multiplied by a number that is learnt.
  bool beside_feed = false;
  // Below `module`, where all experts may stand in "gate_up_proj" and "down_proj" (weight_needs.h),
  // and whether published ones are turned over; empty: they never stand so.
  std::string fused_name;
  bool fused_turned = false;
  bool stored_as_blocks = false;  // weight_needs.h: they may be stored as OpenAI does
  bool bias = false;              // of an expert's maps
  // Above 0: gate and up are clamped by it and joined as gpt-oss does, with swiglu_alpha, not as
  // silu(gate) * up.
  float swiglu_limit = 0.0F;
  float swiglu_alpha = 1.702F;
  // Above 0: silu(gate) * up with a gate of at most this and an up within it, of experts and of the
  // one that every token takes.
  float gate_limit = 0.0F;
  double score_divisor = 1.0;     // of the router's numbers
  bool exact_router = false;      // its numbers are float32 on every device
  bool published_as_fp4 = false;  // beside other weights in 8-bit floats
};

// Of a layer with keys and values by head.
struct HeadTraits {
  int kv_heads = 0;
  int dim = 0;                   // of queries, keys and values
  bool keys_are_values = false;  // values are the keys as they are projected (Gemma 4)
};

// A layer's norms below "model.layers.N."; empty: there is none.
struct NormNames {
  std::string attention_in = "input_layernorm";
  std::string attention_out{};  // of what is added to the hidden state
  std::string feed_in = "post_attention_layernorm";
  std::string feed_out{};
};

// Multi-head latent attention: the KV cache holds for each position one vector, latent and rotary
// key, that all heads share. Each head has a map from its queries into the latent space and one
// from there to its values.
struct LatentTraits {
  int kv_rank = 0;  // of the latent vector; 0: the model has keys and values by head
  int q_rank = 0;   // of the vector that queries are made from; 0: they are made from hidden states
  int nope = 0;     // dimensions of a head's query that are not turned, before those that are
  int rope = 0;
  int value = 0;           // of a head's output
  float norm_eps = 1e-6F;  // of the norms of both vectors
  float scale = 0.0F;      // of scores
  int width() const { return kv_rank + rope; }
};

// Which positions a layer attends to where there are more than `top` (DeepSeek-V3.2): each position
// has a key of `dim` numbers, each row `heads` queries of them, made from the latent vector of its
// other queries.
struct IndexTraits {
  int top = 0;  // 0: all are attended to
  int heads = 0;
  int dim = 0;
  bool interleaved = false;  // of the rotary form, which else is the latent one's
  float norm_eps = 1e-5F;    // of the layer norm of keys
};

// Which blocks of positions a layer attends to, where there are more than `top` (MiniMax M3): each
// key-value head for itself. A position has one key of `dim` numbers, a row `heads` queries of so
// many, which serve the key-value heads in their order, each as many. A block's score is the
// largest of its positions'.
struct BlockIndexTraits {
  int top = 0;    // blocks; 0: all positions are attended to
  int size = 0;   // positions of a block, which is made of whole KV blocks
  int local = 0;  // so many last blocks are always among the chosen ones
  int heads = 0;
  int dim = 0;
  std::vector<bool> layers;             // those that choose
  static constexpr int kSizeUnit = 32;  // positions of a KV block
};

// A position carries several vectors of hidden_size from layer to layer (hyper-connections). Each
// half of a layer reads one weighed sum of them; what it gives is added to each by a weight of its
// own, and they are mixed by a matrix whose rows and columns add up to one, about: it is made so by
// dividing them in turn (Sinkhorn). All weights come from the streams themselves.
struct StreamTraits {
  int count = 1;
  int rounds = 0;  // of dividing columns, then rows and columns again
  float eps = 1e-6F;
  static constexpr int kStreamsMax = 16;
  // Numbers that a half layer makes of the streams: what to read by, what to add by, the matrix.
  int mixes() const { return (2 + count) * count; }
};

// DeepSeek-V4.1's attention. Each layer looks at a window of positions, of which it keeps one
// vector that is key and value of all heads, rounded to 8-bit floats. Layers with a ratio also look
// at entries: of each `ratio` positions one, pooled by learnt gates and rounded to 4-bit floats.
// Only some layers make entries, and only some choose, by an indexer, which ones are looked at; the
// layers behind use what the last such layer made and chose. Heads are turned back behind
// attention, and go through an output map of their group's and then one of all.
struct CompressTraits {
  int groups = 0;  // of heads; 0: the model has no such attention
  int group_rank = 0;
  int q_rank = 0;
  int rope = 0;  // the last dimensions of a head, and of an index key, that are turned
  int window = 0;
  std::vector<int> ratios;           // by layer; 0: it looks at the window alone
  std::vector<bool> makes, chooses;  // by layer
  int index_heads = 0, index_dim = 0, index_top = 0;
  // Of this layer's scores come the blocks of entries among which layers behind it choose; -1:
  // none.
  int candidate_layer = -1;
  int candidate_blocks = 0, candidate_block = 0;
  // Groups never reach over the end of a KV block.
  static constexpr int kRatioMax = 32;
  // The layer whose entries a layer with a ratio looks at.
  int SourceOf(int layer) const;
};

// What a layer's first half is; kNone: it has none.
enum class MixerKind { kAttention, kRecurrent, kNone };

// Layers that carry a state of fixed size from token to token instead of keys and values. A head
// has a matrix [value_dim, key_dim] that fades with each token, takes in the product of the token's
// value and key, and gives its product with the token's query; before, a short causal convolution
// over time goes through queries, keys and values. Value heads side by side share a key head.
//
// kGatedDelta (Qwen3-Next, Qwen3.5): what the matrix gives for the key is taken from the value
// first. kStateSpace (Mamba 2): it is not; a part of the value is added to what the head gives, and
// that is gated before it is normed, all heads of a key head as one.
enum class RecurrenceRule { kGatedDelta, kStateSpace };
struct RecurrentTraits {
  RecurrenceRule rule = RecurrenceRule::kGatedDelta;
  int key_heads = 0;  // of queries too; 0: the model has no such layers
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int taps = 0;  // positions that the convolution sees, the token's own included
  // Rows of each key head stand side by side in two tensors, in_proj_qkvz and in_proj_ba; else
  // in_proj_qkv has all queries, then keys, then values, and z, b and a are stored by themselves.
  bool by_key_head = false;
  bool taps_bias = false;        // of the convolution
  bool projection_bias = false;  // of the maps before and behind
  // kStateSpace: within which a token's step stays, by which it fades and learns.
  float step_min = 0.0F, step_max = std::numeric_limits<float>::infinity();
  std::string module = "linear_attn";  // below "model.layers.N."
  static constexpr int kTapsMax = 16;
  int group() const { return value_heads / key_heads; }
};

// How the hidden states of a text's positions become its embedding; kNone: the model makes none.
enum class Pooling { kNone, kMean, kLast, kFirst };

struct ModelConfig {
  std::string architecture;  // config.json's "model_type"
  int layer_count = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int attention_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocab_size = 0;
  int context_length_max = 0;
  float rms_norm_eps = 1e-6F;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;  // of o_proj
  bool mlp_bias = false;
  bool qk_norm = false;        // RMS norm of each head's queries and keys (Qwen3)
  bool qk_norm_whole = false;  // of all heads' queries, and of all heads' keys, as one
  // q_proj gives for each head a query and then a gate, whose sigmoid weighs what the head gives.
  bool attention_gate = false;
  bool fused_qkv = false;      // q, k and v are stored one below the other as qkv_proj
  bool fused_gate_up = false;  // gate and up as gate_up_proj
  // Each head has a learnt score that takes part in the softmax and gives nothing (gpt-oss).
  bool attention_sinks = false;
  Activation activation = Activation::kSilu;
  bool gated_feeds = true;  // else down(activation(up(x)))
  // Feed-forwards that all tokens take clamp and join gate and up as experts.swiglu_limit says.
  bool clamped_feeds = false;
  std::string attention_module = "self_attn", feed_module = "mlp";  // below "model.layers.N."
  NormNames norms;
  bool norm_adds_one = false;  // a norm's weight is stored as its difference from one (Gemma)
  // That holds only for models as they were published, which the layout of the convolutions'
  // tensors shows: MLX's converter adds the one (Qwen3-Next). For all norms but those of recurrent
  // layers.
  bool published_norm_adds_one = false;
  bool value_norm = false;     // RMS norm of each head's values, without weights
  double attention_scale = 0;  // of queries times keys; 0: 1 / sqrt(head_dim)
  // Queries grow with their position, by 1 + beta * ln(1 + floor(position / context)) (Llama 4,
  // Ministral 3); beta 0: they don't.
  double temperature_beta = 0;
  int temperature_context = 1;
  float embedding_scale = 1.0F;
  float residual_scale = 1.0F;  // of what each half layer adds
  float logit_scale = 1.0F;
  float logit_cap = 0.0F;      // logits become cap * tanh(logit / cap); 0: they stay
  bool layer_scalars = false;  // what a layer gives is multiplied by a number that is learnt
  // Above 0: each layer takes an input of so many numbers of its own, made from a position's token
  // and embedding before the first layer (Gemma 4's per-layer embeddings).
  int layer_input_width = 0;
  int ignored_layers = 0;  // behind the last one: they predict further tokens
  LatentTraits latent;
  IndexTraits index;
  BlockIndexTraits block_index;
  StreamTraits streams;
  CompressTraits compress;
  RecurrentTraits recurrent;
  std::vector<MixerKind> mixers;  // by layer
  ExpertTraits experts;
  // Of layers that attend to all positions, where theirs differ from the others' (Gemma 4).
  std::optional<HeadTraits> global_heads;
  // By layer: whose keys and values it attends to; its own number where it makes some. Empty: all
  // do.
  std::vector<int> kv_sources;
  std::vector<int> feed_widths;   // by layer; empty: intermediate_size
  std::vector<bool> has_feed;     // by layer: a second half
  std::vector<bool> has_experts;  // by layer
  RopeTraits rope;
  // Of the layers that look at a window, where it differs from the others' (Gemma 3).
  std::optional<RopeTraits> local_rope;
  std::vector<RopeUse> rope_uses;  // by layer
  // By layer: how many last positions it sees; 0: all of them.
  std::vector<int> sliding_windows;
  QuantizationTraits quantization;  // the default of all quantised tensors
  // Modules ("model.layers.0.self_attn.q_proj") whose quantisation differs; bits 0: stored as
  // floats.
  std::map<std::string, QuantizationTraits> quantization_overrides;
  // Where weights are stored as 8-bit floats, a scale's block (fp8_weights.h).
  int fp8_block_rows = 128;
  int fp8_block_columns = 128;
  // Known from the model's other files: pooling.h.
  Pooling pooling = Pooling::kNone;
  bool has_head = true;  // it makes text; a bare model gives hidden states alone
  // Above 0: a layer's files hold so many experts, of which the first experts.count are taken
  // (split_proof.cc).
  int experts_stored = 0;

  // By what queries are multiplied at a position, so that 1 / sqrt(dim) of a head
  // is left to do.
  float QueryScaleAt(size_t position, int dim) const;
  bool ScalesQueries() const { return attention_scale != 0 || temperature_beta != 0; }
  bool has_latent() const { return latent.kv_rank > 0; }
  bool has_index() const { return index.top > 0; }
  bool ChoosesBlocks(int layer) const {
    return block_index.top > 0 && block_index.layers[static_cast<size_t>(layer)];
  }
  bool has_streams() const { return streams.count > 1 || compress.groups > 0; }
  bool has_compression() const { return compress.groups > 0; }
  // Whether a sequence has more to it than its keys and values.
  bool has_state() const { return recurrent.key_heads > 0; }
  MixerKind MixerOf(int layer) const { return mixers[static_cast<size_t>(layer)]; }
  bool IsRecurrent(int layer) const { return MixerOf(layer) == MixerKind::kRecurrent; }
  HeadTraits HeadsOf(int layer) const;
  int KvSourceOf(int layer) const {
    return kv_sources.empty() ? layer : kv_sources[static_cast<size_t>(layer)];
  }
  int FeedWidthOf(int layer) const {
    return feed_widths.empty() ? intermediate_size : feed_widths[static_cast<size_t>(layer)];
  }
  // Numbers that a head gives to o_proj.
  int value_dim() const { return has_latent() ? latent.value : head_dim; }
  // Columns of the output map that belong to one key-value head, and that map's name below
  // `attention_module`.
  int OutputColumns(const HeadTraits& heads) const {
    if (has_compression()) return compress.group_rank;
    return attention_heads / heads.kv_heads * (has_latent() ? latent.value : heads.dim);
  }
  const char* output_name() const { return has_compression() ? "o_b_proj" : "o_proj"; }
  // What config.json says of a module ("lm_head"). Whether it is stored quantised, its tensors
  // show.
  QuantizationTraits QuantizationOf(std::string_view module) const;
};

}  // namespace macrame::runtime::engine
