#pragma once

// What a graph consists of, before it is evaluated.

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "mlx/mlx.h"
#include "mlx/primitives.h"

namespace macrame::runtime::engine {

struct GraphNodes {
  size_t all = 0;
  size_t computing = 0;  // without those that are, or may be, another view of their input
};

// The primitives that lead to these arrays, but not beyond arrays in `seen`, which they join; one
// with several outputs counts once.
inline GraphNodes CountNodes(std::vector<mlx::core::array> from,
                             std::unordered_set<std::uintptr_t>& seen) {
  static const std::set<std::string> kViews = {
      "AsStrided", "Broadcast",  "BroadcastAxes", "Contiguous", "Copy",
      "Depends",   "ExpandDims", "Flatten",       "Full",       "Reshape",
      "Slice",     "Split",      "Squeeze",       "Transpose",  "Unflatten"};
  GraphNodes nodes;
  while (!from.empty()) {
    const mlx::core::array array = from.back();
    from.pop_back();
    // By arrays: what mx::compile has built shares primitives between its uses.
    if (!array.has_primitive() || !seen.insert(array.id()).second) continue;
    for (const mlx::core::array& sibling : array.siblings()) seen.insert(sibling.id());
    ++nodes.all;
    if (!kViews.contains(array.primitive().name())) ++nodes.computing;
    from.insert(from.end(), array.inputs().begin(), array.inputs().end());
  }
  return nodes;
}

}  // namespace macrame::runtime::engine
