#pragma once

// Tokens from rows of logits of which each rank of a tensor split has a part. The ranks exchange
// what decides and each of them chooses, by whole numbers alone (row_chooser.h), so that all of
// them, of whatever device, have the same token; which is also the one that a rank alone would
// choose. Builds a graph: nothing is evaluated. Engine thread only.
//
// Where all rows are greedy, the ranks exchange the likeliest token of each part with its logit;
// where all are that or have a top-k of up to kFewTokens, the highest logit of each part and then
// the places of its likeliest tokens; else, the logits.

#include <span>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/model/cuts/tensor_cut.h"
#include "runtime/model/mlx/row_chooser.h"
#include "runtime/model/step/rank_sums.h"

namespace macrame::runtime::engine {

class PartChooser {
 public:
  // `parts`: of the vocabulary, one rank's behind the other's; `own`: this rank's number among
  // them. `sums` must live as long.
  PartChooser(std::vector<Range> parts, int own, RankSums& sums);

  // As RowChooser::Choose; `part`: float32 [rows, own part of the vocabulary]. Every rank calls it
  // for the same rows.
  mlx::core::array Choose(const mlx::core::array& part, std::span<const RowChoice> how);
  // [rows, vocabulary], on every rank, of parts as above.
  mlx::core::array Whole(const mlx::core::array& part);

 private:
  mlx::core::array ChooseLikeliest(const mlx::core::array& part);
  // The highest logit of each row in all parts, [rows, 1].
  mlx::core::array HighestOf(const mlx::core::array& part);
  // What every rank gives of the same rows, [rows, columns]: [rows, ranks, columns].
  mlx::core::array OfAll(const mlx::core::array& own);

  const std::vector<Range> parts_;
  const size_t own_;
  RankSums& sums_;
  RowChooser chooser_;
};

}  // namespace macrame::runtime::engine
