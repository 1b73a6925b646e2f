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
constexpr size_t kParts = 3;   // numbers, scales, biases

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

mx::array Written(mx::array& pool, const mx::array& rows, const KvRows& where) {
  if (where.first.has_value()) return Updated(pool, rows, *where.first);
  const mx::array by_row = rows.shape(0) == 1 ? mx::swapaxes(rows, 0, 2) : rows;
  const mx::array each = mx::reshape(by_row, {by_row.shape(0), 1, rows.shape(1), 1, rows.shape(3)});
  return mx::scatter(TakenOver(pool), std::vector<mx::array>{*where.each}, each,
                     std::vector<int>{kPositions});
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

// Blocks that follow one another: the first one's number, and where it stands in a list.
struct BlockRun {
  int32_t first = 0;
  int count = 0;
  size_t at = 0;
  int begin() const { return first * kTokens; }
  int end() const { return (first + count) * kTokens; }
};

std::vector<BlockRun> RunsOf(std::span<const int32_t> blocks) {
  std::vector<BlockRun> runs;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const bool goes_on = i > 0 && blocks[i] == blocks[i - 1] + 1;
    if (!goes_on) runs.push_back({blocks[i], 0, i});
    ++runs.back().count;
  }
  return runs;
}

// Of a run's part of a pool, [1, heads, positions, width], and its blocks' bytes in that pool, each
// by head: where each head of each block stands in both. `use`: the block's place in the list, the
// offsets in its bytes and in the part, and the size.
template <typename Use>
void ForEachPiece(const mx::array& part, const BlockRun& run, size_t block_bytes, const Use& use) {
  const auto heads = static_cast<size_t>(part.shape(1)), count = static_cast<size_t>(run.count);
  const size_t piece = block_bytes / heads;
  for (size_t i = 0; i < count; ++i) {
    for (size_t head = 0; head < heads; ++head) {
      use(run.at + i, head * piece, (head * count + i) * piece, piece);
    }
  }
}

}  // namespace

int KvGroupOf(int width) {
  for (const int group : {64, 32}) {
    if (width % group == 0) return group;
  }
  return 0;
}

mx::array KvRowsKept::Whole() const {
  return bits == 0 ? numbers : mx::dequantize(numbers, *scales, biases, group, bits);
}

KvRowsKept KvRowsKept::Behind(const mx::array& x) const {
  if (bits == 0) return *this;
  const std::vector<mx::array> parts = mx::depends({numbers, *scales, *biases}, {x});
  return {parts[0], parts[1], parts[2], group, bits};
}

KvPools::KvPools(int entries, int blocks_total, int bits)
    : blocks_total_(blocks_total), bits_(bits), pools_(2 * kParts * static_cast<size_t>(entries)) {}

std::span<std::optional<mx::array>> KvPools::PoolsOf(int entry, KvSide side,
                                                     std::span<const mx::array> parts,
                                                     const mx::array& rows) {
  const size_t first = (2 * static_cast<size_t>(entry) + static_cast<size_t>(side)) * kParts;
  const std::span own(pools_.data() + first, parts.size());
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i].has_value()) continue;
    const mx::array& part = parts[i];
    own[i] = Allocated({1, rows.shape(1), blocks_total_ * kTokens, part.shape(3)}, part.dtype());
  }
  return own;
}

std::vector<mx::array> KvPools::PartsOf(const mx::array& rows) const {
  const int group = bits_ == 0 ? 0 : KvGroupOf(rows.shape(3));
  if (group == 0) return {rows};
  return mx::quantize(rows, group, bits_);
}

KvRowsKept KvPools::KeptIn(std::span<const std::optional<mx::array>> own, int width) const {
  if (own.size() == 1) return {*own[0]};
  return {*own[0], own[1], own[2], KvGroupOf(width), bits_};
}

KvRowsKept KvPools::Write(int entry, KvSide side, const mx::array& rows, const KvRows& where) {
  const std::vector<mx::array> parts = PartsOf(rows);
  const auto own = PoolsOf(entry, side, parts, rows);
  for (size_t i = 0; i < own.size(); ++i) own[i] = Written(*own[i], parts[i], where);
  return KeptIn(own, rows.shape(3));
}

