// Files that lie, contradict themselves or go to the format's limits, byte by byte.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/gguf/block_forms.h"
#include "runtime/gguf/gguf_file.h"
#include "tests/unit/runtime/gguf/gguf_writer.h"

namespace macrame::runtime::gguf {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Kinds of metadata, by the file's numbers.
enum Kind : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64
};

template <typename T>
std::string Raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string Sized(const std::string& text) { return Raw<uint64_t>(text.size()) + text; }

std::string Entry(const std::string& key, uint32_t kind, const std::string& value) {
  return Sized(key) + Raw(kind) + value;
}

std::string TensorInfo(const std::string& name, const std::vector<uint64_t>& sides, uint32_t type,
                       uint64_t offset) {
  std::string info = Sized(name) + Raw(static_cast<uint32_t>(sides.size()));
  for (const uint64_t side : sides) info += Raw(side);
  return info + Raw(type) + Raw(offset);
}

// A file of these parts; the data begin where the alignment of 32 has them.
std::string File(const std::vector<std::string>& entries, const std::vector<std::string>& tensors,
                 const std::string& data = "") {
  std::string bytes =
      "GGUF" + Raw<uint32_t>(3) + Raw<uint64_t>(tensors.size()) + Raw<uint64_t>(entries.size());
  for (const std::string& entry : entries) bytes += entry;
  for (const std::string& tensor : tensors) bytes += tensor;
  bytes.resize((bytes.size() + 31) / 32 * 32);
  return bytes + data;
}

