#pragma once

// Reads parts of mapped weight files at the disk's speed. What will be read is known in order, so
// the system is asked for it some way ahead, many requests at once; pages are then mapped in pieces
// rather than fault by fault. Pieces are told as they arrive, also those of one large tensor.
//
// What is copied is not kept mapped as well: a rank holds its copy, the page cache the file. Copies
// of whole parts are read straight to where they stand, several threads at a time: one thread's
// copying is slower than a good disk. All else, and progress, on one thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace macrame::runtime::engine {

// How far ahead of what is being read the system reads.
inline constexpr size_t kReadAheadBytes = size_t{64} << 20;
// At most so much is waited for at once, and mapped beside its copy.
inline constexpr size_t kReadPieceBytes = size_t{4} << 20;

using StoredBytes = std::span<const std::byte>;

// Of each of `rows` rows without gaps, the bytes [begin, begin + bytes).
struct ColumnPart {
  size_t rows = 0;
  size_t row_bytes = 0;
  size_t begin = 0;
  size_t bytes = 0;
};

// The column part of a row-after-row matrix, copied without gaps to `out`. Pure.
void CopyColumnPart(const std::byte* matrix, const ColumnPart& part, std::byte* out);

// The same part turned over: number (row, column) of it goes to out[column * rows_all + row], where
// the part's rows count from `first`. `scalar_bytes`: 2 or 4. The part's columns are every `step`th
// from its beginning on. Pure.
struct TurnedPlace {
  size_t scalar_bytes = 2;
  size_t first = 0;
  size_t rows_all = 0;
  size_t step = 1;
};
void CopyTurned(const std::byte* matrix, const ColumnPart& part, const TurnedPlace& place,
                std::byte* out);

// Threads that copy at a time, of large parts.
inline constexpr int kCopyThreads = 4;

// A part of a file that is to stand at `to`.
struct StoredCopy {
  StoredBytes stored{};     // where it is mapped
  const std::string* file;  // path; outlives the copy
  uint64_t offset = 0;      // in the file
  std::byte* to = nullptr;
};

class WeightReader {
 public:
  // `order`: what will be read, in parts of mapped files that stay mapped. Reading something else,
  // or in another order, is slower and no more. `on_progress` hears how many bytes a rank has come
  // to hold.
  WeightReader(std::vector<StoredBytes> order, std::function<void(uint64_t)> on_progress);

  // Waits until these bytes are in memory and mapped.
  void Read(StoredBytes stored);
  // The same for what a rank looks at and doesn't keep.
  void LookAt(StoredBytes stored);
  // Whole rows of a matrix, in pieces of which none stays mapped: take(piece, its first row). A
  // rank makes `held_bytes` of each row.
  using TakeRows = std::function<void(StoredBytes piece, size_t row)>;
  void ForRows(StoredBytes matrix, size_t row_bytes, size_t held_bytes, const TakeRows& take);
  // A copy of a matrix' column part; the matrix is not left mapped.
  std::shared_ptr<std::byte[]> CopyColumns(StoredBytes matrix, const ColumnPart& part);
  // The same, turned over.
  std::shared_ptr<std::byte[]> CopyTurnedOver(StoredBytes matrix, const ColumnPart& part,
                                              size_t scalar_bytes, size_t step = 1);
  // Fills all copies without touching what is mapped. Throws std::runtime_error that names the file
  // when it can't be read or ends too early.
  void CopyAll(std::span<const StoredCopy> copies);
  // Progress of what is made of what was read.
  void TellOf(size_t bytes) const { on_progress_(bytes); }
  // For who has made a copy of what Read mapped.
  void Release(StoredBytes stored) const;

 private:
  void ReadAheadOf(StoredBytes stored);

  const std::vector<StoredBytes> order_;
  const std::function<void(uint64_t)> on_progress_;
  size_t asked_index_ = 0;   // of `order_`, the first that was not asked for in whole
  size_t asked_offset_ = 0;  // in it
  uint64_t asked_bytes_ = 0;
  uint64_t read_bytes_ = 0;
};

}  // namespace macrame::runtime::engine