KvRowsKept KvPools::Unwritten(int entry, KvSide side, int heads, int width, mx::Dtype type) {
  const mx::array row = mx::zeros({1, heads, 1, width}, type);  // as a pool's are
  return KeptIn(PoolsOf(entry, side, PartsOf(row), row), width);
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
      // By a gather: mx::contiguous shares the buffer of a small pool, which is taken over below.
      const mx::array places = mx::arange(from, from + count);
      if (pool.has_value()) contents.push_back(mx::take(*pool, places, kPositions));
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
    MACRAME_CHECK(i % (2 * kParts) != 0 || pools_[i].has_value()) << "no step has run yet";
    if (pools_[i].has_value()) pools.push_back(&*pools_[i]);
  }
  return pools;
}

size_t KvPools::block_bytes() const {
  size_t bytes = 0;
  for (const mx::array* pool : Pools()) bytes += BlockBytesOf(*pool);
  return bytes;
}

void KvPools::Read(std::span<const int32_t> blocks,
                   std::span<const std::span<std::byte>> out) const {
  const std::vector<BlockRun> runs = RunsOf(blocks);
  std::vector<mx::array> parts;
  for (const mx::array* pool : Pools()) {
    for (const BlockRun& run : runs) {
      parts.push_back(mx::contiguous(PartOf(*pool, run.begin(), run.end())));
    }
  }
  mx::eval(parts);
  size_t at = 0, next = 0;
  for (const mx::array* pool : Pools()) {
    const size_t bytes = BlockBytesOf(*pool);
    for (const BlockRun& run : runs) {
      const mx::array& part = parts[next++];
      ForEachPiece(
          part, run, bytes, [&](size_t block, size_t in_block, size_t in_part, size_t size) {
            MACRAME_CHECK(at + bytes <= out[block].size())
                << out[block].size() << " bytes of a block";
            std::memcpy(out[block].data() + at + in_block, part.data<std::byte>() + in_part, size);
          });
    }
    at += bytes;
  }
  MACRAME_CHECK(at == block_bytes()) << at << " bytes of a block of " << block_bytes();
}

void KvPools::Write(std::span<const int32_t> blocks,
                    std::span<const std::span<const std::byte>> bytes) {
  const size_t whole = block_bytes();
  for (const auto& each : bytes) {
    MACRAME_CHECK(each.size() == whole) << each.size() << " bytes of a block of " << whole;
  }
  const std::vector<BlockRun> runs = RunsOf(blocks);
  size_t at = 0;
  std::vector<mx::array> written;
  for (auto& pool : pools_) {
    if (!pool.has_value()) continue;
    const size_t of_block = BlockBytesOf(*pool);
    for (const BlockRun& run : runs) {
      mx::array part =
          Allocated({1, pool->shape(1), run.count * kTokens, pool->shape(3)}, pool->dtype());
      ForEachPiece(part, run, of_block,
                   [&](size_t block, size_t in_block, size_t in_part, size_t size) {
                     std::memcpy(part.data<std::byte>() + in_part,
                                 bytes[block].data() + at + in_block, size);
                   });
      pool = Updated(*pool, part, run.begin());
    }
    at += of_block;
    written.push_back(*pool);
  }
  mx::eval(written);
}

std::string KvPools::layout() const {
  const std::vector<const mx::array*> pools = Pools();
  const mx::Dtype type = pools.front()->dtype();
  std::string text =
      absl::StrCat("by head, type ", static_cast<int>(mx::kindof(type)), ".", mx::size_of(type));
  if (bits_ > 0) absl::StrAppend(&text, ", ", bits_, " bits");
  const mx::array* before = nullptr;
  for (const mx::array* pool : pools) {
    const bool is_same = before != nullptr && before->shape() == pool->shape();
    before = pool;
    if (!is_same) absl::StrAppend(&text, ", ", pool->shape(1), " x ", pool->shape(3));
  }
  return text;
}

}  // namespace macrame::runtime::engine