absl::StatusOr<GgufHeader> Parse(const std::string& bytes) {
  return ParseGguf({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "x.gguf");
}

// What is said of a broken file; it always begins with the file's name.
std::string Complaint(const std::string& bytes) {
  const absl::Status status = Parse(bytes).status();
  EXPECT_EQ(ReasonOf(status).code(), "MODEL_FILE_BROKEN") << status;
  const std::string message = ReasonOf(status).message();
  EXPECT_EQ(message.rfind("x.gguf: ", 0), 0u) << message;
  return message;
}

TEST(GgufMetadata, EachKindIsKeptAtItsLimits) {
  const auto parsed = Parse(
      File({Entry("u8", kUint8, Raw<uint8_t>(255)), Entry("i8", kInt8, Raw<int8_t>(-128)),
            Entry("u16", kUint16, Raw<uint16_t>(65535)), Entry("i16", kInt16, Raw<int16_t>(-32768)),
            Entry("u32", kUint32, Raw<uint32_t>(UINT32_MAX)),
            Entry("i32", kInt32, Raw<int32_t>(INT32_MIN)),
            Entry("u64", kUint64, Raw<uint64_t>(INT64_MAX)),
            Entry("u64+", kUint64, Raw<uint64_t>(UINT64_MAX)),
            Entry("i64", kInt64, Raw<int64_t>(INT64_MIN)), Entry("f32", kFloat32, Raw(-0.25F)),
            Entry("f64", kFloat64, Raw(1e300)), Entry("yes", kBool, Raw<uint8_t>(2)),
            Entry("no", kBool, Raw<uint8_t>(0)),
            Entry("text", kString, Sized(std::string("a\0\xff", 3)))},
           {}));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto integer = [&](const char* key) { return std::get<int64_t>(parsed->metadata.at(key)); };
  EXPECT_EQ(integer("u8"), 255);
  EXPECT_EQ(integer("i8"), -128);
  EXPECT_EQ(integer("u16"), 65535);
  EXPECT_EQ(integer("i16"), -32768);
  EXPECT_EQ(integer("u32"), int64_t{UINT32_MAX});
  EXPECT_EQ(integer("i32"), int64_t{INT32_MIN});
  EXPECT_EQ(integer("u64"), INT64_MAX);
  EXPECT_EQ(integer("u64+"), INT64_MAX) << "never a negative number";
  EXPECT_EQ(integer("i64"), INT64_MIN);
  EXPECT_EQ(std::get<double>(parsed->metadata.at("f32")), -0.25);
  EXPECT_EQ(std::get<double>(parsed->metadata.at("f64")), 1e300);
  EXPECT_TRUE(std::get<bool>(parsed->metadata.at("yes")));
  EXPECT_FALSE(std::get<bool>(parsed->metadata.at("no")));
  EXPECT_EQ(std::get<std::string>(parsed->metadata.at("text")), std::string("a\0\xff", 3));
}

TEST(GgufMetadata, ArraysOfEachKindAreKept) {
  const auto array = [](uint32_t kind, uint64_t count, const std::string& values) {
    return Raw(kind) + Raw(count) + values;
  };
  const auto parsed =
      Parse(File({Entry("bytes", kArray, array(kUint8, 3, "\x01\x80\xff")),
                  Entry("small", kArray, array(kInt16, 2, Raw<int16_t>(-5) + Raw<int16_t>(9))),
                  Entry("large", kArray, array(kUint64, 1, Raw<uint64_t>(UINT64_MAX))),
                  Entry("flags", kArray, array(kBool, 3, std::string("\0\x01\x07", 3))),
                  Entry("doubles", kArray, array(kFloat64, 1, Raw(0.1))),
                  Entry("texts", kArray, array(kString, 2, Sized("") + Sized("b"))),
                  Entry("none", kArray, array(kString, 0, ""))},
                 {}));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto integers = [&](const char* key) {
    return std::get<std::vector<int64_t>>(parsed->metadata.at(key));
  };
  EXPECT_THAT(integers("bytes"), ElementsAre(1, 128, 255));
  EXPECT_THAT(integers("small"), ElementsAre(-5, 9));
  EXPECT_THAT(integers("large"), ElementsAre(INT64_MAX));
  EXPECT_THAT(integers("flags"), ElementsAre(0, 1, 1));
  EXPECT_THAT(std::get<std::vector<double>>(parsed->metadata.at("doubles")), ElementsAre(0.1));
  EXPECT_THAT(std::get<std::vector<std::string>>(parsed->metadata.at("texts")),
              ElementsAre("", "b"));
  EXPECT_TRUE(std::get<std::vector<std::string>>(parsed->metadata.at("none")).empty());
}

TEST(GgufMetadata, WhatGgufDoesNotHaveIsNamed) {
  EXPECT_THAT(Complaint(File({Entry("k", 13, Raw<uint64_t>(1))}, {})), HasSubstr("kind 13"));
  EXPECT_THAT(Complaint(File({Entry("k", UINT32_MAX, Raw<uint64_t>(1))}, {})),
              HasSubstr("kind 4294967295"));
  EXPECT_THAT(Complaint(File({Entry("k", kArray, Raw<uint32_t>(kArray) + Raw<uint64_t>(1))}, {})),
              HasSubstr("an array of arrays"));
  EXPECT_THAT(
      Complaint(
          File({Entry("k", kArray, Raw<uint32_t>(77) + Raw<uint64_t>(1) + Raw<uint64_t>(1))}, {})),
      HasSubstr("kind 77"));
}

// They come to stand in messages, in config files and in names of tensors.
TEST(GgufMetadata, NamesThatAreNoneAreRefusedAndShownHarmlessly) {
  for (const std::string& name :
       {std::string(), std::string("a b"), std::string("a\nb"), std::string("a\0b", 3),
        std::string("\x1b[2J"), std::string("caf\xc3\xa9"), std::string(1, '\x7f')}) {
    for (const std::string& file :
         {File({Entry(name, kUint8, "\x01")}, {}),
          File({}, {TensorInfo(name, {1}, 0, 0)}, std::string(4, '\0'))}) {
      const std::string complaint = Complaint(file);
      EXPECT_THAT(complaint, HasSubstr("is no name"));
      for (const char letter : complaint) EXPECT_TRUE(letter >= ' ' && letter <= '~') << complaint;
    }
  }
  EXPECT_TRUE(Parse(File({Entry(std::string(1024, 'k'), kUint8, "\x01")}, {})).ok());
  EXPECT_THAT(Complaint(File({Entry(std::string(1025, 'k'), kUint8, "\x01")}, {})),
              HasSubstr("a text of 1025 bytes"));
}

// Counts are refused by themselves: nothing is reserved for what a file only announces.
TEST(GgufCounts, ThatNoModelHasAreRefusedAtOnce) {
  const auto begin = [](uint64_t tensors, uint64_t entries) {
    return "GGUF" + Raw<uint32_t>(3) + Raw(tensors) + Raw(entries) + std::string(64, '\0');
  };
  EXPECT_THAT(Complaint(begin(kTensorsMax + 1, 0)), HasSubstr("200001 tensors"));
  EXPECT_THAT(Complaint(begin(UINT64_MAX, 0)), HasSubstr("tensors"));
  EXPECT_THAT(Complaint(begin(0, kMetadataEntriesMax + 1)), HasSubstr("65537 metadata keys"));
  EXPECT_THAT(Complaint(begin(0, UINT64_MAX)), HasSubstr("metadata keys"));
  for (const uint64_t count : {kArrayElementsMax + 1, uint64_t{1} << 61, UINT64_MAX}) {
    for (const uint32_t kind : {kUint8, kUint64, kString}) {
      EXPECT_THAT(Complaint(File({Entry("k", kArray, Raw(kind) + Raw(count))}, {})),
                  HasSubstr(absl::StrCat("an array of ", count, " elements")));
    }
  }
}

TEST(GgufTensors, SidesAndPlacesAreHeldAgainstTheFile) {
  const std::string data(64, 'd');  // sixteen floats
  const auto file = [&](const std::vector<uint64_t>& sides, uint64_t offset, uint32_t type = 0) {
    return File({}, {TensorInfo("t", sides, type, offset)}, data);
  };
  EXPECT_TRUE(Parse(file({16}, 0)).ok()) << "to the last byte";
  EXPECT_TRUE(Parse(file({1}, 60)).ok());
  EXPECT_TRUE(Parse(file({2, 2, 2, 2}, 0)).ok());
  const std::vector<std::string> beyond = {
      file({17}, 0),
      file({16}, 1),
      file({1}, 61),
      file({1}, 64),
      file({1}, UINT64_MAX),
      file({1}, UINT64_MAX - 100),
      file({2, 2, 2, 3}, 0),
      file({1, kDimensionMax}, 0),
      file({kDimensionMax}, 0),
      file({32, 4}, 0, 2),  // four blocks of 18 bytes
  };
  for (const std::string& bytes : beyond) {
    EXPECT_THAT(Complaint(bytes), HasSubstr("tensor 't' goes beyond the end of the file"));
  }
  EXPECT_THAT(Complaint(file({}, 0)), HasSubstr("tensor 't' has 0 dimensions"));
  EXPECT_THAT(Complaint(file({1, 1, 1, 1, 1}, 0)), HasSubstr("tensor 't' has 5 dimensions"));
  EXPECT_THAT(Complaint(file({1, 0}, 0)), HasSubstr("tensor 't' has a side of 0"));
  EXPECT_THAT(Complaint(file({kDimensionMax + 1}, 0)), HasSubstr("has a side of"));
  EXPECT_THAT(Complaint(file({1, kDimensionMax, 2}, 0)), HasSubstr("has a side of 2"));
  EXPECT_THAT(Complaint(file({48}, 0, 2)), HasSubstr("no whole blocks of Q4_0"));
  EXPECT_THAT(Complaint(file({128}, 0, 12)), HasSubstr("no whole blocks of Q4_K"));
}

TEST(GgufTensors, OfThreeDimensionsAreTheMapsOfExperts) {
  const auto parsed =
      Parse(File({}, {TensorInfo("t", {2, 3, 4}, 0, 32)}, std::string(32 + 2 * 3 * 4 * 4, 'x')));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const TensorPlace& tensor = parsed->tensors.at(0);
  EXPECT_EQ(tensor.dimensions, 3);
  EXPECT_EQ(tensor.columns, 2u);
  EXPECT_EQ(tensor.rows, 12u);
  EXPECT_EQ(tensor.experts, 4u);
  EXPECT_EQ(tensor.bytes, 96u);
}

// A kind that is not known has no size: it takes no part in the file until somebody asks for it.
TEST(GgufTensors, OfAnUnknownKindArePassedOver) {
  const std::string bytes = File(
      {},
      {TensorInfo("odd", {uint64_t{1} << 39, 7}, 999, UINT64_MAX), TensorInfo("good", {4}, 0, 0)},
      FloatBytesOf({1, 2, 3, 4}));
  const auto model = GgufModel::Open(WriteGguf("m.gguf", bytes));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->FindTensor("odd")->bytes, 0u);
  EXPECT_EQ(FloatAt(*FindBlockForm(0), (*model)->FindTensor("good")->data, 3), 4.0F);
}

