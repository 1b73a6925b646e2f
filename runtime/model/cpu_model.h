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
#include "runtime/model/cpu_feed.h"
#include "runtime/model/cpu_kv_blocks.h"
#include "runtime/model/cpu_latent_attention.h"
#include "runtime/model/cpu_linear.h"
#include "runtime/model/cpu_recurrent.h"
#include "runtime/model/layer_stack.h"
#include "runtime/model/model_config.h"
#include "runtime/model/rope.h"
#include "runtime/model/slot_states.h"
#include "runtime/model/slot_tables.h"
#include "runtime/model/weight_loader.h"
#include "runtime/model/weight_needs.h"

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
  mlx::core::Dtype activation_type() const override { return mlx::core::float32; }
  kernels::ThreadPool* threads() override { return &pool_; }
  uint64_t block_bytes() const override { return block_bytes_; }
  uint64_t buffer_bytes() const override;
  size_t stored_block_bytes() const override { return block_bytes_; }
  void ReadBlock(int32_t block, std::span<std::byte> out) const override {
    blocks_.Read(block, out);
  }
  void WriteBlock(int32_t block, std::span<const std::byte> bytes) override {
    blocks_.Write(block, bytes);
  }
  std::string kv_layout() const override;

 private:
  struct Layer {
    std::optional<CpuLinear> q, k, v;  // unset where there is a latent cache or a state
    std::optional<CpuLatentAttention> latent;
    std::optional<CpuRecurrent> recurrent;
    std::optional<CpuLinear> o;  // unset: the layer has no first half
    std::optional<std::variant<CpuFeed, CpuExperts>> feed;
    // Unset: there is none.
    std::optional<mlx::core::array> attention_norm, attention_out_norm, feed_norm, feed_out_norm;
    std::optional<mlx::core::array> q_norm, k_norm;
    std::optional<mlx::core::array> sinks;  // of this rank's heads
    size_t window;
    RopeUse rope;
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

  static Layer LoadLayer(const ModelConfig& config, const ShardPlace& place, int layer,
                         WeightLoader& loader);
  size_t MixedWidth() const;
  void TakeRows(const ForwardStep& step);
  void ReserveBuffers();
  const Rope* RopeOf(const Layer& layer) const;  // null: it has none
  void Turn(const Layer& layer, const kernels::KvView& view, size_t row);
  // What goes into half a layer: the hidden states, through `norm` if there is one.
  const float* NormedHidden(const std::optional<mlx::core::array>& norm);
  // A layer's first half; `index` counts this rank's layers that attend.
  void Attend(const Layer& layer, int index);
  // Queries, keys and values of all rows.
  void Project(const Layer& layer);
  void AddSquares();
  void ScaleWhole(const Layer& layer, size_t row);
  void TakeQueries(size_t row);
  void Mix(const Layer& layer, int index);
  void MixLatent(const Layer& layer, int index);
  void Feed(const Layer& layer);
  // hidden += buffers_.partial of all tensor ranks, through `norm` if there is one.
  void AddPartial(const std::optional<mlx::core::array>& norm);
  void Norm(const float* x, const mlx::core::array& weight, float* out) const;
  // These rows through the final norm.
  void NormRows(const mlx::core::array& hidden, std::span<const int32_t> rows, float* out) const;
  const ModelConfig config_;
  const ShardPlace place_;
  RankSums& sums_;
  StepObserver* const observer_;
  const size_t hidden_size_;
  const size_t head_dim_;
  const size_t heads_;  // of this rank, as the next; it may have none
  const size_t kv_heads_;
  const size_t value_dim_;
  const Range vocabulary_;
  const uint64_t block_bytes_;
  kernels::ThreadPool pool_;
  CpuProducts products_;
  FeedWork feed_;
  kernels::AttentionScratch attention_;
  LatentWork latent_;
  const RecurrentCut recurrent_cut_;
  RecurrentWork recurrent_;
  SlotTables tables_;
  SlotStates slot_states_;
  CpuStates states_;
  const std::string rope_layout_;
  CpuKvBlocks blocks_;
  std::optional<CpuLinear> embedding_;
  std::optional<CpuLinear> head_;  // unset when the embedding is it
  std::vector<Layer> layers_;
  std::deque<Rope> ropes_;  // the global one, then the local one if it differs
  std::optional<mlx::core::array> final_norm_;
  // Of the step that runs.
  std::vector<Row> rows_;
  std::vector<kernels::AttentionSegment> segments_;
  std::vector<RecurrentSegment> recurrent_segments_;
  Buffers buffers_;
};

}  // namespace macrame::runtime::engine
