#include "runtime/model/mlx_kv_blocks.h"

#include "proto/check.h"
#include "runtime/model/slot_tables.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

constexpr int kTokens = int{kBlockTokens};

// Where positions [begin, end) of a sequence lie in a pool.
mx::array RowsOf(std::span<const int32_t> table, int begin, int end) {
  std::vector<int32_t> rows;
  rows.reserve(static_cast<size_t>(end - begin));
  for (int position = begin; position < end; ++position) {
    rows.push_back(table[static_cast<size_t>(position / kTokens)] * kTokens + position % kTokens);
  }
  return mx::array(rows.data(), {static_cast<int>(rows.size())}, mx::int32);
}

}  // namespace

MlxKvBlocks::MlxKvBlocks(int layers, int blocks_total)
    : layers_(static_cast<size_t>(layers)), blocks_total_(blocks_total) {}

MlxKvBlocks::View MlxKvBlocks::Append(int layer, std::span<const int32_t> table, int begin,
                                      const mx::array& keys, const mx::array& values) {
  Layer& entry = layers_[static_cast<size_t>(layer)];
  const int heads = keys.shape(1), count = keys.shape(2), width = keys.shape(3);
  const int end = begin + count;
  MACRAME_CHECK(static_cast<size_t>(BlocksFor(end)) <= table.size())
      << end << " positions in " << table.size() << " blocks";
  const mx::array written = RowsOf(table, begin, end), seen = RowsOf(table, 0, end);
  const auto write = [&](std::optional<mx::array>& pool, const mx::array& update) {
    if (!pool.has_value()) {
      pool = mx::zeros({blocks_total_ * kTokens, heads, width}, update.dtype());
    }
    // [1, heads, count, width] -> one row of the pool a position.
    const mx::array rows =
        mx::reshape(mx::transpose(update, {0, 2, 1, 3}), {count, 1, heads, width});
    pool = mx::scatter(*pool, std::vector<mx::array>{written}, rows, std::vector<int>{0});
    return mx::transpose(mx::reshape(mx::take(*pool, seen, 0), {1, end, heads, width}),
                         {0, 2, 1, 3});
  };
  mx::array all_keys = write(entry.keys, keys);
  mx::array all_values = write(entry.values, values);
  return {std::move(all_keys), std::move(all_values)};
}

void MlxKvBlocks::AppendPools(std::vector<mx::array>& out) const {
  for (const Layer& layer : layers_) {
    if (layer.keys.has_value()) out.push_back(*layer.keys);
    if (layer.values.has_value()) out.push_back(*layer.values);
  }
}

}  // namespace macrame::runtime::engine
