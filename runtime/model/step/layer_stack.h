#pragma once

// One rank's stretch of a decoder-only transformer: the embedding (first stage), layers
// [layer_begin, layer_end), the final norm and head (last stage), with the KV cache of the
// sequences that are open. All tokens of a step's segments stand in one buffer, segment after
// segment; attention runs per segment. Engine thread only.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "mlx/mlx.h"
#include "runtime/kernels/kv_view.h"
#include "runtime/kernels/thread_pool.h"
#include "runtime/model/step/forward_step.h"
#include "runtime/model/step/step_observer.h"

namespace macrame::runtime::engine {

class LayerStack {
 public:
  virtual ~LayerStack() = default;

  // Takes a step's slots, blocks and tokens; INTERNAL when they are not well-formed. What follows
  // is called for this step.
  virtual absl::Status Begin(const ForwardStep& step) = 0;
  // Hidden states [tokens of the step, hidden_size] of its tokens; of models whose layers read more
  // than that, with what they read (carried.h). First stage only.
  virtual mlx::core::array Embed(std::span<const int32_t> ids) = 0;
  // Whether attention reads a sequence's positions in place only where its blocks follow one
  // another; else blocks may stand anywhere, and steps have no copies.
  virtual bool keeps_runs() const { return false; }
  // Whether the three below are there. In a tensor split every rank of which chooses tokens, each
  // calls them for the same rows and has the same results.
  virtual bool chooses_tokens() const { return false; }
  // As Embed; tokens below zero stand for rows (ChosenRowOf) of `chosen`, int32 [rows], which is
  // not evaluated.
  virtual mlx::core::array EmbedChosen(std::span<const int32_t> tokens,
                                       const mlx::core::array& chosen);
  // The token of each row of `logits` (mlx/row_chooser.h): int32 [rows], not evaluated.
  virtual mlx::core::array Choose(const mlx::core::array& logits, std::span<const RowChoice> how);
  // Rows of the whole vocabulary, of this rank's and the others' part of them; not evaluated.
  virtual mlx::core::array WholeLogits(const mlx::core::array& logits);
  // The same through this rank's layers; behind the last layer, hidden states alone.
  virtual mlx::core::array Run(const mlx::core::array& hidden, const ForwardStep& step) = 0;
  // Logits float32 [rows.size(), this rank's part of the vocabulary] of these rows of `hidden`.
  // Last stage only.
  virtual mlx::core::array Logits(const mlx::core::array& hidden,
                                  std::span<const int32_t> rows) = 0;
  // Hidden states float32 [rows.size(), hidden_size] of these rows behind the final norm, whole on
  // every rank. Last stage only.
  virtual mlx::core::array Hidden(const mlx::core::array& hidden,
                                  std::span<const int32_t> rows) = 0;
  // What else is to be evaluated together with a step's result.
  virtual void AppendState(std::vector<mlx::core::array>& out) const = 0;
  virtual mlx::core::Dtype activation_type() const = 0;
  // Whether a token's logits have the same bits whatever else a step runs.
  virtual bool bits_are_fixed() const { return false; }
  // The threads that its kernels run on; null where it has none of ours.
  virtual kernels::ThreadPool* threads() { return nullptr; }
  // Of one KV block in all of this rank's layers, where MLX does not count it; else 0.
  virtual uint64_t block_bytes() const { return 0; }
  // What is kept from step to step besides, where MLX does not count it; else 0.
  virtual uint64_t buffer_bytes() const { return 0; }

  // For the cold tier, which is off for models with recurrent layers: a block on disk would lack
  // the state that belongs to it, and states are too large to be kept for each block. One KV block
  // in all of this rank's layers as bytes, the same on every run of this build on this kind of
  // machine. After the first step.
  virtual size_t stored_block_bytes() const = 0;
  virtual void ReadBlock(int32_t block, std::span<std::byte> out) const = 0;
  virtual void WriteBlock(int32_t block, std::span<const std::byte> bytes) = 0;
  // The same of several, each with its bytes: a GPU is waited for once.
  virtual void ReadBlocks(std::span<const int32_t> blocks,
                          std::span<const std::span<std::byte>> out) const;
  virtual void WriteBlocks(std::span<const int32_t> blocks,
                           std::span<const std::span<const std::byte>> bytes);
  // What besides the model and the place decides those bytes.
  virtual std::string kv_layout() const = 0;
};

struct LayerStackOptions {
  int blocks_total = 0;    // KV blocks (slot_tables.h)
  int context_length = 0;  // of one sequence
  int threads = 1;         // of CPU kernels
  // Of models with recurrent layers: how many sequences are open at most, and how many of their
  // states are kept for reuse, under ids [0, state_snapshots).
  int sequences_max = 1;
  int state_snapshots = 0;
  // In which CPU kernels keep keys and values; unset: float32 for models in float32, float16 for
  // the others (bfloat16 takes as much memory and is eight times less exact). kInt8 takes 8.5 bits
  // a number.
  std::optional<kernels::KvType> kv_type{};
  // In which MLX's graph does (mlx/kv_pools.h); 0: in the model's own type.
  int kv_bits = 0;
  StepObserver* observer = nullptr;  // hears of each layer where layers run one by one
};

}  // namespace macrame::runtime::engine