TEST(GgufTensors, OfOneNameAreRefusedByIt) {
  const std::string info = TensorInfo("a.weight", {1}, 0, 0);
  const auto model = GgufModel::Open(WriteGguf("m.gguf", File({}, {info, info}, "abcd")));
  EXPECT_EQ(ReasonOf(model.status()).code(), "MODEL_FILE_BROKEN");
  EXPECT_THAT(ReasonOf(model.status()).message(), HasSubstr("tensor 'a.weight' is there twice"));
}

// Data begin at the next multiple of what the file names, and nowhere else.
TEST(GgufAlignment, IsAPowerOfTwoAndMovesTheData) {
  for (const uint64_t alignment : {uint64_t{1}, uint64_t{8}, uint64_t{64}, uint64_t{1} << 20}) {
    std::string bytes = "GGUF" + Raw<uint32_t>(2) + Raw<uint64_t>(1) + Raw<uint64_t>(1) +
                        Entry("general.alignment", kUint64, Raw(alignment)) +
                        TensorInfo("t", {1}, 0, 0);
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
    const size_t begin = bytes.size();
    EXPECT_THAT(Complaint(bytes + "abc"), HasSubstr("beyond the end"));
    const auto parsed = Parse(bytes + "abcd");
    ASSERT_TRUE(parsed.ok()) << alignment << parsed.status();
    EXPECT_EQ(parsed->tensors[0].offset, begin) << alignment;
  }
  for (const std::string& wrong :
       {Entry("general.alignment", kUint32, Raw<uint32_t>(0)),
        Entry("general.alignment", kUint32, Raw<uint32_t>(33)),
        Entry("general.alignment", kInt32, Raw<int32_t>(-32)),
        Entry("general.alignment", kUint32, Raw<uint32_t>(1 << 21)),
        Entry("general.alignment", kUint64, Raw<uint64_t>(uint64_t{1} << 63)),
        Entry("general.alignment", kFloat32, Raw(32.0F)),
        Entry("general.alignment", kString, Sized("32"))}) {
    EXPECT_THAT(Complaint(File({wrong}, {})), HasSubstr("alignment"));
  }
}

