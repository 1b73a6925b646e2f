#pragma once

// What attention needs of a step, made once and shared by all layers: positions, where keys and
// values go, which of them each sequence sees, masks of windows. Engine thread only.
//
// Queries, keys and values are laid out so that one rotary form and one write serve all sequences:
// [1, heads, rows, dim] of a step of one sequence, [rows, heads, 1, dim] of several. Attention then
// runs by sequence, over views of the pools.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/model/mlx/kv_pools.h"
#include "runtime/model/step/forward_step.h"
#include "runtime/model/step/slot_tables.h"

namespace macrame::runtime::engine {

class StepRows {
 public:
  // A segment of the step.
  struct Sequence {
    size_t number = 0;
    uint32_t slot = 0;
    int row = 0;  // of the step's rows, its first
    int begin = 0;
    int count = 0;
    int end() const { return begin + count; }
    // Where its positions follow one another in the pools, the first one's place; else
    std::optional<int> first{};
    // int32 [end]: each one's, for a gather.
    std::optional<mlx::core::array> each{};
    std::span<const int32_t> table{};  // of its blocks
  };

  StepRows(const ForwardStep& step, const SlotTables& tables);

  int rows() const { return rows_; }
  const std::vector<Sequence>& sequences() const { return sequences_; }
  const KvRows& written() const { return written_; }

  // Of x [rows, heads x dim] or [rows, heads, dim], as rotary forms, writes and attention take it.
  mlx::core::array Laid(const mlx::core::array& x, int heads, int dim) const;
  // Back to [rows, heads x dim].
  mlx::core::array Flat(const mlx::core::array& laid) const;
  // Of each sequence, [1, heads, count, dim].
  std::vector<mlx::core::array> Each(const mlx::core::array& laid) const;
  // What all sequences give, [1, heads, count, dim] each, laid out.
  mlx::core::array Together(const std::vector<mlx::core::array>& given) const;
  // The same as [rows, heads x dim].
  mlx::core::array Joined(const std::vector<mlx::core::array>& given) const {
    return Flat(Together(given));
  }

  // int32 positions for mx::fast::rope over what is laid out.
  const mlx::core::array& offsets() const { return offsets_; }

  // Positions [from, end) of a pool that a sequence sees, [1, heads, end - from, width]: a view
  // where they follow one another.
  mlx::core::array Seen(const KvRowsKept& pool, const Sequence& sequence, int from = 0) const {
    return SeenAsKept(pool, sequence, from).Whole();
  }
  // Of each whole group of `size` positions the last one's, [1, heads, groups, width].
  mlx::core::array LastOfGroups(const KvRowsKept& pool, const Sequence& sequence, int size) const;
  // Of some of them, int32 [count] numbers of groups: [1, heads, count, width].
  mlx::core::array LastOfSome(const KvRowsKept& pool, const Sequence& sequence, int size,
                              const mlx::core::array& groups) const;
  // Where a position of a sequence stands in the pools.
  static int PlaceOf(const Sequence& sequence, int position);
  // The same as Seen, narrow where the pool is.
  KvRowsKept SeenAsKept(const KvRowsKept& pool, const Sequence& sequence, int from = 0) const;

  // How one sequence's queries see the keys of positions [from, end).
  struct Sight {
    int from = 0;
    const char* mode = "";  // as MLX names it
    std::optional<mlx::core::array> mask{};
  };
  // `window`: how many last positions each row sees; 0: all.
  Sight SightOf(const Sequence& sequence, int window) const;

 private:
  mlx::core::array SeenOf(const mlx::core::array& pool, const Sequence& sequence, int from) const;
  mlx::core::array LastOf(const mlx::core::array& pool, const Sequence& sequence, int size) const;
  const mlx::core::array& WindowMask(int count, int before, int window) const;

  int rows_ = 0;
  std::vector<Sequence> sequences_;
  KvRows written_;
  mlx::core::array offsets_;
  // By rows, positions before them and window. Layers share them.
  mutable std::map<std::vector<int>, mlx::core::array> masks_;
};

}  // namespace macrame::runtime::engine
