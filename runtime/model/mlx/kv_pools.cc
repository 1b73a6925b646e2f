#include "runtime/model/mlx/kv_pools.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "mlx/allocator.h"
#include "proto/check.h"
#include "runtime/model/step/forward_step.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

constexpr int kTokens = int{kBlockTokens};
constexpr int kPositions = 2;  // the dimension of a pool that counts positions

mx::array Allocated(mx::Shape shape, mx::Dtype type) {
  size_t numbers = 1;
  for (const int size : shape) numbers *= static_cast<size_t>(size);
  return mx::array(mx::allocator::malloc(numbers * mx::size_of(type)), std::move(shape), type);
}

// The pool's memory in an array that nothing else holds. `pool` is not to be read any more.
mx::array TakenOver(mx::array& pool) {
  if (pool.status() == mx::array::Status::unscheduled) return std::move(pool);
  return mx::array(mx::allocator::Data(std::move(*pool.data_shared_ptr())), pool.shape(),
                   pool.dtype());
}

mx::array Updated(mx::array& pool, const mx::array& rows, int first) {
  mx::Shape end = pool.shape();
  end[kPositions] = first + rows.shape(kPositions);
  return mx::slice_update(TakenOver(pool), rows, {0, 0, first, 0}, std::move(end));
}

// Positions [begin, end).
mx::array PartOf(const mx::array& pool, int begin, int end) {
  mx::Shape until = pool.shape();
  until[kPositions] = end;
  return mx::slice(pool, {0, 0, begin, 0}, std::move(until));
}

size_t BlockBytesOf(const mx::array& pool) {
  return pool.nbytes() / static_cast<size_t>(pool.shape(kPositions)) * kTokens;
}

}  // namespace

KvPools::KvPools(int entries, int blocks_total)
    : blocks_total_(blocks_total), pools_(2 * static_cast<size_t>(entries)) {}

mx::array& KvPools::PoolOf(int entry, KvSide side, const mx::array& rows) {
  auto& pool = pools_[2 * static_cast<size_t>(entry) + static_cast<size_t>(side)];
  if (!pool.has_value()) {
    pool = Allocated({1, rows.shape(1), blocks_total_ * kTokens, rows.shape(3)}, rows.dtype());
  }
  return *pool;
}

mx::array KvPools::Write(int entry, KvSide side, const mx::array& rows, const KvRows& where) {
  mx::array& pool = PoolOf(entry, side, rows);
  if (where.first.has_value()) {
    pool = Updated(pool, rows, *where.first);
  } else {
    const mx::array by_row = rows.shape(0) == 1 ? mx::swapaxes(rows, 0, 2) : rows;
    const mx::array each =
        mx::reshape(by_row, {by_row.shape(0), 1, rows.shape(1), 1, rows.shape(3)});
    pool = mx::scatter(TakenOver(pool), std::vector<mx::array>{*where.each}, each,
                       std::vector<int>{kPositions});
  }
  return pool;
}

void KvPools::Copy(std::span<const BlockCopy> copies) {
  for (size_t i = 0; i < copies.size();) {
    size_t end = i + 1;  // blocks that follow one another go together
    while (end < copies.size() && copies[end].from == copies[end - 1].from + 1 &&
           copies[end].to == copies[end - 1].to + 1) {
      ++end;
    }
    const int count = static_cast<int>(end - i) * kTokens, from = copies[i].from * kTokens;
    std::vector<mx::array> contents;
    for (const auto& pool : pools_) {
      if (pool.has_value()) contents.push_back(mx::contiguous(PartOf(*pool, from, from + count)));
    }
    mx::async_eval(contents);  // before the pools are taken over
    auto content = contents.begin();
    for (auto& pool : pools_) {
      if (pool.has_value()) pool = Updated(*pool, *content++, copies[i].to * kTokens);
    }
    i = end;
  }
}

void KvPools::AppendPools(std::vector<mx::array>& out) const {
  for (const auto& pool : pools_) {
    if (pool.has_value()) out.push_back(*pool);
  }
}

std::vector<const mx::array*> KvPools::Pools() const {
  std::vector<const mx::array*> pools;
  for (size_t i = 0; i < pools_.size(); ++i) {
    MACRAME_CHECK(i % 2 == 1 || pools_[i].has_value()) << "no step has run yet";
    if (pools_[i].has_value()) pools.push_back(&*pools_[i]);
  }
  return pools;
}

size_t KvPools::block_bytes() const {
  size_t bytes = 0;
  for (const mx::array* pool : Pools()) bytes += BlockBytesOf(*pool);
  return bytes;
}

void KvPools::Read(int32_t block, std::span<std::byte> out) const {
  std::vector<mx::array> parts;
  for (const mx::array* pool : Pools()) {
    parts.push_back(mx::contiguous(PartOf(*pool, block * kTokens, (block + 1) * kTokens)));
  }
  mx::eval(parts);
  size_t at = 0;
  for (const mx::array& part : parts) {
    MACRAME_CHECK(at + part.nbytes() <= out.size()) << out.size() << " bytes of a block";
    std::memcpy(out.data() + at, part.data<std::byte>(), part.nbytes());
    at += part.nbytes();
  }
  MACRAME_CHECK(at == out.size()) << out.size() << " bytes for a block of " << at;
}

void KvPools::Write(int32_t block, std::span<const std::byte> bytes) {
  MACRAME_CHECK(bytes.size() == block_bytes()) << bytes.size() << " bytes of a block";
  size_t at = 0;
  std::vector<mx::array> written;
  for (auto& pool : pools_) {
    if (!pool.has_value()) continue;
    mx::array content = Allocated({1, pool->shape(1), kTokens, pool->shape(3)}, pool->dtype());
    std::memcpy(content.data<std::byte>(), bytes.data() + at, content.nbytes());
    at += content.nbytes();
    pool = Updated(*pool, content, block * kTokens);
    written.push_back(*pool);
  }
  mx::eval(written);
}

std::string KvPools::layout() const {
  const std::vector<const mx::array*> pools = Pools();
  const mx::Dtype type = pools.front()->dtype();
  std::string text =
      absl::StrCat("by head, type ", static_cast<int>(mx::kindof(type)), ".", mx::size_of(type));
  const mx::array* before = nullptr;
  for (const mx::array* pool : pools) {
    const bool is_same = before != nullptr && before->shape() == pool->shape();
    before = pool;
    if (!is_same) absl::StrAppend(&text, ", ", pool->shape(1), " x ", pool->shape(3));
  }
  return text;
}

}  // namespace macrame::runtime::engine
