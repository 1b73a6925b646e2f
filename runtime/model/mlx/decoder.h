#pragma once

// The layers as MLX graphs, for GPUs; and for a CPU where a test wants MLX's own arithmetic. One
// implementation for all families; ModelConfig's traits say where they differ.
//
// Builds graphs; nothing is computed until the caller evaluates them. Engine thread only.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/cuts/carried.h"
#include "runtime/model/mlx/block_index.h"
#include "runtime/model/mlx/experts.h"
#include "runtime/model/mlx/kv_blocks.h"
#include "runtime/model/mlx/latent_attention.h"
#include "runtime/model/mlx/layer_input.h"
#include "runtime/model/mlx/recurrent.h"
#include "runtime/model/step/layer_stack.h"
#include "runtime/model/step/rank_sums.h"
#include "runtime/model/step/slot_states.h"
#include "runtime/model/step/slot_tables.h"
#include "runtime/model/weights/linear.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

class Decoder : public LayerStack {
 public:
  Decoder(const ModelConfig& config, const ShardPlace& place, WeightLoader& loader, RankSums& sums,
          const LayerStackOptions& options);

  absl::Status Begin(const ForwardStep& step) override;
  mlx::core::array Embed(std::span<const int32_t> ids) override;
  mlx::core::array Run(const mlx::core::array& hidden, const ForwardStep& step) override;
  mlx::core::array Logits(const mlx::core::array& hidden, std::span<const int32_t> rows) override;
  mlx::core::array Hidden(const mlx::core::array& hidden, std::span<const int32_t> rows) override;
  void AppendState(std::vector<mlx::core::array>& out) const override;
  mlx::core::Dtype activation_type() const override { return activation_type_; }
  // A rank without heads, or without layers that attend, keeps nothing.
  size_t stored_block_bytes() const override { return has_blocks() ? blocks_.block_bytes() : 0; }
  void ReadBlock(int32_t block, std::span<std::byte> out) const override {
    if (has_blocks()) blocks_.Read(block, out);
  }
  void WriteBlock(int32_t block, std::span<const std::byte> bytes) override {
    if (has_blocks()) blocks_.Write(block, bytes);
  }
  std::string kv_layout() const override {
    return "mlx, " + (has_blocks() ? blocks_.layout() : "no heads") + rope_layout_;
  }

