#include "runtime/model/mlx/narrow_attention.h"

#include <limits>
#include <string_view>

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

mx::array Product(const mx::array& x, const KvRowsKept& kept, bool transpose) {
  return mx::quantized_matmul(x, kept.numbers, *kept.scales, kept.biases, transpose, kept.group,
                              kept.bits);
}

// For all heads that share them.
KvRowsKept ByHead(const KvRowsKept& kept) {
  return {mx::expand_dims(kept.numbers, 2), mx::expand_dims(*kept.scales, 2),
          mx::expand_dims(*kept.biases, 2), kept.group, kept.bits};
}

// Which of `positions` each of `rows` sees, the last one all of them; unset: every row does.
std::optional<mx::array> MaskOf(const StepRows::Sight& sight, int rows, int positions) {
  if (sight.mask.has_value()) return sight.mask;
  if (std::string_view(sight.mode) != "causal" || rows == 1) return std::nullopt;
  const mx::array last = mx::arange(positions - rows, positions);
  return mx::less_equal(mx::arange(0, positions), mx::expand_dims(last, 1));
}

}  // namespace

// All heads that share keys stand as rows of one product with them, which reads them once.
mx::array AttendNarrow(const mx::array& queries, const KvRowsKept& keys, const KvRowsKept& values,
                       const StepRows::Sight& sight, const std::optional<mx::array>& sinks) {
  const int heads = queries.shape(1), rows = queries.shape(2), dim = queries.shape(3);
  const int kv_heads = keys.numbers.shape(1), positions = keys.numbers.shape(2);
  const int each = heads / kv_heads;
  const mx::array products =
      Product(mx::reshape(queries, {1, kv_heads, each * rows, dim}), keys, /*transpose=*/true);
  mx::array scores = mx::reshape(products, {1, kv_heads, each, rows, positions});
  if (const auto mask = MaskOf(sight, rows, positions)) {
    const mx::array lowest(-std::numeric_limits<float>::infinity(), scores.dtype());
    scores = mx::where(*mask, scores, lowest);
  }
  if (sinks.has_value()) {
    const mx::array own =
        mx::broadcast_to(mx::reshape(mx::astype(*sinks, scores.dtype()), {1, kv_heads, each, 1, 1}),
                         {1, kv_heads, each, rows, 1});
    const mx::array with = mx::softmax(mx::concatenate({scores, own}, -1), -1, /*precise=*/true);
    scores = mx::slice(with, {0, 0, 0, 0, 0}, {1, kv_heads, each, rows, positions});
  } else {
    scores = mx::softmax(scores, -1, /*precise=*/true);
  }
  // Each head's rows by themselves, as mlx-lm has them: a GPU then cuts the positions in parts.
  const mx::array given = Product(scores, ByHead(values), /*transpose=*/false);
  return mx::reshape(given, {1, heads, rows, given.shape(4)});
}

}  // namespace macrame::runtime::engine
