// Parts of mapped files: the right bytes, told of piece by piece, and what was copied is not held
// a second time.

#include "runtime/model/weights/weight_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::runtime::engine {
namespace {

constexpr size_t kRows = 4096;
constexpr size_t kRowBytes = 6000;  // no whole number of pages

std::byte ByteAt(size_t i) { return static_cast<std::byte>(i * 2654435761U >> 13); }

class MappedFile {
 public:
  explicit MappedFile(size_t bytes) {
    std::string content(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) content[i] = static_cast<char>(ByteAt(i));
    path_ = WriteFolder({{"weights", content}}) + "/weights";
    const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    void* address = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    EXPECT_NE(address, MAP_FAILED);
    bytes_ = {static_cast<const std::byte*>(address), bytes};
  }
  ~MappedFile() {
    munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
    std::filesystem::remove(path_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  StoredBytes bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  // Of the file, what is mapped into this process right now.
  size_t ResidentBytes() const {
    std::ifstream maps("/proc/self/smaps");
    bool ours = false;
    size_t kilobytes = 0;
    for (std::string line; std::getline(maps, line);) {
      std::istringstream words(line);
      std::string first;
      words >> first;
      if (first.find('-') != std::string::npos) ours = line.find(path_) != std::string::npos;
      size_t count = 0;
      if (ours && first == "Rss:" && words >> count) kilobytes += count;
    }
    return kilobytes * 1024;
  }

 private:
  std::string path_;
  StoredBytes bytes_;
};

TEST(ColumnPartTest, CopiesEachRowsPart) {
  const std::string text = "abcdefgh";  // two rows of four
  std::string out(4, ' ');
  CopyColumnPart(reinterpret_cast<const std::byte*>(text.data()), {2, 4, 1, 2},
                 reinterpret_cast<std::byte*>(out.data()));
  EXPECT_EQ(out, "bcfg");
}

TEST(WeightReader, TellsOfALargeTensorPieceByPiece) {
  const MappedFile file(kRows * kRowBytes);
  std::vector<uint64_t> told;
  WeightReader reader({file.bytes()}, [&](uint64_t bytes) { told.push_back(bytes); });
  reader.Read(file.bytes());
  EXPECT_GE(told.size(), 5u);
  EXPECT_EQ(std::accumulate(told.begin(), told.end(), uint64_t{0}), file.bytes().size());
#ifdef __linux__
  EXPECT_GE(file.ResidentBytes(), file.bytes().size());
  reader.Release(file.bytes());
  EXPECT_LE(file.ResidentBytes(), size_t{64} << 10);
#endif
}

TEST(WeightReader, ACopiedColumnPartIsHeldOnce) {
  const MappedFile file(kRows * kRowBytes);
  uint64_t told = 0;
  size_t mapped_most = 0;
  WeightReader reader({file.bytes()}, [&](uint64_t bytes) {
    told += bytes;
    mapped_most = std::max(mapped_most, file.ResidentBytes());
  });
  const ColumnPart part{kRows, kRowBytes, 2000, 3000};
  const auto copy = reader.CopyColumns(file.bytes(), part);
  EXPECT_EQ(told, kRows * part.bytes);
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t i = 0; i < part.bytes; ++i) {
      ASSERT_EQ(copy[row * part.bytes + i], ByteAt(row * kRowBytes + part.begin + i)) << row;
    }
  }
#ifdef __linux__
  // A piece, in pages as large as the system takes.
  EXPECT_LE(mapped_most, kReadPieceBytes + (size_t{8} << 20)) << "beside the copy";
#endif
}

// What was not announced is read all the same.
TEST(WeightReader, CopiesAreReadToWhereTheyStandAndNotMapped) {
  const MappedFile file(kRows * kRowBytes);
  uint64_t told = 0;
  WeightReader reader({file.bytes()}, [&](uint64_t bytes) { told += bytes; });
  // Small ones and large ones, none at a page, in another order than in the file.
  std::vector<std::pair<size_t, size_t>> parts;
  for (size_t i = 0; i < 40; ++i) parts.emplace_back(7 + i * 1001, 999);
  parts.emplace_back(9'000'001, 10'000'003);
  parts.emplace_back(60'001, 5'000'000);
  parts.emplace_back(kRows * kRowBytes - 1, 1);
  std::vector<std::vector<std::byte>> copies;
  std::vector<StoredCopy> wanted;
  uint64_t bytes = 0;
  copies.reserve(parts.size());
  for (const auto& [begin, size] : parts) {
    copies.emplace_back(size);
    wanted.push_back(
        {file.bytes().subspan(begin, size), &file.path(), begin, copies.back().data()});
    bytes += size;
  }
  reader.CopyAll(wanted);
  EXPECT_EQ(told, bytes);
  EXPECT_LT(file.ResidentBytes(), size_t{1} << 20);
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto [begin, size] = parts[i];
    for (size_t at = 0; at < size; ++at) {
      ASSERT_EQ(copies[i][at], ByteAt(begin + at)) << i << " at " << at;
    }
  }
}

TEST(WeightReader, AFileThatEndsEarlyOrIsGoneIsNamed) {
  const MappedFile file(kRows * kRowBytes);
  WeightReader reader({file.bytes()}, [](uint64_t) {});
  std::vector<std::byte> out(kRows * kRowBytes);
  const StoredCopy all{file.bytes(), &file.path(), 0, out.data()};
  const auto failure = [&] {
    try {
      reader.CopyAll({&all, 1});
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  std::filesystem::resize_file(file.path(), kRows * kRowBytes / 2);
  EXPECT_EQ(failure(), file.path() + " ends before the tensors that its header names");
  std::filesystem::remove(file.path());
  EXPECT_EQ(failure(), file.path() + " is not there");
}

TEST(WeightReader, AnotherOrderIsNoFault) {
  const MappedFile file(kRows * kRowBytes);
  uint64_t told = 0;
  WeightReader reader({file.bytes().last(100), file.bytes().first(5)},
                      [&](uint64_t bytes) { told += bytes; });
  reader.Read(file.bytes().first(100'000));
  reader.Read(file.bytes().last(100));
  reader.Read({});
  EXPECT_EQ(told, 100'100u);
}

TEST(WeightReaderTest, APartIsTurnedOver) {
  constexpr size_t kTurnedRows = 3000, kColumns = 700;  // several pieces, no whole tiles
  for (const size_t size : {2, 4}) {
    MappedFile file(kTurnedRows * kColumns * size + 1);
    const StoredBytes matrix = file.bytes().subspan(1);  // not aligned
    uint64_t told = 0;
    WeightReader reader({matrix}, [&](uint64_t bytes) { told += bytes; });
    const ColumnPart part{kTurnedRows, kColumns * size, 11 * size, 650 * size};
    const auto copy = reader.CopyTurnedOver(matrix, part, size);
    EXPECT_EQ(told, kTurnedRows * 650 * size);
    // Of 8.4 MB: at each end a page as large as the system takes may be another's too.
    if (size == 4) {
      EXPECT_LT(file.ResidentBytes(), (size_t{4} << 20) + (size_t{64} << 10));
    }
    for (size_t column = 0; column < 650; ++column) {
      for (size_t row = 0; row < kTurnedRows; ++row) {
        ASSERT_EQ(std::memcmp(copy.get() + (column * kTurnedRows + row) * size,
                              matrix.data() + (row * kColumns + 11 + column) * size, size),
                  0)
            << row << " " << column;
      }
    }
  }
}

// Rows that stand in turn with others': every second number of each row.
TEST(WeightReaderTest, EverySecondColumnIsTurnedOver) {
  constexpr size_t kTurnedRows = 70, kColumns = 90, kOwn = 40, kFirst = 11;
  for (const size_t size : {2, 4}) {
    MappedFile file(kTurnedRows * kColumns * size);
    const StoredBytes matrix = file.bytes();
    WeightReader reader({matrix}, [](uint64_t) {});
    const ColumnPart part{kTurnedRows, kColumns * size, kFirst * size, kOwn * size};
    const auto copy = reader.CopyTurnedOver(matrix, part, size, /*step=*/2);
    for (size_t column = 0; column < kOwn; ++column) {
      for (size_t row = 0; row < kTurnedRows; ++row) {
        const size_t stored = row * kColumns + kFirst + 2 * column;
        ASSERT_EQ(std::memcmp(copy.get() + (column * kTurnedRows + row) * size,
                              matrix.data() + stored * size, size),
                  0)
            << row << " " << column;
      }
    }
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
