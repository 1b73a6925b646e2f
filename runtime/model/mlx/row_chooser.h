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
//   3. A top-k of up to kFewTokens in each row that is not greedy: the likeliest tokens, looked for
//      in the blocks that hold them, and a draw among these.
//   4. A larger top-k, or top-p without top-k: all tokens in order, the last one that is kept, then
//      as 2. This sorts the vocabulary.
// Rows with neither top-k nor top-p beside rows of 3 take 2 behind the likeliest tokens.
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
  // logits: float32 [rows, vocabulary], of kernels::kVocabularyMax tokens at most; `how`: one for
  // each row, not empty. int32 [rows]: the tokens; kNoToken for a row that is not finite. Nothing
  // is evaluated. One array is made on the host, of some numbers a row; none for greedy rows.
  mlx::core::array Choose(const mlx::core::array& logits, std::span<const RowChoice> how);

  // Three steps where the vocabulary is split over ranks, for rows that are greedy or have a top-k
  // of up to kFewTokens. Ranks exchange the highest logit of each row first, then their places.

  // The number of tokens of a part that can matter; 0: the rows need all tokens.
  static uint32_t FirstThatDecide(std::span<const RowChoice> how);
  // The ids and distances of this part's likeliest tokens, in order: uint64 [rows,
  // FirstThatDecide]. logits: float32 [rows, part], from the id `first_token` on; highest: float32
  // [rows, 1], of all parts. An empty part gives places that weigh nothing.
  mlx::core::array FirstOfPart(const mlx::core::array& logits, const mlx::core::array& highest,
                               std::span<const RowChoice> how, int first_token);
  // `places`: those of all parts side by side, in any order. What Choose gives of all logits.
  mlx::core::array ChooseAmong(const mlx::core::array& places, const mlx::core::array& highest,
                               std::span<const RowChoice> how) const;
  // int32 [rows]: `tokens`, or kNoToken where the row's highest logit is not finite; both [rows,
  // 1].
  mlx::core::array WhereFinite(const mlx::core::array& highest,
                               const mlx::core::array& tokens) const;

 private:
  using Array = mlx::core::array;
  struct Need;
  struct Parameters;
  static Need NeedOf(std::span<const RowChoice> rows, uint32_t vocabulary);
  // `in_order`: the number of places that are put in order.
  static Parameters ParametersOf(std::span<const RowChoice> rows, uint32_t vocabulary,
                                 uint32_t in_order, const Need& need);
  // All of these give [rows, 1]; highest, draw, scale are [rows, 1] too.
  Array Draw(const Array& logits, const Array& highest, std::span<const RowChoice> how);
  Array LastOf(const Array& places, const Array& weights, const Parameters& parameters,
               const Need& need) const;  // the last place that is kept of those in order
  Array TokenAt(const Array& weights, const Array& draw) const;  // the index
  Array TokenAmong(const Array& places, const Array& weights, const Array& draw) const;
  // As kernels::ShareOf.
  Array ShareOf(const Array& total, const Array& share) const;
  // uint64, of the shape of what they are made of. A place is a token's distance, then its id.
  Array DistancesOf(const Array& logits, const Array& highest, const Array& scale) const;
  Array WeightsOf(const Array& distances) const;
  Array PlacesOf(const Array& distances, int first_token);
  // The `count` first of each row, in order; behind all there are, some that weigh nothing.
  Array FirstPlaces(const Array& places, int count) const;

  // Made once, so that a step makes none of them on the host.
  struct Constants {
    Constants();
    Array fractions;  // weights of distances of less than one halving
    Array fraction_mask, fraction_bits, token_bits, half_bits, lower_half;
    Array last_token, zero, behind_all;
    Array farthest;  // float32
    Array no_token;  // int32
  };
  const Constants constants_;
  std::optional<Array> ids_;  // of all tokens
  int ids_end_ = 0;
};

}  // namespace macrame::runtime::engine
