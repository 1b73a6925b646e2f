#include "runtime/gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "proto/reasons.h"
#include "tests/unit/fresh_folder.h"
#include "tests/unit/runtime/gguf/gguf_writer.h"

namespace macrame::runtime::gguf {
namespace {

using testing::HasSubstr;

absl::StatusOr<GgufHeader> Parse(const std::string& bytes) {
  return ParseGguf({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "x.gguf");
}

std::string CodeOf(const std::string& bytes) { return ReasonOf(Parse(bytes).status()).code(); }
std::string MessageOf(const std::string& bytes) {
  return std::string(Parse(bytes).status().message());
}

TEST(GgufFile, MetadataAndTensorsAreFound) {
  GgufWriter writer;
  writer.Text("a", "text").Integer("b", 7).Number("c", 0.5F).Flag("d", true);
  writer.Texts("e", {"x", "yz"}).Integers("f", {-1, 2}).Numbers("g", {1.5F});
  writer.Tensor("v", 0, {3}, FloatBytesOf({1, 2, 3}))
      .Tensor("m", 0, {2, 2}, FloatBytesOf({4, 5, 6, 7}));
  const auto model = GgufModel::Open(WriteGguf("m.gguf", writer.Bytes()));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->Text("a"), "text");
  EXPECT_EQ((*model)->Integer("b"), 7);
  EXPECT_EQ((*model)->Number("b"), 7.0);
  EXPECT_EQ((*model)->Number("c"), 0.5);
  EXPECT_EQ((*model)->Flag("d"), true);
  EXPECT_THAT(*(*model)->Texts("e"), testing::ElementsAre("x", "yz"));
  EXPECT_THAT(*(*model)->Integers("f"), testing::ElementsAre(-1, 2));
  EXPECT_THAT(*(*model)->Numbers("g"), testing::ElementsAre(1.5));
  EXPECT_EQ((*model)->Integer("a"), std::nullopt) << "another kind";
  const GgufModel::Tensor* matrix = (*model)->FindTensor("m");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->columns, 2u);
  EXPECT_EQ(matrix->rows, 2u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(matrix->data), matrix->bytes),
            FloatBytesOf({4, 5, 6, 7}));
}

TEST(GgufFile, CutAnywhereItIsBroken) {
  const std::string whole = SmallModel("llama").Bytes();
  for (size_t size = 4; size < whole.size(); size += size < 2000 ? 1 : 997) {
    EXPECT_EQ(CodeOf(whole.substr(0, size)), "MODEL_FILE_BROKEN") << size;
  }
  EXPECT_TRUE(Parse(whole).ok());
}

TEST(GgufFile, OtherFilesAreNotTaken) {
  EXPECT_EQ(CodeOf("GGML and so on, and on"), "MODEL_FORMAT_UNSUPPORTED");
  GgufWriter old = SmallModel("llama");
  old.version = 1;
  EXPECT_THAT(MessageOf(old.Bytes()), HasSubstr("version 1"));
  old.version = 3U << 24;
  EXPECT_THAT(MessageOf(old.Bytes()), HasSubstr("big-endian"));
  const auto missing = GgufModel::Open("/nowhere/m.gguf");
  EXPECT_EQ(ReasonOf(missing.status()).code(), "MODEL_FILE_MISSING");
  EXPECT_EQ(ReasonOf(GgufModel::Open(FreshFolder()).status()).code(), "MODEL_FILE_BROKEN");
  EXPECT_EQ(ReasonOf(GgufModel::Open(WriteGguf("empty.gguf", "")).status()).code(),
            "MODEL_FILE_BROKEN");
}

