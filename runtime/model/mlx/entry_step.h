#pragma once

// What a rank's layers share of compressed entries in one step (ModelConfig::compress): where the
// entries and their index keys stand, which ones were made, which are looked at. Entries stand in
// KV pools at the last position of their group, so that both are found again with a cached prefix.
// Builds graphs. Engine thread only.

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "mlx/mlx.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/cuts/carried.h"
#include "runtime/model/cuts/entry_places.h"
#include "runtime/model/mlx/kv_pools.h"
#include "runtime/model/mlx/step_rows.h"

namespace macrame::runtime::engine {

// Groups of positions that end in a step, all sequences' one after the other.
struct EndedGroups {
  std::vector<int> first, count;  // by sequence: the number of its first one, how many there are
  int all = 0;
  // int32 [all]: each one's first position, where it stands in the pools, and the row that ends it.
  std::optional<mlx::core::array> offsets{}, places{}, rows{};
  // int32 [rows of the step]: of each row the number of the group that it ends; `all`: of none.
  std::optional<mlx::core::array> of_row{};
};

class EntryStep {
 public:
  // `type`: of entries as they are kept. `first_entry`: of the pools, that of the first entries.
  EntryStep(const ModelConfig& config, const EntryPlaces& places, const StepRows& rows,
            KvPools& pools, int first_entry, mlx::core::Dtype type);

  // From rows that came from the stage before, and into those that go on: entry, chosen and
  // candidates, as many of them as are handed on.
  void Take(const mlx::core::array& carried, const CarriedRow& layout);
  void Put(const CarriedRow& layout, std::vector<mlx::core::array>& parts);

  const StepRows& rows() const { return rows_; }
  KvPools& pools() const { return pools_; }

  const EndedGroups& Ended(int ratio);
  // Of a layer that makes entries, the `place`-th of the rank's: what its groups gave, [all, 1, 1,
  // width] each.
  void Write(int place, int ratio, const mlx::core::array& entries, const mlx::core::array& keys);
  void WriteNone(int place, int ratio);

  // What a sequence sees of the entries that were made last, [1, 1, entries, width].
  mlx::core::array Entries(const StepRows::Sequence& sequence) const {
    return rows_.LastOfGroups(*entries_, sequence, ratio_);
  }
  // Some of them: int32 [count] numbers -> [1, 1, count, width].
  mlx::core::array EntriesAt(const StepRows::Sequence& sequence,
                             const mlx::core::array& numbers) const {
    return rows_.LastOfSome(*entries_, sequence, ratio_, numbers);
  }
  mlx::core::array Keys(const StepRows::Sequence& sequence) const {
    return rows_.LastOfGroups(*keys_, sequence, ratio_);
  }

  // By sequence, what the layer that chose last left: int32 [count, top] numbers of entries,
  // ascending, -1 behind the last one. Unset: all that a row sees.
  std::vector<std::optional<mlx::core::array>> chosen;
  // Blocks of entries among which layers behind one choose: bool [count, blocks]. Unset: all.
  std::vector<std::optional<mlx::core::array>> candidates;

  // From where on a sequence's rows look at their window.
  int WindowFrom(const StepRows::Sequence& sequence) const;
  // Of a sequence's rows, which of the window's vectors from there on, and then of its entries,
  // each one sees: bool [count, all]. Of a layer without entries: `has_entries` is false.
  const mlx::core::array& MaskOf(const StepRows::Sequence& sequence, bool has_entries);

  // Of rows [begin, end) of a sequence, how many entries of `ratio` each sees: int32 [rows, 1].
  static mlx::core::array SeenBy(int begin, int end, int ratio);
  // Rows of int32 `numbers` in ascending order, those that are not `held` behind them as -1. A
  // stage that is handed them so adds in the order of the one that chose.
  static mlx::core::array Ascending(const mlx::core::array& numbers, const mlx::core::array& held);

 private:
  mlx::core::array ChosenLists(int width) const;
  mlx::core::array CandidateLists(int width) const;

  const ModelConfig& config_;
  const EntryPlaces& places_;
  const StepRows& rows_;
  KvPools& pools_;
  const int first_entry_;
  const mlx::core::Dtype type_;
  int ratio_ = 0;
  std::optional<KvRowsKept> entries_, keys_;  // whole pools
  std::optional<mlx::core::array> made_;      // [rows, entry and key]: of rows that end a group
  // Of a stage whose layers look at no entries: what they hand on as it came.
  std::optional<mlx::core::array> passed_;
  CarriedRow passed_layout_;
  std::map<int, EndedGroups> ended_;  // by ratio
  // By sequence and ratio; 0: without entries.
  std::map<std::pair<size_t, int>, mlx::core::array> masks_;
};

}  // namespace macrame::runtime::engine
