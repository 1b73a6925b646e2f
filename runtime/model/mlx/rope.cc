#include "runtime/model/mlx/rope.h"

#include <algorithm>
#include <vector>

namespace macrame::runtime::engine {

namespace mx = mlx::core;

MlxRope::MlxRope(const RopeTraits& traits, int head_dim, int context_length) : traits_(traits) {
  const RopeTable table = MakeRopeTable(traits, context_length);
  position_scale_ = table.position_scale;
  if (!table.divisors.empty()) {
    divisors_ = mx::array(table.divisors.data(), {static_cast<int>(table.divisors.size())});
  }
  if (table.magnitude != 1.0F) {
    std::vector<float> each(static_cast<size_t>(head_dim), 1.0F);
    std::fill_n(each.begin(), traits.dims, table.magnitude);
    magnitudes_ = mx::array(each.data(), {head_dim});
  }
}

mx::array MlxRope::Turned(const mx::array& x, const mx::array& offsets, bool interleaved) const {
  return TurnedBy(position_scale_, x, offsets, interleaved);
}

mx::array MlxRope::TailTurned(const mx::array& x, const mx::array& offsets, bool back) const {
  const float scale = back ? -position_scale_ : position_scale_;
  const int dim = x.shape(-1);
  if (dim == traits_.dims) return TurnedBy(scale, x, offsets, traits_.interleaved);
  const std::vector<mx::array> parts = mx::split(x, mx::Shape{dim - traits_.dims}, -1);
  return mx::concatenate({parts[0], TurnedBy(scale, parts[1], offsets, traits_.interleaved)}, -1);
}

mx::array MlxRope::TurnedBy(float position_scale, const mx::array& x, const mx::array& offsets,
                            bool interleaved) const {
  const mx::array scaled =
      magnitudes_.has_value() ? mx::multiply(x, mx::astype(*magnitudes_, x.dtype())) : x;
  const auto base =
      divisors_.has_value() ? std::nullopt : std::optional(static_cast<float>(traits_.theta));
  return mx::fast::rope(scaled, traits_.dims, interleaved, base, position_scale, offsets,
                        divisors_);
}

}  // namespace macrame::runtime::engine
