#pragma once

// DeepSeek-V4.1's attention of one layer as an MLX graph (ModelConfig::compress;
// cpu/compressed_attention.h is the same on a CPU). A row attends to the window's vectors and to
// the entries that were chosen for it. Where all rows see all entries that there are, these are
// read where they stand; else each row's are copied side by side, for a few rows at a time.
//
// Scores are float32: at 512 numbers a head MLX rounds them to the type of what it is given. Engine
// thread only.

#include <cstddef>
#include <optional>

#include "mlx/mlx.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/mlx/compressed_index.h"
#include "runtime/model/mlx/entry_step.h"
#include "runtime/model/mlx/float_rounding.h"
#include "runtime/model/mlx/open_groups.h"
#include "runtime/model/mlx/rope.h"
#include "runtime/model/mlx/step_rows.h"
#include "runtime/model/weights/linear.h"
#include "runtime/model/weights/weight_loader.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// Where a layer's numbers stand in its rank.
struct CompressedPlaces {
  int window = 0;   // of the pools, the entry of its own vectors
  int entries = 0;  // among the kept entries those that it makes or looks at; -1: none
  size_t open = 0;  // among the layers that pool
};

class MlxCompressedAttention {
 public:
  // `rope` outlives the layer.
  MlxCompressedAttention(const ModelConfig& config, const ShardPlace& place, int layer,
                         const CompressedNeeds& needs, const VectorNeed& sinks,
                         WeightLoader& loader, const MlxRope& rope, const CompressedPlaces& places);

  // x [rows, hidden], normed -> what the groups of this rank's heads give, [rows, groups x rank],
  // for the layer's output map. Ranks without heads make and choose entries too.
  mlx::core::array Apply(const mlx::core::array& x, EntryStep& step, MlxOpenGroups& open) const;

 private:
  void MakeEntries(const mlx::core::array& x, EntryStep& step, MlxOpenGroups& open) const;
  // The vectors of the groups that end in the step, [groups, dim].
  mlx::core::array Pooled(const mlx::core::array& given, EntryStep& step,
                          const MlxOpenGroups& open) const;
  // One sequence's queries [1, heads, count, dim] -> the same of what they give, in float32.
  mlx::core::array Attend(const mlx::core::array& queries, const mlx::core::array& window,
                          const StepRows::Sequence& sequence, EntryStep& step) const;
  mlx::core::array AttendToChosen(const mlx::core::array& queries, const mlx::core::array& window,
                                  const mlx::core::array& chosen,
                                  const StepRows::Sequence& sequence, const EntryStep& step) const;
  // Of rows with keys of their own: queries [rows, heads, dim], keys [rows, count, dim], mask
  // [rows, 1, count], -> [rows, heads, dim]. All heads of a row are rows of one product.
  mlx::core::array MixedByRow(const mlx::core::array& queries, const mlx::core::array& seen,
                              const mlx::core::array& mask) const;
  mlx::core::array Mixed(const mlx::core::array& queries, const mlx::core::array& seen,
                         const std::optional<mlx::core::array>& mask) const;
  mlx::core::array GroupOut(const mlx::core::array& mixed) const;
  mlx::core::array Normed(const mlx::core::array& x, const mlx::core::array& weight) const;

  const CompressTraits traits_;
  const int ratio_, dim_, groups_, heads_;  // of this rank the last two
  const float norm_eps_, scale_;
  const MlxRope& rope_;
  const CompressedPlaces places_;
  const MlxFloatRounding rounding_;
  const Linear q_a_, q_b_, kv_;
  const StackedLinear group_out_;  // [groups, rank, heads of one x dim]
  const mlx::core::array q_a_norm_, kv_norm_;
  std::optional<mlx::core::array> sinks_;  // of this rank's heads, float32
  // Of a layer that makes entries. What is pooled and its gates as one map where their formats
  // agree.
  std::optional<Linear> entry_, entry_gate_, index_key_;
  std::optional<mlx::core::array> entry_norm_, index_key_norm_;
  bool pools_ = false;
  std::optional<MlxCompressedIndex> index_;
};

}  // namespace macrame::runtime::engine
