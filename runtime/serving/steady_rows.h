#pragma once

// How many tokens of a sequence may run in one step with the bits that they have one by one.
//
// Our CPU kernels promise it for any number (LayerStack::bits_are_fixed). MLX chooses its kernels
// by the number of rows, and these add in different orders: there it is measured, on the device and
// with the weights that serve. Drafts of up to so many rows change no text.

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/serving/forward_engine.h"

namespace macrame::runtime::engine {

// More are not tried: above it MLX attends with another kernel on a GPU
// (mlx/backend/metal/scaled_dot_product_attention.cpp, query_sequence_length > 8).
inline constexpr uint32_t kSteadyRowsMax = 8;

// Runs the same tokens one by one and k at a time, k up to kSteadyRowsMax, behind a short prompt
// and, where the cache has room for it, behind one that attention reads in several parts. Gives the
// largest k for which all logits have the same bits, as those of all smaller ones; 1: not even two.
// Some 30 steps. Rank 0, while nothing else runs; uses slot 0 and the first blocks. The model must
// have a head and no recurrent layers.
absl::StatusOr<uint32_t> MeasureSteadyRows(ForwardEngine& engine);

}  // namespace macrame::runtime::engine
