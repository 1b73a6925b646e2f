#pragma once

// Contiguous layer ranges for stages in a given order, such that the most burdened stage is the
// least burdened it can be, and among equals the sum of squared burdens the least.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace macrame::planner {

// What layers [begin, end) are to a stage; above `limit`: they don't fit. Must not fall when the
// range grows.
using StageBurden = std::function<double(uint32_t stage, uint32_t begin, uint32_t end)>;

// Where each stage ends; every stage gets at least one layer. Nothing when they can't all fit.
std::optional<std::vector<uint32_t>> BalanceLayers(uint32_t stages, uint32_t layers,
                                                   const StageBurden& burden, double limit);

}  // namespace macrame::planner
