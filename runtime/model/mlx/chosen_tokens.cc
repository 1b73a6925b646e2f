#include "runtime/model/mlx/chosen_tokens.h"

#include <vector>

#include "proto/check.h"
#include "runtime/model/step/forward_step.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

mx::array TokensOf(std::span<const int32_t> tokens, const mx::array& chosen) {
  const auto count = static_cast<int>(tokens.size());
  // Ids, and behind them where each token stands in these ids with `chosen` behind them.
  std::vector<int32_t> both(tokens.begin(), tokens.end());
  bool is_all = count == chosen.shape(0);
  for (int i = 0; i < count; ++i) {
    const int32_t token = tokens[static_cast<size_t>(i)];
    const bool is_row = IsChosenRow(token);
    const int32_t row = is_row ? ChosenRowOf(token) : 0;
    MACRAME_CHECK(row < chosen.shape(0) || !is_row)
        << "row " << row << " of " << chosen.shape(0) << " that were chosen";
    is_all = is_all && is_row && row == i;
    if (is_row) both[static_cast<size_t>(i)] = 0;
    both.push_back(is_row ? count + row : i);
  }
  if (is_all) return chosen;
  const mx::array host(both.data(), {2 * count}, mx::int32);
  const mx::array ids = mx::concatenate({mx::slice(host, {0}, {count}), chosen});
  return mx::take(ids, mx::slice(host, {count}, {2 * count}), 0);
}

}  // namespace macrame::runtime::engine