// Whatever a byte is changed to: a file is refused, or all that it places lies within it.
TEST(GgufDamage, NothingEverLiesOutsideTheFile) {
  const std::string whole = SmallModel("qwen3moe").Bytes();
  const size_t header = whole.find("tokenizer.chat_template");
  ASSERT_NE(header, std::string::npos);
  size_t good = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    std::mt19937_64 random(seed);
    std::string bytes = whole;
    for (uint64_t change = random() % 3; change < 3; ++change) {
      // Beginnings of the file, and of its list of tensors, which are behind all metadata.
      const size_t from = random() % 2 == 0 ? 0 : header;
      bytes[from + random() % 4000] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    const auto parsed = Parse(bytes);
    if (!parsed.ok()) {
      const std::string code = ReasonOf(parsed.status()).code();
      ASSERT_TRUE(code == "MODEL_FILE_BROKEN" || code == "MODEL_FORMAT_UNSUPPORTED") << code;
      continue;
    }
    ++good;
    for (const TensorPlace& tensor : parsed->tensors) {
      const BlockForm* form = FindBlockForm(tensor.type);
      if (form == nullptr) continue;
      ASSERT_LE(tensor.offset, bytes.size()) << "seed " << seed;
      ASSERT_LE(tensor.bytes, bytes.size() - tensor.offset) << "seed " << seed;
      ASSERT_EQ(tensor.bytes, tensor.rows * (tensor.columns / form->elements * form->bytes));
    }
  }
  EXPECT_GT(good, 0u) << "some changes do no harm";
}

// ---- models of several files

