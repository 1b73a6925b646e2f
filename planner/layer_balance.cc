#include "planner/layer_balance.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace macrame::planner {
namespace {

constexpr double kUnreached = std::numeric_limits<double>::infinity();

struct Burden {
  double worst = kUnreached;
  double squares = kUnreached;
  uint32_t begin = 0;  // of the last range
};
using Burdens = std::vector<std::vector<Burden>>;  // [stage][end]

// The least of each stage and end: of the worst burdens or, `by_squares`, of the sums of squares.
// Empty: from some stage on nothing fits.
Burdens LeastBurdens(uint32_t stages, uint32_t layers, const StageBurden& burden, double limit,
                     bool by_squares) {
  Burdens best(stages, std::vector<Burden>(layers + 1));
  for (uint32_t stage = 0; stage < stages; ++stage) {
    const auto reached = [&](const Burden& burden_before) { return burden_before.worst <= limit; };
    if (stage > 0 && std::none_of(best[stage - 1].begin(), best[stage - 1].end(), reached))
      return {};
    const bool last = stage + 1 == stages;
    for (uint32_t end = last ? layers : stage + 1; end + (stages - stage - 1) <= layers; ++end) {
      // From the shortest range to the longest, which only weighs more.
      for (uint32_t begin = end; begin-- > stage;) {
        if (stage == 0) begin = 0;
        if (stage > 0 && !(best[stage - 1][begin].worst <= limit)) continue;
        const double here = burden(stage, begin, end);
        if (here > limit) break;
        const Burden before = stage == 0 ? Burden{0, 0, 0} : best[stage - 1][begin];
        const Burden sum{std::max(before.worst, here), before.squares + here * here, begin};
        Burden& least = best[stage][end];
        if (by_squares ? sum.squares < least.squares : sum.worst < least.worst) least = sum;
      }
    }
  }
  return best;
}

}  // namespace

std::optional<std::vector<uint32_t>> BalanceLayers(uint32_t stages, uint32_t layers,
                                                   const StageBurden& burden, double limit) {
  if (stages == 0 || stages > layers) return {};
  Burdens best = LeastBurdens(stages, layers, burden, limit, /*by_squares=*/false);
  if (best.empty() || !(best[stages - 1][layers].worst <= limit)) return {};
  // Of those that are as good: a beginning that is worse than another may still go with less.
  const double worst = best[stages - 1][layers].worst;
  best = LeastBurdens(stages, layers, burden, worst, /*by_squares=*/true);
  std::vector<uint32_t> ends(stages);
  uint32_t end = layers;
  for (uint32_t stage = stages; stage-- > 0;) {
    ends[stage] = end;
    end = best[stage][end].begin;
  }
  return ends;
}

}  // namespace macrame::planner
