#pragma once

// The layers on a CPU: plain calls of our kernels over float32 buffers that stay between steps,
// since MLX's graph costs more than half a millisecond a layer there. One implementation for all
// families; ModelConfig's traits say where they differ.
//
// A token's results are bit for bit the same whatever else is in the step, however its prompt was
// cut into steps, and whether its prefix was computed or taken from blocks that another sequence
// wrote. Nothing is deferred: what Embed, Run and Logits return is there.

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/kernels/attention.h"
#include "runtime/kernels/elementwise.h"
#include "runtime/kernels/thread_pool.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/config/rope.h"
#include "runtime/model/cpu/block_attention.h"
#include "runtime/model/cpu/compressed_attention.h"
#include "runtime/model/cpu/feed.h"
#include "runtime/model/cpu/kv_blocks.h"
#include "runtime/model/cpu/latent_attention.h"
#include "runtime/model/cpu/layer_input.h"
#include "runtime/model/cpu/linear.h"
#include "runtime/model/cpu/open_groups.h"
#include "runtime/model/cpu/recurrent.h"
#include "runtime/model/cpu/streams.h"
#include "runtime/model/cuts/carried.h"
#include "runtime/model/cuts/entry_places.h"
#include "runtime/model/step/layer_stack.h"
#include "runtime/model/step/rank_sums.h"
#include "runtime/model/step/slot_states.h"
#include "runtime/model/step/slot_tables.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

class CpuModel : public LayerStack {
 public:
  // The default device must be the CPU: the loader goes by it.
  CpuModel(const ModelConfig& config, const ShardPlace& place, WeightLoader& loader, RankSums& sums,
           const LayerStackOptions& options);

  absl::Status Begin(const ForwardStep& step) override;
  mlx::core::array Embed(std::span<const int32_t> ids) override;
  mlx::core::array Run(const mlx::core::array& hidden, const ForwardStep& step) override;
  mlx::core::array Logits(const mlx::core::array& hidden, std::span<const int32_t> rows) override;
  mlx::core::array Hidden(const mlx::core::array& hidden, std::span<const int32_t> rows) override;
  void AppendState(std::vector<mlx::core::array>&) const override {}
  bool bits_are_fixed() const override { return true; }
  mlx::core::Dtype activation_type() const override { return mlx::core::float32; }
  kernels::ThreadPool* threads() override { return &pool_; }
  uint64_t block_bytes() const override { return block_bytes_; }
  uint64_t buffer_bytes() const override;
  size_t stored_block_bytes() const override { return block_bytes_; }
  void ReadBlock(int32_t block, std::span<std::byte> out) const override;
  void WriteBlock(int32_t block, std::span<const std::byte> bytes) override;
  std::string kv_layout() const override;

 private:
  // Of a layer with a feed-forward and experts.
  struct Beside {
    CpuExperts experts;
    mlx::core::array feed_out_norm, experts_in_norm, experts_out_norm;
    mlx::core::array router_norm;  // of what the router sees
  };
  // Of this rank; it may have none.
  struct Heads {
    size_t queries = 0, kv = 0, dim = 0;
    size_t first_kv = 0;  // of the model's
    size_t query_width() const { return queries * dim; }
    size_t kv_width() const { return kv * dim; }
  };
  struct Layer {
    // Unset where there is a latent cache or a state; k and v too where the layer attends to
    // another one's, v where keys are values.
    std::optional<CpuLinear> q, k, v;
    std::optional<CpuLatentAttention> latent;
    std::optional<CpuRecurrent> recurrent;
    std::optional<CpuCompressedAttention> compressed;
    std::optional<CpuBlockAttention> by_blocks;  // beside q, k and v
    std::optional<CpuLinear> o;                  // unset: the layer has no first half
    std::optional<std::variant<CpuFeed, CpuExperts>> feed;
    std::optional<Beside> beside;
    std::optional<CpuLayerInput> input;
    // Unset: there is none.
    std::optional<mlx::core::array> attention_norm, attention_out_norm, feed_norm, feed_out_norm;
    std::optional<mlx::core::array> q_norm, k_norm;
    std::optional<mlx::core::array> sinks;  // of this rank's heads
    float scalar;                           // of what the layer gives
    size_t window;
    RopeUse rope;
    // How its halves weigh the residual streams; unset: there is one.
    std::optional<CpuStreamMix> attention_mix, feed_mix;
    Heads heads;
    int number;    // in the model
    int kv;        // of its keys and values in blocks_; -1: it does not attend
    int index;     // of its indexer's keys there, where `by_blocks` is set
    bool is_read;  // its keys and values are handed on
  };
  // Where a row of the step's buffers belongs.
  struct Row {
    size_t position;
    const int32_t* blocks;
  };
  // One row per token of the step: what a half layer reads and writes.
  struct Buffers {
    FloatBuffer hidden, normed, queries, keys, values, mixed, partial;
    FloatBuffer gated;    // queries and gates, for attention_gate
    FloatBuffer squares;  // sums of each row's queries' and keys', for qk_norm_whole
    FloatBuffer beside;   // what a feed-forward gives that has experts beside it
    FloatBuffer seen;     // what their router sees
    FloatBuffer read_kv;  // keys and values of this stage's layers that later stages read
  };
  // A rotary form, and what it makes of the step's rows.
  struct Rope {
    Rope(const RopeTraits& traits, int context_length)
        : table(MakeRopeTable(traits, context_length)), interleaved(traits.interleaved) {}
    void TurnTo(const std::vector<Row>& rows);
    kernels::Rotation RotationOf(size_t row) const {
      const size_t half = table.frequencies.size();
      return {2 * half, interleaved, cosines.data() + row * half, sines.data() + row * half};
    }
    const RopeTable table;
    const bool interleaved;
    FloatBuffer cosines{}, sines{};
  };

