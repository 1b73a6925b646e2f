#pragma once

// A cycle through all nodes of a graph. Pure.

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/backends.h"

namespace macrame::transport {

// adjacent[i][j]: nodes i and j are neighbours. Symmetric.
using Adjacency = std::vector<std::vector<bool>>;

// Steps after which a search gives up: enough to settle any graph of up to 12 nodes, and all that
// people cable beyond.
inline constexpr uint64_t kRingSearchStepsMax = 2'000'000;

// The first cycle in the order of the indices that begins at 0; unset when there is none or the
// search gave up. Two nodes are a ring of one cable; one node is none.
std::optional<std::vector<int>> FindRing(const Adjacency& adjacent);

bool IsComplete(const Adjacency& adjacent);
// How its cables join all nodes; of several, the first of mesh, ring, chain, star.
CableGraph GraphOf(const Adjacency& adjacent);

}  // namespace macrame::transport
