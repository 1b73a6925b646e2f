#pragma once

// The layers as MLX graphs, for GPUs; and for a CPU where a test wants MLX's own arithmetic. One
// implementation for all families; ModelConfig's traits say where they differ.
//
// Builds graphs; nothing is computed until the caller evaluates them. Engine thread only.

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/kernels/token_weights.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/cuts/carried.h"
#include "runtime/model/cuts/entry_places.h"
#include "runtime/model/mlx/attention.h"
#include "runtime/model/mlx/compressed_attention.h"
#include "runtime/model/mlx/entry_step.h"
#include "runtime/model/mlx/experts.h"
#include "runtime/model/mlx/feed.h"
#include "runtime/model/mlx/kv_pools.h"
#include "runtime/model/mlx/latent_attention.h"
#include "runtime/model/mlx/layer_input.h"
#include "runtime/model/mlx/open_groups.h"
#include "runtime/model/mlx/part_chooser.h"
#include "runtime/model/mlx/recurrent.h"
#include "runtime/model/mlx/recurrent_states.h"
#include "runtime/model/mlx/rope.h"
#include "runtime/model/mlx/step_rows.h"
#include "runtime/model/mlx/streams.h"
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
          const LayerStackOptions& options, std::span<const SliceRange> stage = {});

  absl::Status Begin(const ForwardStep& step) override;
  mlx::core::array Embed(std::span<const int32_t> ids) override;
  // Of a tensor group: where each rank's slices were given.
  bool chooses_tokens() const override { return chooser_.has_value(); }
  static bool MayChoose(const ModelConfig& config, const ShardPlace& place) {
    return place.embeds && place.has_head && config.has_head &&
           static_cast<size_t>(config.vocab_size) <= kernels::kVocabularyMax;
  }
  mlx::core::array EmbedChosen(std::span<const int32_t> tokens,
                               const mlx::core::array& chosen) override;
  mlx::core::array Choose(const mlx::core::array& logits, std::span<const RowChoice> how) override {
    return chooser_->Choose(logits, how);
  }
  mlx::core::array WholeLogits(const mlx::core::array& logits) override {
    return chooser_->Whole(logits);
  }
  mlx::core::array Run(const mlx::core::array& hidden, const ForwardStep& step) override;
  mlx::core::array Logits(const mlx::core::array& hidden, std::span<const int32_t> rows) override;
  mlx::core::array Hidden(const mlx::core::array& hidden, std::span<const int32_t> rows) override;
  bool keeps_runs() const override { return true; }
  void AppendState(std::vector<mlx::core::array>& out) const override;
  mlx::core::Dtype activation_type() const override { return activation_type_; }
  // A rank without heads, or without layers that attend, keeps nothing.
  size_t stored_block_bytes() const override { return has_blocks() ? pools_.block_bytes() : 0; }
  void ReadBlock(int32_t block, std::span<std::byte> out) const override {
    ReadBlocks({&block, 1}, {&out, 1});
  }
  void WriteBlock(int32_t block, std::span<const std::byte> bytes) override {
    WriteBlocks({&block, 1}, {&bytes, 1});
  }
  void ReadBlocks(std::span<const int32_t> blocks,
                  std::span<const std::span<std::byte>> out) const override {
    if (has_blocks()) pools_.Read(blocks, out);
  }
  void WriteBlocks(std::span<const int32_t> blocks,
                   std::span<const std::span<const std::byte>> bytes) override {
    if (has_blocks()) pools_.Write(blocks, bytes);
  }
  std::string kv_layout() const override {
    return "mlx, " + (has_blocks() ? pools_.layout() : "no heads") + rope_layout_;
  }

 private:
  bool has_blocks() const { return !kv_layers_.empty(); }
  // Of a layer with a feed-forward and experts.
  struct Beside {
    MlxExperts experts;
    mlx::core::array feed_out_norm, experts_in_norm, experts_out_norm;
    mlx::core::array router_norm;  // of what the router sees
  };
  struct Layer {
    // One of them at most; none where this rank has no heads, or the layer no first half.
    std::optional<MlxAttention> attention;
    std::optional<MlxLatentAttention> latent;
    std::optional<MlxRecurrent> recurrent;
    std::optional<MlxCompressedAttention> compressed;
    std::optional<Linear> o;  // unset: the layer has no first half
    std::optional<std::variant<MlxFeed, MlxExperts>> feed;
    std::optional<Beside> beside;
    std::optional<MlxLayerInput> input;
    // Unset: there is none.
    std::optional<mlx::core::array> attention_norm, attention_out_norm, feed_norm, feed_out_norm;
    std::optional<mlx::core::array> scalar;  // of what the layer gives
    std::optional<MlxStreamMix> attention_mix, feed_mix;
    int number;    // in the model
    int kv;        // of its keys and values in pools_; -1: this rank has none of them
    bool is_read;  // its keys and values are passed to the next stage
  };
  Layer LoadLayer(int layer, WeightLoader& loader) const;
  std::optional<Beside> LoadBeside(const LayerNeeds& needs, WeightLoader& loader) const;
  std::optional<MlxAttention> LoadAttention(int layer, const LayerNeeds& needs,
                                            WeightLoader& loader) const;
  // A layer's place in pools_.
  int KvIndexOf(int layer) const;
  // This rank's share of the rows of a table, by which they are looked up.
  using LookUp = std::function<mlx::core::array(const Linear& table, int columns)>;
  mlx::core::array EmbedBy(const LookUp& look_up);
  // Of these rows of a table [vocabulary, columns], those that this rank holds; else zeros.
  mlx::core::array OwnRows(const Linear& table, int columns, std::span<const int32_t> ids) const;
  mlx::core::array OwnRows(const Linear& table, int columns, const mlx::core::array& ids) const;
  // What a step's layers share.
  struct Shared {
    AttentionStep attention;
    EntryStep entries;
    std::optional<MlxStreams> streams{};
    size_t recurring = 0;  // layers with a state so far
  };
  // What came from the stage before, and what goes to the next.
  void TakeCarried(const mlx::core::array& given, Shared& shared);
  mlx::core::array HandOn(const mlx::core::array& given, const mlx::core::array& hidden,
                          Shared& shared) const;
  std::optional<MlxCompressedAttention> LoadCompressed(int layer, const LayerNeeds& needs,
                                                       WeightLoader& loader) const;
  // A layer's keys and values of this step, laid out, as the next stage takes them.
  mlx::core::array RowsOf(const Layer& layer, const KvOfStep& own, const StepRows& rows) const;
  // By what each row's queries are multiplied besides; unset: 1.
  std::optional<mlx::core::array> QueryScales(const ForwardStep& step, const StepRows& rows) const;
  // What half a layer reads, and the same with what it gave.
  mlx::core::array Read(const std::optional<MlxStreamMix>& mix, const mlx::core::array& hidden,
                        Shared& shared) const;
  mlx::core::array Added(const mlx::core::array& hidden, const mlx::core::array& given,
                         Shared& shared) const;
  // What a layer's first half adds.
  mlx::core::array FirstHalf(const Layer& layer, const mlx::core::array& hidden, Shared& shared);
  mlx::core::array Attend(const Layer& layer, const mlx::core::array& x, AttentionStep& step);
  mlx::core::array AttendToNothing(const Layer& layer, const mlx::core::array& x) const;
  // What goes through the norm behind a layer's second half, and to the hidden state.
  mlx::core::array SecondHalf(const Layer& layer, const mlx::core::array& hidden) const;
  // The same of a layer with a state; `index` counts those of this rank.
  mlx::core::array Recur(const Layer& layer, size_t index, const mlx::core::array& x);
  // Half a layer's result of all tensor ranks, as it is added to the hidden state.
  mlx::core::array Joined(const mlx::core::array& partial,
                          const std::optional<mlx::core::array>& norm) const;
  // These rows through the final norm.
  mlx::core::array NormRows(const mlx::core::array& hidden, std::span<const int32_t> rows) const;
  mlx::core::array Normed(const mlx::core::array& x,
                          const std::optional<mlx::core::array>& norm) const;
  const ModelConfig config_;
  const ShardPlace place_;
  RankSums& sums_;
  const mlx::core::Dtype activation_type_;
  SlotTables tables_;
  SlotStates slot_states_;
  MlxStates states_;
  const CarriedRow in_, out_;
  const std::vector<int> kv_layers_;  // whose keys and values are in pools_, in their order
  const EntryPlaces entry_places_;    // of compressed entries, behind those in pools_
  MlxOpenGroups open_groups_;
  KvPools pools_;
  const std::string rope_layout_;
  const MlxRope rope_;
  const std::optional<MlxRope> local_rope_;
  const std::optional<MlxStreamWork> stream_work_;
  std::optional<Linear> embedding_;
  std::optional<MlxLayerInputs> inputs_;  // what makes layers' inputs, on the first stage
  std::optional<Linear> head_;            // unset when the embedding is it
  std::vector<Layer> layers_;
  std::optional<mlx::core::array> final_norm_;
  std::optional<PartChooser> chooser_;  // where tokens are chosen
  // Of the step that runs: what this stage's layers pass on, [rows, their columns of out_].
  std::map<int, mlx::core::array> read_kv_;
};

}  // namespace macrame::runtime::engine
