#include "runtime/text/safetensors_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>

#include "proto/reasons.h"
#include "tests/unit/runtime/text/model_folder.h"

namespace macrame::runtime::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string File(const std::string& json, const std::string& data, uint64_t claimed) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(claimed >> (8 * i)));
  return bytes + json + data;
}

std::string File(const std::string& json, size_t data_bytes) {
  return File(json, std::string(data_bytes, '\7'), json.size());
}

absl::StatusOr<SafetensorsHeader> Read(const std::string& bytes) {
  return ReadSafetensorsHeader(WriteFile(NewFolder("file") + "/m.safetensors", bytes));
}

void ExpectBroken(const std::string& bytes, const std::string& said) {
  const auto header = Read(bytes);
  ASSERT_FALSE(header.ok()) << said;
  EXPECT_EQ(header.status().code(), absl::StatusCode::kDataLoss) << header.status();
  EXPECT_EQ(ReasonOf(header.status()).code(), "MODEL_FILE_BROKEN");
  EXPECT_THAT(std::string(header.status().message()), HasSubstr("m.safetensors"));
  EXPECT_THAT(std::string(header.status().message()), HasSubstr(said));
}

constexpr char kTwo[] = R"({"__metadata__":{"format":"mlx"},)"
                        R"("b":{"dtype":"U32","shape":[2],"data_offsets":[12,20]},)"
                        R"("a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}})";

TEST(SafetensorsHeader, ReadsNamesShapesAndPlaces) {
  const auto header = Read(File(kTwo, 20));
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->tensors.size(), 2u);
  const uint64_t data = 8 + std::string(kTwo).size();
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[0].dtype, "BF16");
  EXPECT_THAT(header->tensors[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(header->tensors[0].begin, data);
  EXPECT_EQ(header->tensors[1].begin, data + 12);
  EXPECT_EQ(header->tensors[1].end, header->file_bytes);
  EXPECT_EQ(header->metadata.at("format"), "mlx");
}

// Opening one would wait for a writer, for ever.
TEST(SafetensorsHeader, APipeIsNotWaitedFor) {
  const std::string path = NewFolder("pipe") + "/m.safetensors";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto header = ReadSafetensorsHeader(path);
  EXPECT_EQ(ReasonOf(header.status()).code(), "MODEL_FILE_BROKEN") << header.status();
}

TEST(SafetensorsHeader, DimensionsStayPositiveInSignedNumbers) {
  ExpectBroken(
      File(R"({"a":{"dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0]}})", 0),
      "9223372036854775808");
}

TEST(SafetensorsHeader, EmptyFilesScalarsAndPaddingAreFine) {
  EXPECT_TRUE(Read(File("{}", 0)).ok());
  EXPECT_TRUE(Read(File("{}      ", 0)).ok());
  EXPECT_TRUE(Read(File(R"({"__metadata__":null})", 0)).ok());
  EXPECT_TRUE(Read(File(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4)).ok());
  EXPECT_TRUE(Read(File(R"({"z":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},)"
                        R"("a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
                        1))
                  .ok());
}

TEST(SafetensorsHeader, AMissingFileIsNotFound) {
  const auto header = ReadSafetensorsHeader(NewFolder("none") + "/m.safetensors");
  EXPECT_EQ(header.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(header.status()).code(), "MODEL_FILE_MISSING");
  EXPECT_FALSE(ReadSafetensorsHeader(NewFolder("folder")).ok());
  EXPECT_FALSE(ReadSafetensorsHeader("").ok());
  EXPECT_FALSE(ReadSafetensorsHeader(std::string("a\0b", 3)).ok());
}

TEST(SafetensorsHeader, EachLieHasItsOwnSentence) {
  ExpectBroken("", "too few");
  ExpectBroken("1234567", "too few");
  ExpectBroken(File("{}", "", ~uint64_t{0}), "claims 18446744073709551615 bytes");
  ExpectBroken(File("{}", "", uint64_t{33} << 20), "more than");
  ExpectBroken(File("{}", "", 100), "truncated");
  ExpectBroken(File("[]", 0), "'{'");
  ExpectBroken(File("", 0), "'{'");
  ExpectBroken(File("{\"a\":", 0), "not valid");
  ExpectBroken(File("{\"\xff\":{}}", 0), "not valid");
  ExpectBroken(File(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7), "truncated");
  ExpectBroken(File(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9),
               "belong to none");
  ExpectBroken(File(R"({"a":{"dtype":"Q99","shape":[2],"data_offsets":[0,8]}})", 8),
               "dtype \"Q99\"");
  ExpectBroken(File(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
               "takes 12 bytes");
  ExpectBroken(File(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8),
               "before it begins");
  ExpectBroken(File(R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},)"
                    R"("b":{"dtype":"I8","shape":[2],"data_offsets":[1,3]}})",
                    3),
               "overlaps");
  ExpectBroken(File(R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},)"
                    R"("b":{"dtype":"I8","shape":[2],"data_offsets":[3,5]}})",
                    5),
               "hole of 1 bytes");
  ExpectBroken(File(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},)"
                    R"("a":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}})",
                    2),
               "twice");
}

TEST(SafetensorsHeader, SizesThatOverflowAreRefused) {
  ExpectBroken(
      File(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
      "overflows");
  ExpectBroken(
      File(R"({"a":{"dtype":"F32","shape":[9223372036854775807,2,0],"data_offsets":[0,0]}})", 0),
      "overflows");
  ExpectBroken(File(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), "not valid");
  ExpectBroken(File(R"({"a":{"dtype":"F32","shape":[1e30],"data_offsets":[0,4]}})", 4),
               "not valid");
  ExpectBroken(
      File(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,18446744073709551615]}})", 1),
      "truncated");
}

TEST(SafetensorsHeader, BombsAreRefused) {
  std::string many = "{";
  for (int i = 0; i <= 200'000; ++i) {
    many += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
            R"(":{"dtype":"I8","shape":[0],"data_offsets":[0,0]})";
  }
  ExpectBroken(File(many + "}", 0), "more than 200000 tensors");
  ExpectBroken(File("{\"a\":" + std::string(100'000, '['), 0), "not valid");
  std::string dims = "1";
  for (int i = 0; i < 16; ++i) dims += ",1";
  ExpectBroken(File(R"({"a":{"dtype":"I8","shape":[)" + dims + R"(],"data_offsets":[0,1]}})", 1),
               "dimensions");
}

TEST(SafetensorsHeader, EveryTruncationIsSeen) {
  const std::string whole = File(kTwo, 20);
  const std::string path = NewFolder("cut") + "/m.safetensors";
  for (size_t length = 0; length < whole.size(); ++length) {
    const auto header = ReadSafetensorsHeader(WriteFile(path, whole.substr(0, length)));
    ASSERT_EQ(header.status().code(), absl::StatusCode::kDataLoss) << length;
  }
}

TEST(SafetensorsHeader, MutationsNeverYieldATensorOutsideOfTheFile) {
  const std::string whole = File(kTwo, 20);
  const std::string path = NewFolder("mutated") + "/m.safetensors";
  std::mt19937 random(42);
  for (int round = 0; round < 1500; ++round) {
    std::string bytes = whole;
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const auto header = ReadSafetensorsHeader(WriteFile(path, bytes));
    if (!header.ok()) continue;
    for (const TensorEntry& tensor : header->tensors) {
      ASSERT_LE(tensor.begin, tensor.end);
      ASSERT_LE(tensor.end, bytes.size());
    }
  }
}

}  // namespace
}  // namespace macrame::runtime::text
