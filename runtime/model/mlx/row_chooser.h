#pragma once

// Tokens from rows of logits as an MLX graph, so that a step can begin before the tokens of the one
// before it are read on the host. Each token is the one that SampleToken
// (serving/sampling/sampler.h) gives: weights are the whole numbers of kernels/token_weights.h, and
// sums and comparisons are of whole numbers alone.
//
// The graph holds what the rows of a step need together:
//   1. Greedy rows alone: argmax.
//   2. Temperature and min-p: the weights, their sums in the order of ids, and where the draw
//      falls among them.
//   3. Top-k of up to kFewTokens, for each row that has top-p too: in addition the last token that
//      is kept, looked for in the blocks that hold the likeliest tokens.
//   4. A larger top-k, or top-p without top-k: the last token that is kept, looked for in all
//      tokens in order. This sorts the vocabulary.
//
// Engine thread only.

#include <cstdint>
#include <optional>
#include <span>

#include "mlx/mlx.h"
#include "runtime/model/step/row_choice.h"

namespace macrame::runtime::engine {

inline constexpr uint32_t kFewTokens = 64;

class RowChooser {
 public:
  RowChooser();
  // logits: float32 [rows, vocabulary], of kernels::kVocabularyMax tokens at most; `how`: one for
  // each row, not empty. int32 [rows]: the tokens; kNoToken for a row that is not finite. Nothing
  // is evaluated. One array is made on the host, of some numbers a row; none for greedy rows.
  mlx::core::array Choose(const mlx::core::array& logits, std::span<const RowChoice> how);

 private:
  using Array = mlx::core::array;
  // int32 [rows, 1]; `highest`: of each row.
  Array Draw(const Array& logits, const Array& highest, std::span<const RowChoice> how);
  // uint64, of any shape.
  Array WeightsOf(const Array& distances) const;
  // The places of all tokens: by distance, then by id.
  Array PlacesOf(const Array& distances);
  // The last place that top-k and top-p leave, [rows, 1]. `places` in order, [rows, any]; `top_k`
  // counts from 0, `top_p` is of kernels::kWhole, both [rows, 1].
  Array LastOf(const Array& places, const Array& top_k, const Array& top_p) const;

  const Array fractions_;     // weights of distances of less than one halving
  std::optional<Array> ids_;  // of all tokens
};

}  // namespace macrame::runtime::engine
