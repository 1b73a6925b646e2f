#pragma once

// A GPU that MLX takes for one and that computes nothing. Graphs are built for it as for a Mac's
// GPU, fast operations whole; where MLX would have the GPU run an operation, the operation is
// counted and its result is zeros. So everything that looks at a result, be it too early, goes on,
// and is seen.
//
// What shares memory on a GPU shares it here: views are views, and an update writes to the array
// that it is given where MLX would let it, else it counts as a copy of that array. As with Metal,
// what an operation has read stays in use until its command buffer has run, here until the end of
// the evaluation: an update behind a read of the same array copies.
//
// One process has one; main thread only. Linux on x86-64.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mlx/mlx.h"

namespace macrame::gpu_graph {

// What the GPU was told to do since the last Reset.
struct DeviceWork {
  std::map<std::string, int> operations{};  // by the primitive's name
  int evaluations = 0;                      // times that the host waited for the GPU
  // Arrays that the host filled and the GPU read for the first time: a step's tokens, offsets,
  // masks, and constants that are made again for each step.
  int host_arrays = 0;
  uint64_t host_bytes = 0;
  // Of arrays that were named by WatchState: what was copied out of them by gathers, concatenations
  // and the like, and of themselves where an update could not write in place.
  uint64_t copied_bytes = 0;
  int expert_products = 0;         // gather_qmm, gather_mm
  int sorted_expert_products = 0;  // of those, whose rows are in the order of the experts

  int all() const;
  int work() const;      // without views
  int scatters() const;  // of any kind
};

// Makes it the default device. Once, before anything else is done with MLX; throws
// std::runtime_error with a sentence where this MLX can't be changed so, or does not take it.
void BeginStandInGpu();

void ResetWork();
const DeviceWork& WorkSoFar();
// These arrays keep what later steps read: copies out of them are counted.
void WatchState(const std::vector<mlx::core::array>& state);

}  // namespace macrame::gpu_graph
