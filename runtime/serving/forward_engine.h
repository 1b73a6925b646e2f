#pragma once

// Runs forward steps on this rank, and on rank 0 drives those of the gang. Every rank runs the same
// step at the same time: rank 0 sends it over the step channel and takes part; the others receive
// and follow.
//
// Pipeline: hidden states go from each rank to the one with its tp_rank in the next stage, the last
// stage's logits from its first rank to rank 0, in a pure pipeline its neighbour at the ring's end.
// Prefill chunks without logits are not waited for, so the stages work on different chunks at once.
// Tensor: partial sums are added by all_sum over the stage's ranks; the first of the last stage has
// the head.
//
// One thread. A failing collective (MLX throws) comes back as RANK_EXITED.

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/gang/gang_link.h"
#include "runtime/gang/step_codec.h"
#include "runtime/gang/watchdog.h"
#include "runtime/model/layer_stack.h"
#include "runtime/model/model_config.h"

namespace macrame::runtime::engine {

// Tokens of a prompt that go through the layers in one step.
inline constexpr int kPrefillChunkTokens = 256;

struct ForwardLimits {
  int context_length = 0;  // positions of one sequence
  int blocks_total = 0;    // KV blocks of this rank
  int prefill_chunk_tokens = kPrefillChunkTokens;
  std::chrono::milliseconds step_limit{0};   // zero: none
  int threads = 1;                           // of CPU kernels
  std::optional<kernels::KvType> kv_type{};  // see LayerStackOptions
};

class ForwardEngine {
 public:
  // Loads the weights. `link` and `watchdog` must live as long.
  ForwardEngine(const ModelConfig& config, const ShardPlace& place, WeightLoader& loader,
                GangLink& link, Watchdog& watchdog, ForwardLimits limits);

  // Rank 0: tells the others and runs a step; the rows asked for as float32 of vocab_size each, in
  // the order of the segments. INTERNAL for a step that is not well-formed.
  absl::StatusOr<std::vector<float>> Run(const ForwardStep& step);

  // Rank 0: tells the others, without running anything.
  absl::Status Announce(StepKind kind);
  // Rank 0: tells the others to take part in timed collectives now.
  absl::Status AnnounceVerify(const v1::VerifyGroupRequest& request);

  // Other ranks: one kForward step that was received.
  absl::Status Follow(const Step& step);

  int vocab_size() const { return config_.vocab_size; }
  const ForwardLimits& limits() const { return limits_; }
  // What the KV cache has taken so far, where MLX does not count it. Any thread.
  uint64_t cache_bytes() const { return blocks_used_.load() * layers_->block_bytes(); }

 private:
  absl::Status SendStep(Step step);
  // This rank's part of a step; `logits` gets rows when this is rank 0 and the step asks for them.
  absl::Status RunStep(const ForwardStep& step, std::vector<float>* logits);
  void RunStages(const ForwardStep& step, std::vector<float>* logits);
  void NoteBlocks(const ForwardStep& step);
  mlx::core::array Sum(const mlx::core::array& partial) const;

  const ModelConfig config_;
  const ShardPlace place_;
  GangLink& link_;
  Watchdog& watchdog_;
  const ForwardLimits limits_;
  std::unique_ptr<LayerStack> layers_;
  std::atomic<uint64_t> blocks_used_ = 0;  // the highest number of a block in any step, plus one
  uint64_t next_step_ = 1;                 // 0 was kConnect
};

}  // namespace macrame::runtime::engine