// Sizes that a file declares are held against the file before they are used.
// A hang is what this test fails by: nobody ever writes into the pipe.
TEST(GgufFile, WhatIsNoFileIsRefusedAtOnceWithWhatItIs) {
  const std::string folder = FreshFolder();
  const std::string pipe = folder + "/pipe.gguf", link = folder + "/link.gguf";
  const std::string socket_path = folder + "/s.gguf";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink(pipe, link);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(socket_path.size(), sizeof(address.sun_path));
  std::copy(socket_path.begin(), socket_path.end(), address.sun_path);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  for (const auto& [path, kind] : {std::pair<std::string, const char*>{pipe, "a pipe"},
                                   {link, "a pipe"},
                                   {socket_path, "a socket"},
                                   {"/dev/zero", "a device"},
                                   {folder, "a folder"}}) {
    const absl::Status refused = GgufModel::Open(path).status();
    EXPECT_EQ(ReasonOf(refused).code(), "MODEL_FILE_BROKEN") << refused;
    EXPECT_THAT(ReasonOf(refused).message(), HasSubstr(path + " is " + kind + ", not a file"));
    EXPECT_THAT(ReasonOf(refused).remedy(), HasSubstr("name the file itself"));
  }
  ::close(listener);
}

TEST(GgufFile, APipeInThePlaceOfALaterPartIsRefusedToo) {
  GgufWriter first;
  first.Integer("split.count", 2);
  const std::string path = WriteGguf("m-00001-of-00002.gguf", first.Bytes());
  const std::string second =
      (std::filesystem::path(path).parent_path() / "m-00002-of-00002.gguf").string();
  ASSERT_EQ(::mkfifo(second.c_str(), 0600), 0);
  EXPECT_THAT(ReasonOf(GgufModel::Open(path).status()).message(),
              HasSubstr(second + " is a pipe, not a file"));
}

TEST(GgufFile, LiesAboutSizesAreFound) {
  const uint64_t huge = uint64_t{1} << 39;
  GgufWriter writer;
  writer.Tensor("t", 0, {huge, huge}, "");
  EXPECT_THAT(MessageOf(writer.Bytes()), HasSubstr("'t' goes beyond the end"));
  writer.Tensor("t", 0, {2, huge, huge, huge}, "");
  EXPECT_THAT(MessageOf(writer.Bytes()), HasSubstr("'t' has a side"));
  writer.Tensor("t", 0, {0}, "");
  EXPECT_THAT(MessageOf(writer.Bytes()), HasSubstr("a side of 0"));
  writer.Tensor("t", 2, {33}, std::string(64, 'x'));
  EXPECT_THAT(MessageOf(writer.Bytes()), HasSubstr("no whole blocks of Q4_0"));
  std::string text = GgufWriter().Text("k", "v").Bytes();
  text.replace(text.find('v') - 8, 8, std::string(7, '\xFF') + "\x7F");
  EXPECT_EQ(CodeOf(text), "MODEL_FILE_BROKEN");
  std::string array = GgufWriter().Integers("k", {1}).Bytes();
  array.replace(array.find("k") + 9, 8, std::string(6, '\xFF') + std::string(2, '\0'));
  EXPECT_THAT(MessageOf(array), HasSubstr("an array of"));
  GgufWriter alignment;
  EXPECT_THAT(MessageOf(alignment.Integer("general.alignment", 48).Bytes()),
              HasSubstr("alignment"));
}

TEST(GgufFile, PartsAreOneModel) {
  GgufWriter first, second;
  first.Integer("split.count", 2).Integer("split.tensors.count", 2);
  first.Tensor("a", 0, {1}, FloatBytesOf({1}));
  second.Tensor("b", 0, {1}, FloatBytesOf({2}));
  const std::string path = WriteGguf("m-00001-of-00002.gguf", first.Bytes());
  const std::string folder = std::filesystem::path(path).parent_path().string();
  EXPECT_EQ(ReasonOf(GgufModel::Open(path).status()).code(), "MODEL_FILE_MISSING");
  std::ofstream(folder + "/m-00002-of-00002.gguf", std::ios::binary) << second.Bytes();
  const auto model = GgufModel::Open(path);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_NE((*model)->FindTensor("a"), nullptr);
  EXPECT_NE((*model)->FindTensor("b"), nullptr);
  const std::string other = WriteGguf("renamed.gguf", first.Bytes());
  EXPECT_THAT(std::string(GgufModel::Open(other).status().message()),
              HasSubstr("name the first part, which ends in -00001-of-00002.gguf"));
}

}  // namespace
}  // namespace macrame::runtime::gguf
