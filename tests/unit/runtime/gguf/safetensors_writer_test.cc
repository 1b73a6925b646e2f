// Files as any reader of safetensors finds them, whatever the order in which their bytes came.

#include "runtime/gguf/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "proto/reasons.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::runtime::gguf {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class SafetensorsWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = FreshFolder();
    path_ = folder_ + "/model.safetensors";
  }
  std::string Whole() const {
    std::ifstream file(path_, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }

  std::string folder_, path_;
};

// By the format's description: eight bytes of length, JSON, data.
struct Read {
  nlohmann::json header;
  std::string data;
  size_t header_bytes = 0;
};
Read ReadBack(const std::string& whole) {
  Read read;
  uint64_t size = 0;
  if (whole.size() < sizeof(size)) return read;
  std::memcpy(&size, whole.data(), sizeof(size));
  if (size > whole.size() - sizeof(size)) return read;
  read.header_bytes = size;
  read.header = nlohmann::json::parse(whole.substr(sizeof(size), size), nullptr, false);
  read.data = whole.substr(sizeof(size) + size);
  return read;
}

TEST_F(SafetensorsWriterTest, PiecesInAnyOrderMakeTheSameFile) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    struct Piece {
      size_t tensor;
      uint64_t begin, bytes;
    };
    std::vector<NewTensor> tensors;
    std::vector<std::string> contents;
    std::vector<Piece> pieces;
    for (size_t i = 0; i < 1 + random() % 8; ++i) {
      std::string content(random() % 5000, '\0');
      for (char& byte : content) byte = static_cast<char>(random());
      // The map that finds them by name has another order than the list.
      tensors.push_back({"t." + std::to_string(random() % 1000) + "." + std::to_string(i),
                         "U8",
                         {content.size()},
                         content.size()});
      for (uint64_t at = 0; at < content.size();) {
        const uint64_t bytes = std::min<uint64_t>(1 + random() % 900, content.size() - at);
        pieces.push_back({i, at, bytes});
        at += bytes;
      }
      contents.push_back(std::move(content));
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    fs::remove(path_);
    auto writer = SafetensorsWriter::Create(path_, tensors);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const Piece& piece : pieces) {
      ASSERT_TRUE((*writer)
                      ->Write(tensors[piece.tensor].name, piece.begin,
                              contents[piece.tensor].data() + piece.begin, piece.bytes)
                      .ok());
    }
    ASSERT_TRUE((*writer)->Close().ok());
    const Read read = ReadBack(Whole());
    ASSERT_TRUE(read.header.is_object()) << "seed " << seed;
    EXPECT_EQ(read.header.size(), tensors.size() + 1);
    uint64_t next = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& entry = read.header[tensors[i].name];
      EXPECT_EQ(entry["data_offsets"][0], next) << "without gaps, in the list's order";
      next += tensors[i].bytes;
      EXPECT_EQ(entry["data_offsets"][1], next);
      EXPECT_EQ(entry["shape"][0], tensors[i].bytes);
      EXPECT_EQ(read.data.substr(next - tensors[i].bytes, tensors[i].bytes), contents[i])
          << "seed " << seed;
    }
    EXPECT_EQ(read.data.size(), next);
  }
}

// Readers map the file and take numbers where they lie.
TEST_F(SafetensorsWriterTest, DataBeginAlignedAndTheHeaderSaysWhoseFormatItIs) {
  for (size_t length = 1; length < 20; ++length) {
    fs::remove(path_);
    auto writer = SafetensorsWriter::Create(path_, {{std::string(length, 'n'), "F16", {2, 1}, 4}});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Write(std::string(length, 'n'), 0, "abcd", 4).ok());
    ASSERT_TRUE((*writer)->Close().ok());
    const Read read = ReadBack(Whole());
    EXPECT_EQ(read.header_bytes % 8, 0u) << length;
    EXPECT_EQ(read.header["__metadata__"]["format"], "mlx");
    EXPECT_EQ(read.header[std::string(length, 'n')]["dtype"], "F16");
    EXPECT_EQ(read.header[std::string(length, 'n')]["shape"], nlohmann::json({2, 1}));
    EXPECT_EQ(read.data, "abcd");
  }
}

TEST_F(SafetensorsWriterTest, AModelWithoutTensorsIsAFileToo) {
  auto writer = SafetensorsWriter::Create(path_, {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Close().ok());
  EXPECT_EQ(ReadBack(Whole()).header.size(), 1u);
}

TEST_F(SafetensorsWriterTest, AFileThatIsThereIsKeptAndNamed) {
  std::ofstream(path_) << "somebody's";
  const auto writer = SafetensorsWriter::Create(path_, {{"t", "U8", {1}, 1}});
  EXPECT_EQ(ReasonOf(writer.status()).code(), "DISK_WRITE_FAILED");
  EXPECT_THAT(ReasonOf(writer.status()).message(), AllOf(HasSubstr(path_), HasSubstr("exists")));
  EXPECT_EQ(Whole(), "somebody's");
}

TEST_F(SafetensorsWriterTest, AFolderThatIsNotThereIsNamed) {
  const auto writer = SafetensorsWriter::Create(folder_ + "/no/model.safetensors", {});
  EXPECT_EQ(ReasonOf(writer.status()).code(), "DISK_WRITE_FAILED");
  EXPECT_THAT(ReasonOf(writer.status()).message(),
              AllOf(HasSubstr("/no/model.safetensors"), HasSubstr("No such file")));
}

}  // namespace
}  // namespace macrame::runtime::gguf
