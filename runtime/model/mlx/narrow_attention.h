#pragma once

// Attention of a few rows over keys and values that are kept in few bits: products with them as
// they are, so that a context is read once and never unpacked. For more rows unpacking costs less
// than products of that kind. Builds a graph. Engine thread only.

#include <optional>

#include "mlx/mlx.h"
#include "runtime/model/mlx/kv_pools.h"
#include "runtime/model/mlx/step_rows.h"

namespace macrame::runtime::engine {

// Answers' next tokens, with drafts behind them.
inline constexpr int kNarrowRowsMax = 8;

// Whether `rows` rows of one sequence go by AttendNarrow.
inline bool AttendsToNarrow(const KvRowsKept& keys, const KvRowsKept& values, int rows) {
  return keys.bits > 0 && values.bits > 0 && rows <= kNarrowRowsMax;
}

// As mx::fast::scaled_dot_product_attention with a scale of 1: queries [1, heads, rows, dim], keys
// and values of positions that `sight` tells of, sinks [heads] -> [1, heads, rows, width of
// values].
mlx::core::array AttendNarrow(const mlx::core::array& queries, const KvRowsKept& keys,
                              const KvRowsKept& values, const StepRows::Sight& sight,
                              const std::optional<mlx::core::array>& sinks);

}  // namespace macrame::runtime::engine