class GgufParts : public testing::Test {
 protected:
  // Part `part` of `count`, with one tensor of that name.
  std::string Put(int part, int count, const std::string& tensor, GgufWriter writer = {}) {
    writer.Tensor(tensor, 0, {1}, FloatBytesOf({static_cast<float>(part)}));
    const std::string path = PathOf(part, count);
    std::ofstream(path, std::ios::binary) << writer.Bytes();
    return path;
  }
  std::string PathOf(int part, int count) const {
    char name[64];
    std::snprintf(name, sizeof(name), "/m-%05d-of-%05d.gguf", part, count);
    return folder_ + name;
  }
  static GgufWriter Counting(uint32_t parts, uint32_t tensors = 0) {
    GgufWriter writer;
    writer.Integer("split.count", parts);
    if (tensors > 0) writer.Integer("split.tensors.count", tensors);
    return writer;
  }
  v1::Reason WhyNot(int count) const {
    return ReasonOf(GgufModel::Open(PathOf(1, count)).status());
  }

  const std::string folder_ = std::filesystem::path(WriteGguf("unused", "")).parent_path().string();
};

TEST_F(GgufParts, EachTensorIsReadFromItsOwnFile) {
  Put(1, 12, "t1", Counting(12, 12));
  for (int part = 2; part <= 12; ++part) Put(part, 12, absl::StrCat("t", part));
  const auto model = GgufModel::Open(PathOf(1, 12));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->tensors().size(), 12u);
  for (int part = 1; part <= 12; ++part) {
    const auto* tensor = (*model)->FindTensor(absl::StrCat("t", part));
    ASSERT_NE(tensor, nullptr) << part;
    EXPECT_EQ(FloatAt(*FindBlockForm(0), tensor->data, 0), static_cast<float>(part));
  }
}

TEST_F(GgufParts, ThePartThatIsMissingOrBrokenIsNamed) {
  Put(1, 3, "a", Counting(3));
  Put(2, 3, "b");
  EXPECT_EQ(WhyNot(3).code(), "MODEL_FILE_MISSING");
  EXPECT_THAT(WhyNot(3).message(), HasSubstr(PathOf(3, 3)));
  std::ofstream(PathOf(3, 3)) << "no GGUF at all";
  EXPECT_EQ(WhyNot(3).code(), "MODEL_FORMAT_UNSUPPORTED");
  EXPECT_THAT(WhyNot(3).message(), HasSubstr(PathOf(3, 3)));
  const std::string whole = Counting(1).Bytes();
  std::ofstream(PathOf(3, 3), std::ios::trunc) << whole.substr(0, 20);
  EXPECT_EQ(WhyNot(3).code(), "MODEL_FILE_BROKEN");
  EXPECT_THAT(WhyNot(3).message(), HasSubstr(PathOf(3, 3)));
}

TEST_F(GgufParts, ThatContradictEachOtherAreRefused) {
  Put(1, 2, "a", Counting(2, 2));
  Put(2, 2, "a");
  EXPECT_THAT(WhyNot(2).message(), AllOf(HasSubstr(PathOf(2, 2)), HasSubstr("'a' is there twice")));
  Put(1, 2, "a", Counting(2, 5));
  Put(2, 2, "b");
  EXPECT_EQ(WhyNot(2).code(), "MODEL_FILE_BROKEN");
  EXPECT_THAT(WhyNot(2).message(), HasSubstr("hold 2 tensors, not 5"));
}

TEST_F(GgufParts, MoreThanAnyModelHasAreNotLookedFor) {
  Put(1, 1001, "a", Counting(kPartsMax + 1));
  EXPECT_EQ(WhyNot(1001).code(), "MODEL_FILE_BROKEN");
  EXPECT_THAT(WhyNot(1001).message(), HasSubstr("1001 parts"));
}

TEST_F(GgufParts, AnotherPartThanTheFirstSaysWhichToName) {
  Put(1, 2, "a", Counting(2));
  const auto second = GgufModel::Open(Put(2, 2, "b", Counting(2)));
  EXPECT_EQ(ReasonOf(second.status()).code(), "MODEL_FILE_MISSING");
  EXPECT_THAT(ReasonOf(second.status()).message(), HasSubstr(PathOf(2, 2)));
  EXPECT_THAT(ReasonOf(second.status()).remedy(), HasSubstr("-00001-of-00002.gguf"));
}

}  // namespace
}  // namespace macrame::runtime::gguf