 private:
  bool has_blocks() const { return !kv_layers_.empty(); }
  struct Dense {
    std::optional<Linear> gate;
    Linear up, down;
    Activation activation;
    const ExpertTraits* clamped;  // null: it is not
    mlx::core::array Apply(const mlx::core::array& x) const {
      return MlxFeed(gate, up, down, activation, clamped, x);
    }
  };
  // Of a layer with a feed-forward and experts.
  struct Beside {
    MlxExperts experts;
    mlx::core::array feed_out_norm, experts_in_norm, experts_out_norm;
    mlx::core::array router_norm;  // of what the router sees
  };
  struct Layer {
    // Unset where there is a latent cache or a state; k and v too where the layer attends to
    // another one's, v where keys are values.
    std::optional<Linear> q, k, v;
    std::optional<MlxLatentAttention> latent;
    std::optional<MlxRecurrent> recurrent;
    std::optional<MlxBlockIndex> block_index;  // beside q, k and v
    std::optional<Linear> o;                   // unset: the layer has no first half
    std::optional<std::variant<Dense, MlxExperts>> feed;
    std::optional<Beside> beside;
    std::optional<MlxLayerInput> input;
    // Unset: there is none.
    std::optional<mlx::core::array> attention_norm, attention_out_norm, feed_norm, feed_out_norm;
    std::optional<mlx::core::array> q_norm, k_norm;
    std::optional<mlx::core::array> sinks;   // of this rank's heads
    std::optional<mlx::core::array> scalar;  // of what the layer gives
    int sliding_window;
    RopeUse rope;
    HeadTraits traits;
    int heads, kv_heads;  // of this rank; it may have none
    int number;           // in the model
    int kv;               // of its keys and values in blocks_; -1: this rank has none of them
    int index;            // of its indexer's keys there, where `block_index` is set
    bool is_read;         // its keys and values are handed on
  };
  Layer LoadLayer(int layer, WeightLoader& loader) const;
  std::optional<Beside> LoadBeside(const LayerNeeds& needs, WeightLoader& loader) const;
  // A layer's place in blocks_.
  int KvIndexOf(int layer) const;
  // These rows of a table [vocabulary, columns], of all ranks.
  mlx::core::array Lookup(const Linear& table, int columns, std::span<const int32_t> ids);
  // What came from the stage before, and what goes to the next.
  void TakeCarried(const mlx::core::array& given, const ForwardStep& step);
  mlx::core::array HandOn(const mlx::core::array& given, const mlx::core::array& hidden) const;
  // A layer's keys and values of one sequence, [1, heads, count, dim] each, as they are stored.
  void KeepForLater(const Layer& layer, const mlx::core::array& keys,
                    const mlx::core::array& values);
  // What a layer's first half adds; `recurring` counts this rank's layers so far.
  mlx::core::array FirstHalf(const Layer& layer, const mlx::core::array& hidden,
                             const ForwardStep& step, size_t& recurring);
  mlx::core::array Attend(const Layer& layer, const mlx::core::array& x, const ForwardStep& step);
  mlx::core::array AttendLatent(const Layer& layer, const mlx::core::array& x,
                                const ForwardStep& step);
  mlx::core::array AttendToNothing(const Layer& layer, const mlx::core::array& x) const;
  // What goes through the norm behind a layer's second half, and to the hidden state.
  mlx::core::array SecondHalf(const Layer& layer, const mlx::core::array& hidden) const;
  // The same of a layer with a state; `index` counts those of this rank.
  mlx::core::array Recur(const Layer& layer, size_t index, const mlx::core::array& x,
                         const ForwardStep& step);
  // Half a layer's result of all tensor ranks, as it is added to the hidden state.
  mlx::core::array Joined(const mlx::core::array& partial,
                          const std::optional<mlx::core::array>& norm) const;
  // These rows through the final norm.
  mlx::core::array NormRows(const mlx::core::array& hidden, std::span<const int32_t> rows) const;
  mlx::core::array Normed(const mlx::core::array& x,
                          const std::optional<mlx::core::array>& norm) const;
  // qk_norm_whole: queries and keys [rows, this rank's], normed over those of all ranks.
  void NormWhole(const Layer& layer, mlx::core::array& queries, mlx::core::array& keys) const;
  // One sequence's part of it: [1, heads, count, dim] each; `number`: of the segment in its step.
  struct Projected {
    mlx::core::array queries;
    std::optional<mlx::core::array> keys, values;  // unset: another layer's are there
    std::optional<MlxBlockIndex::Rows> index{};
  };
  Projected Project(const Layer& layer, const mlx::core::array& x,
                    std::optional<mlx::core::array>& gate) const;
  mlx::core::array Mix(const Layer& layer, const Segment& segment, size_t number,
                       const Projected& part);
  // The positions that queries of a sequence attend to by the layer's indexer; unset: all.
  std::optional<mlx::core::array> ChosenBy(const Layer& layer, const Segment& segment,
                                           const MlxBlockIndex::Rows& index);
  // A rotary form as MLX takes it.
  struct Rope {
    RopeTraits traits;
    float position_scale;
    std::optional<mlx::core::array> divisors;    // unset: theta says it
    std::optional<mlx::core::array> magnitudes;  // of a head's dimensions; unset: 1
    mlx::core::array Rotate(const mlx::core::array& x, int begin) const {
      return Rotate(x, begin, traits.interleaved);
    }
    mlx::core::array Rotate(const mlx::core::array& x, int begin, bool interleaved) const;
  };
  static Rope MakeRope(const RopeTraits& traits, int head_dim, int context_length);
  mlx::core::array Rotate(const Layer& layer, const mlx::core::array& x, int begin) const;

  const ModelConfig config_;
  const ShardPlace place_;
  RankSums& sums_;
  const mlx::core::Dtype activation_type_;
  SlotTables tables_;
  SlotStates slot_states_;
  MlxStates states_;
  const CarriedRow in_, out_;
  const std::vector<int> kv_layers_;  // whose keys and values are in blocks_, in their order
  MlxKvBlocks blocks_;
  const std::string rope_layout_;
  std::optional<Linear> embedding_;
  std::optional<MlxLayerInputs> inputs_;  // what makes layers' inputs, on the first stage
  std::optional<Linear> head_;            // unset when the embedding is it
  std::vector<Layer> layers_;
  std::optional<mlx::core::array> final_norm_;
  const Rope rope_;
  const std::optional<Rope> local_rope_;
  // Of the step that runs: what each layer of blocks_ has of each segment, and what this stage's
  // layers hand on, [rows of a segment, their columns of out_].
  std::vector<std::vector<MlxKvBlocks::View>> views_;
  std::map<int, std::vector<mlx::core::array>> read_kv_;
};

// Which keys the queries at [begin, begin + count) see under a sliding window: row-major
// [count, begin + count], true where position k is in (q - window, q]. Pure.
std::vector<bool> SlidingMask(int begin, int count, int window);

}  // namespace macrame::runtime::engine
