#include "runtime/model/weights/weight_reader.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <stdexcept>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "transport/regular_file.h"

namespace macrame::runtime::engine {
namespace {

// Since Linux 5.14; older headers don't name it and older kernels refuse it.
#ifdef __linux__
constexpr int kPopulateRead = 22;
#endif

// Linux reads no more for one call than a device's largest request or read-ahead, commonly 1,280
// KiB.
constexpr size_t kAskedBytes = size_t{1} << 20;

struct Pages {
  void* address = nullptr;
  size_t bytes = 0;
};

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// All pages that hold some of it.
Pages PagesAround(StoredBytes stored) {
  const auto begin = reinterpret_cast<uintptr_t>(stored.data()) / PageBytes() * PageBytes();
  const auto end = reinterpret_cast<uintptr_t>(stored.data() + stored.size());
  return {reinterpret_cast<void*>(begin), end - begin};
}

// The pages that hold nothing else.
Pages PagesWithin(StoredBytes stored) {
  const size_t page = PageBytes();
  const auto begin = (reinterpret_cast<uintptr_t>(stored.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(stored.data() + stored.size()) / page * page;
  if (end <= begin) return {};
  return {reinterpret_cast<void*>(begin), end - begin};
}

void Touch(StoredBytes stored) {
  volatile std::byte sink{};
  for (size_t i = 0; i < stored.size(); i += PageBytes()) sink = stored[i];
  if (!stored.empty()) sink = stored.back();
  (void)sink;
}

void MapPiece(StoredBytes stored) {
#ifdef __linux__
  const Pages pages = PagesAround(stored);
  if (madvise(pages.address, pages.bytes, kPopulateRead) == 0) return;
#endif
  Touch(stored);
}

}  // namespace

void CopyColumnPart(const std::byte* matrix, const ColumnPart& part, std::byte* out) {
  MACRAME_CHECK(part.begin + part.bytes <= part.row_bytes) << part.begin << "+" << part.bytes;
  for (size_t row = 0; row < part.rows; ++row) {
    std::memcpy(out + row * part.bytes, matrix + row * part.row_bytes + part.begin, part.bytes);
  }
}

namespace {

// Tiles whose numbers' lines stay in the first cache.
constexpr size_t kTile = 32;

template <typename Scalar>
void Turn(const std::byte* matrix, const ColumnPart& part, const TurnedPlace& place,
          std::byte* out) {
  const size_t columns = part.bytes / sizeof(Scalar);
  for (size_t top = 0; top < part.rows; top += kTile) {
    const size_t bottom = std::min(top + kTile, part.rows);
    for (size_t left = 0; left < columns; left += kTile) {
      const size_t right = std::min(left + kTile, columns);
      for (size_t column = left; column < right; ++column) {
        std::byte* to = out + (column * place.rows_all + place.first + top) * sizeof(Scalar);
        const std::byte* from =
            matrix + top * part.row_bytes + part.begin + column * place.step * sizeof(Scalar);
        for (size_t row = top; row < bottom; ++row) {
          std::memcpy(to, from, sizeof(Scalar));
          to += sizeof(Scalar);
          from += part.row_bytes;
        }
      }
    }
  }
}

}  // namespace

void CopyTurned(const std::byte* matrix, const ColumnPart& part, const TurnedPlace& place,
                std::byte* out) {
  MACRAME_CHECK(part.begin + (part.bytes - place.scalar_bytes) * place.step + place.scalar_bytes <=
                part.row_bytes)
      << part.begin << "+" << part.bytes << " of every " << place.step;
  MACRAME_CHECK(place.scalar_bytes == 2 || place.scalar_bytes == 4) << place.scalar_bytes;
  place.scalar_bytes == 2 ? Turn<uint16_t>(matrix, part, place, out)
                          : Turn<uint32_t>(matrix, part, place, out);
}

WeightReader::WeightReader(std::vector<StoredBytes> order,
                           std::function<void(uint64_t)> on_progress)
    : order_(std::move(order)), on_progress_(std::move(on_progress)) {}

// Asks for what comes after `stored` too, as far as kReadAheadBytes beyond it.
void WeightReader::ReadAheadOf(StoredBytes stored) {
  read_bytes_ += stored.size();
  while (asked_index_ < order_.size() && asked_bytes_ < read_bytes_ + kReadAheadBytes) {
    const StoredBytes left = order_[asked_index_].subspan(asked_offset_);
    const StoredBytes piece = left.first(std::min(left.size(), kAskedBytes));
    if (!piece.empty()) {
      const Pages pages = PagesAround(piece);
      madvise(pages.address, pages.bytes, MADV_WILLNEED);
    }
    asked_bytes_ += piece.size();
    asked_offset_ += piece.size();
    if (piece.size() == left.size()) {
      ++asked_index_;
      asked_offset_ = 0;
    }
  }
}

void WeightReader::Read(StoredBytes stored) {
  for (size_t at = 0; at < stored.size(); at += kReadPieceBytes) {
    const StoredBytes piece = stored.subspan(at, std::min(kReadPieceBytes, stored.size() - at));
    ReadAheadOf(piece);
    MapPiece(piece);
    on_progress_(piece.size());
  }
}

void WeightReader::LookAt(StoredBytes stored) {
  if (stored.empty()) return;
  ReadAheadOf(stored);
  MapPiece(stored);
}

void WeightReader::Release(StoredBytes stored) const {
  const Pages pages = PagesWithin(stored);
  if (pages.bytes > 0) madvise(pages.address, pages.bytes, MADV_DONTNEED);
}

void WeightReader::ForRows(StoredBytes matrix, size_t row_bytes, size_t held_bytes,
                           const TakeRows& take) {
  if (row_bytes == 0) return;
  const size_t rows = matrix.size() / row_bytes;
  const size_t rows_each = std::max<size_t>(1, kReadPieceBytes / row_bytes);
  for (size_t row = 0; row < rows; row += rows_each) {
    const size_t some = std::min(rows_each, rows - row);
    const StoredBytes piece = matrix.subspan(row * row_bytes, some * row_bytes);
    LookAt(piece);
    take(piece, row);
    Release(piece);
    on_progress_(some * held_bytes);
  }
}

namespace {

// Files that stay open while they are read.
class OpenFiles {
 public:
  OpenFiles() = default;
  ~OpenFiles() {
    for (const auto& [path, file] : files_) close(file);
  }
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;
  int Of(const std::string& path) {
    const auto [at, is_new] = files_.try_emplace(path, -1);
    if (!is_new) return at->second;
    auto file = transport::RegularFile::Open(path);
    if (file.ok()) return at->second = file->Release();
    files_.erase(at);
    throw std::runtime_error(std::string(file.status().message()));
  }

 private:
  std::map<std::string, int> files_;
};

struct Piece {
  int file = -1;
  size_t copy = 0;  // which it is a part of
  uint64_t offset = 0;
  size_t bytes = 0;
  std::byte* to = nullptr;
};

// 0, or errno; EPIPE: the file ends before it.
int ReadPiece(Piece piece) {
  while (piece.bytes > 0) {
    const ssize_t got = pread(piece.file, piece.to, piece.bytes, static_cast<off_t>(piece.offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0 ? EPIPE : errno;
    piece.bytes -= static_cast<size_t>(got);
    piece.offset += static_cast<uint64_t>(got);
    piece.to += got;
  }
  return 0;
}

}  // namespace

void WeightReader::CopyAll(std::span<const StoredCopy> copies) {
  OpenFiles files;
  std::vector<Piece> pieces;
  for (size_t i = 0; i < copies.size(); ++i) {
    const StoredCopy& copy = copies[i];
    for (size_t at = 0; at < copy.stored.size(); at += kReadPieceBytes) {
      const size_t bytes = std::min(kReadPieceBytes, copy.stored.size() - at);
      pieces.push_back({files.Of(*copy.file), i, copy.offset + at, bytes, copy.to + at});
    }
  }
  std::atomic<size_t> next = 0, failed_piece = 0;
  std::atomic<uint64_t> done_bytes = 0;
  std::atomic<int> failure = 0;
  const auto read_one = [&] {
    const size_t index = next.fetch_add(1);
    if (index >= pieces.size() || failure != 0) return false;
    const int error = ReadPiece(pieces[index]);
    done_bytes += pieces[index].bytes;
    int none = 0;
    if (error != 0 && failure.compare_exchange_strong(none, error)) failed_piece = index;
    return error == 0;
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min<size_t>(kCopyThreads, pieces.size()); ++i) {
    others.emplace_back([&] {
      while (read_one()) {
      }
    });
  }
  uint64_t told = 0;
  const auto tell = [&] {
    const uint64_t done = done_bytes;
    if (done > told) on_progress_(done - std::exchange(told, done));
  };
  for (const StoredCopy& copy : copies) {
    ReadAheadOf(copy.stored);
    if (read_one()) tell();
  }
  while (read_one()) tell();
  for (std::thread& other : others) other.join();
  if (failure != 0) {
    const std::string& file = *copies[pieces[failed_piece].copy].file;
    throw std::runtime_error(absl::StrCat(
        file, failure == EPIPE ? " ends before the tensors that its header names"
                               : absl::StrCat(" can't be read: ", std::strerror(failure))));
  }
  tell();
}

std::shared_ptr<std::byte[]> WeightReader::CopyColumns(StoredBytes matrix, const ColumnPart& part) {
  MACRAME_CHECK(matrix.size() == part.rows * part.row_bytes) << matrix.size();
  std::shared_ptr<std::byte[]> copy(new std::byte[part.rows * part.bytes]);
  ForRows(matrix, part.row_bytes, part.bytes, [&](StoredBytes piece, size_t row) {
    ColumnPart some = part;
    some.rows = piece.size() / part.row_bytes;
    CopyColumnPart(piece.data(), some, copy.get() + row * part.bytes);
  });
  return copy;
}

std::shared_ptr<std::byte[]> WeightReader::CopyTurnedOver(StoredBytes matrix,
                                                          const ColumnPart& part,
                                                          size_t scalar_bytes, size_t step) {
  MACRAME_CHECK(matrix.size() == part.rows * part.row_bytes) << matrix.size();
  std::shared_ptr<std::byte[]> copy(new std::byte[part.rows * part.bytes]);
  ForRows(matrix, part.row_bytes, part.bytes, [&](StoredBytes piece, size_t row) {
    ColumnPart some = part;
    some.rows = piece.size() / part.row_bytes;
    CopyTurned(piece.data(), some, {scalar_bytes, row, part.rows, step}, copy.get());
  });
  return copy;
}

}  // namespace macrame::runtime::engine