  Layer LoadLayer(int layer, WeightLoader& loader) const;
  std::optional<Beside> LoadBeside(const LayerNeeds& needs, WeightLoader& loader) const;
  size_t MixedWidth() const;
  // Tokens' rows of the embedding, of all ranks.
  void EmbedRows(std::span<const int32_t> ids, float* rows);
  // What came from the stage before, and what goes to the next.
  void TakeCarried(const float* rows);
  void TakeEntry(size_t row);
  mlx::core::array HandOn();
  void KeepForLater(const Layer& layer);
  void TakeRows(const ForwardStep& step);
  void ReserveBuffers();
  const Rope* RopeOf(const Layer& layer) const;  // null: it has none
  void Turn(const Layer& layer, const kernels::KvView& view, size_t row);
  void TurnKeys(const Layer& layer, size_t row);
  // What goes into half a layer: the hidden states, or what `mix` makes of the streams, through
  // `norm` if there is one.
  const float* NormedHidden(const std::optional<mlx::core::array>& norm,
                            const std::optional<CpuStreamMix>& mix);
  // A layer's first half.
  void Attend(const Layer& layer);
  // Queries, keys and values of all rows.
  void Project(const Layer& layer);
  void AddSquares(const Layer& layer);
  void ScaleWhole(const Layer& layer, size_t row);
  void TakeQueries(const Layer& layer, size_t row);
  void Mix(const Layer& layer);
  BlockStep BlockStepOf(const Layer& layer) const;
  void MixLatent(const Layer& layer);
  void MixCompressed(const Layer& layer);
  void Feed(const Layer& layer);
  // buffers_.partial becomes what both of them give.
  void FeedBeside(const Beside& beside);
  void TakeInput(const Layer& layer);
  // buffers_.partial becomes what all tensor ranks have of it.
  void SumPartial();
  // hidden += buffers_.partial, through `norm` if there is one.
  void AddPartial(const std::optional<mlx::core::array>& norm);
  void Norm(const float* x, const mlx::core::array& weight, float* out) const;
  // These rows through the final norm.
  void NormRows(const mlx::core::array& hidden, std::span<const int32_t> rows, float* out) const;
  const ModelConfig config_;
  const ShardPlace place_;
  RankSums& sums_;
  StepObserver* const observer_;
  const size_t hidden_size_;
  const CarriedRow in_, out_;
  const std::vector<int> kv_layers_;  // whose keys and values are in blocks_, in their order
  size_t query_width_ = 0, kv_width_ = 0, mixed_width_ = 0;  // of the layers that have most
  const Range vocabulary_;
  const EntryPlaces entry_places_;
  kernels::ThreadPool pool_;
  CpuProducts products_;
  FeedWork feed_;
  kernels::AttentionScratch attention_;
  LatentWork latent_;
  BlockAttentionWork by_blocks_;
  LayerInputWork input_work_;
  const RecurrentCut recurrent_cut_;
  RecurrentWork recurrent_;
  SlotTables tables_;
  SlotStates slot_states_;
  CpuStates states_;
  CompressedWork compressed_;
  OpenGroups open_groups_;
  CpuStreams streams_;
  const std::string rope_layout_;
  CpuKvBlocks blocks_;
  CpuKvBlocks entries_;  // compressed ones, by entry_places_
  const uint64_t block_bytes_;
  std::optional<CpuLinear> embedding_;
  std::optional<CpuLayerInputs> inputs_;  // what makes layers' inputs, on the first stage
  std::optional<CpuLinear> head_;         // unset when the embedding is it
  std::vector<Layer> layers_;
  std::vector<CarriedRow::Kv> read_kv_;  // where they stand in buffers_.read_kv
  int read_kv_width_ = 0;                // of a row there
  std::vector<float> ones_;              // the weights of norms without weights
  std::deque<Rope> ropes_;               // the global one, then the local one if it differs
  std::optional<mlx::core::array> final_norm_;
  // Of the step that runs.
  std::vector<Row> rows_;
  std::vector<kernels::AttentionSegment> segments_;
  std::vector<RecurrentSegment> recurrent_segments_;
  std::vector<uint32_t> slots_;     // of each segment
  const float* carried_ = nullptr;  // what went into the first layer, row by row
  Buffers buffers_;
};

}  // namespace macrame::runtime::engine
