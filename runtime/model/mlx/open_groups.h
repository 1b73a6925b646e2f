#pragma once

// What layers that pool groups of positions keep of each sequence's last ones (cpu/open_groups.h),
// as MLX arrays: of a position what it gives to its group. A sequence's numbers are replaced, never
// written into. Engine thread only.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "mlx/mlx.h"
#include "runtime/model/step/forward_step.h"
#include "runtime/model/step/open_positions.h"

namespace macrame::runtime::engine {

class MlxOpenGroups {
 public:
  // `layers`: of this rank that pool.
  explicit MlxOpenGroups(size_t layers) : layers_(layers) {}

  // As OpenPositions has it.
  absl::Status Check(const ForwardStep& step) const;
  void Apply(const ForwardStep& step);

  // Of the positions [begin, end) of a slot, [end - begin, width]: a few that are kept.
  mlx::core::array Kept(uint32_t slot, size_t layer, int begin, int end) const;
  // `rows` [count, width]: of the positions from `begin` on.
  void Keep(uint32_t slot, size_t layer, int begin, const mlx::core::array& rows);
  // To be evaluated with a step's results.
  void Append(std::vector<mlx::core::array>& out) const;

 private:
  struct Numbers {
    int begin = 0;  // position of the first
    mlx::core::array each;
  };
  const size_t layers_;
  OpenPositions positions_;
  std::map<uint32_t, std::vector<std::optional<Numbers>>> slots_;  // by layer
};

}  // namespace macrame::runtime::engine
