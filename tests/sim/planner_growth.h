#pragma once

// Clusters that grow, fail and fill up, with the planner in the loop: each round nodes come, die
// and return, deployments come and go, and everything is placed again on what is left.

#include <cstdint>
#include <string>

namespace macrame::tests {

struct GrowthOptions {
  uint64_t seed = 0;
  uint32_t nodes = 100;
  uint32_t deployments = 30;
  uint32_t rounds = 20;
};

struct GrowthReport {
  std::string fault;   // the first rule that was broken; empty: none
  uint32_t plans = 0;  // deployments placed, over all rounds
  uint32_t refused = 0;
  uint32_t moved = 0;               // that ran and went elsewhere
  uint32_t moved_without_need = 0;  // although all their nodes were there
  double slowest_round_ms = 0;
  double median_round_ms = 0;
};

GrowthReport Grow(const GrowthOptions& options);

}  // namespace macrame::tests
