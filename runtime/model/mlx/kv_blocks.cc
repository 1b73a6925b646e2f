#include "runtime/model/mlx/kv_blocks.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "mlx/allocator.h"
#include "proto/check.h"
#include "runtime/model/step/slot_tables.h"

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

mx::array MlxKvBlocks::AppendTo(std::optional<mx::array>& pool, std::span<const int32_t> table,
                                int begin, const mx::array& update) const {
  const int heads = update.shape(1), count = update.shape(2), width = update.shape(3);
  const int end = begin + count;
  MACRAME_CHECK(static_cast<size_t>(BlocksFor(end)) <= table.size())
      << end << " positions in " << table.size() << " blocks";
  const mx::array written = RowsOf(table, begin, end), seen = RowsOf(table, 0, end);
  if (!pool.has_value()) {
    pool = mx::zeros({blocks_total_ * kTokens, heads, width}, update.dtype());
  }
  // [1, heads, count, width] -> one row of the pool a position.
  const mx::array rows = mx::reshape(mx::transpose(update, {0, 2, 1, 3}), {count, 1, heads, width});
  pool = mx::scatter(*pool, std::vector<mx::array>{written}, rows, std::vector<int>{0});
  return mx::transpose(mx::reshape(mx::take(*pool, seen, 0), {1, end, heads, width}), {0, 2, 1, 3});
}

MlxKvBlocks::View MlxKvBlocks::Append(int layer, std::span<const int32_t> table, int begin,
                                      const mx::array& keys, const mx::array& values) {
  Layer& entry = layers_[static_cast<size_t>(layer)];
  mx::array all_keys = AppendTo(entry.keys, table, begin, keys);
  mx::array all_values = AppendTo(entry.values, table, begin, values);
  return {std::move(all_keys), std::move(all_values)};
}

mx::array MlxKvBlocks::AppendKeys(int layer, std::span<const int32_t> table, int begin,
                                  const mx::array& keys) {
  return AppendTo(layers_[static_cast<size_t>(layer)].keys, table, begin, keys);
}

mx::array MlxKvBlocks::AppendIndex(int layer, std::span<const int32_t> table, int begin,
                                   const mx::array& keys) {
  return AppendTo(layers_[static_cast<size_t>(layer)].values, table, begin, keys);
}

void MlxKvBlocks::AppendPools(std::vector<mx::array>& out) const {
  for (const Layer& layer : layers_) {
    if (layer.keys.has_value()) out.push_back(*layer.keys);
    if (layer.values.has_value()) out.push_back(*layer.values);
  }
}

std::vector<mx::array> MlxKvBlocks::Pools() const {
  std::vector<mx::array> pools;
  AppendPools(pools);
  for (const Layer& layer : layers_) {
    MACRAME_CHECK(layer.keys.has_value()) << "no step has run yet";
  }
  return pools;
}

size_t MlxKvBlocks::block_bytes() const {
  size_t bytes = 0;
  for (const mx::array& pool : Pools()) bytes += pool.nbytes() / static_cast<size_t>(blocks_total_);
  return bytes;
}

void MlxKvBlocks::Read(int32_t block, std::span<std::byte> out) const {
  std::vector<mx::array> rows;
  for (const mx::array& pool : Pools()) {
    rows.push_back(mx::contiguous(mx::slice(
        pool, {block * kTokens, 0, 0}, {(block + 1) * kTokens, pool.shape(1), pool.shape(2)})));
  }
  mx::eval(rows);
  size_t at = 0;
  for (const mx::array& piece : rows) {
    MACRAME_CHECK(at + piece.nbytes() <= out.size()) << out.size() << " bytes of a block";
    std::memcpy(out.data() + at, piece.data<std::byte>(), piece.nbytes());
    at += piece.nbytes();
  }
  MACRAME_CHECK(at == out.size()) << out.size() << " bytes for a block of " << at;
}

void MlxKvBlocks::Write(int32_t block, std::span<const std::byte> bytes) {
  MACRAME_CHECK(bytes.size() == block_bytes()) << bytes.size() << " bytes of a block";
  size_t at = 0;
  const auto write = [&](std::optional<mx::array>& pool) {
    const mx::Shape shape{kTokens, pool->shape(1), pool->shape(2)};
    const size_t size = pool->nbytes() / static_cast<size_t>(blocks_total_);
    mx::array rows(mx::allocator::malloc(size), shape, pool->dtype());
    std::memcpy(rows.data<std::byte>(), bytes.data() + at, size);
    at += size;
    const mx::Shape begin{block * kTokens, 0, 0};
    const mx::Shape end{(block + 1) * kTokens, shape[1], shape[2]};
    pool = mx::slice_update(*pool, rows, begin, end);
  };
  for (Layer& layer : layers_) {
    write(layer.keys);
    if (layer.values.has_value()) write(layer.values);
  }
  mx::eval(Pools());
}

std::string MlxKvBlocks::layout() const {
  const std::vector<mx::array> pools = Pools();
  const mx::Dtype type = pools.front().dtype();
  std::string text =
      absl::StrCat("type ", static_cast<int>(mx::kindof(type)), ".", mx::size_of(type));
  const mx::array* before = nullptr;
  for (const Layer& layer : layers_) {
    const bool is_same = before != nullptr && before->shape() == layer.keys->shape();
    before = &*layer.keys;
    if (!is_same) absl::StrAppend(&text, ", ", before->shape(1), " x ", before->shape(2));
  }
  return text;
}

}  // namespace macrame::runtime::engine
