#include "runtime/model_files/file_integrity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tests/unit/fresh_folder.h"

namespace macrame::runtime {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Of "hello\n": by sha256sum, and by git hash-object.
constexpr char kHello[] = "hello\n";
constexpr char kHelloSha256[] = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
constexpr char kHelloGitBlob[] = "ce013625030ba8dba906f756967f9e9ca394464a";

class FileIntegrityTest : public ::testing::Test {
 protected:
  FileIntegrityTest() : folder_(FreshFolder()) {}

  void Write(const fs::path& name, const std::string& bytes) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  void NoteDownload(const std::string& name, const std::string& checksum) const {
    Write(".cache/huggingface/download/" + name + ".metadata",
          "0123456789abcdef0123456789abcdef01234567\n" + checksum + "\n1760000000.5\n");
  }
  // A shard of one tensor of `bytes` bytes.
  static std::string Shard(size_t bytes) {
    const std::string header = R"({"__metadata__":{"format":"mlx"},"w":{"dtype":"U8","shape":[)" +
                               std::to_string(bytes) + R"(],"data_offsets":[0,)" +
                               std::to_string(bytes) + "]}}";
    std::string size(8, '\0');
    size[0] = static_cast<char>(header.size());
    return size + header + std::string(bytes, 'x');
  }
  std::map<std::string, v1::ModelFile> Read() const {
    std::map<std::string, v1::ModelFile> files;
    const auto answer =
        ReadModelFiles("org/m", folder_.string(), [](uint64_t, uint64_t) { return true; });
    EXPECT_TRUE(answer.ok()) << answer.status();
    if (!answer.ok()) return files;
    EXPECT_EQ(answer->model(), "org/m");
    for (const v1::ModelFile& file : answer->files()) files[file.name()] = file;
    return files;
  }

  fs::path folder_;
};

// A hang is what this test fails by: no program ever writes into the pipes.
TEST_F(FileIntegrityTest, PipesAndDevicesAreReportedAndNotRead) {
  Write("a.json", kHello);
  fs::create_directories(folder_ / ".cache/huggingface/download");
  const fs::path note = folder_ / ".cache/huggingface/download/a.json.metadata";
  ASSERT_EQ(::mkfifo(note.c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((folder_ / "b.safetensors").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", folder_ / "c.json");
  auto files = Read();
  EXPECT_EQ(files["a.json"].state(), v1::MODEL_FILE_STATE_READ) << "there is no note";
  EXPECT_EQ(files["b.safetensors"].state(), v1::MODEL_FILE_STATE_UNREADABLE);
  EXPECT_THAT(files["b.safetensors"].note(), HasSubstr("b.safetensors is a pipe, not a file"));
  EXPECT_THAT(files["c.json"].note(), HasSubstr("c.json is a device, not a file"));
}

TEST_F(FileIntegrityTest, AFileIsHeldAgainstWhatItsDownloadNoted) {
  Write("a.json", kHello);
  NoteDownload("a.json", kHelloGitBlob);
  Write("b.txt", kHello);
  NoteDownload("b.txt", kHelloSha256);
  Write("c.json", "hullo\n");
  NoteDownload("c.json", kHelloSha256);
  Write("d.json", kHello);
  NoteDownload("d.json", "an-etag-of-another-kind");
  const auto files = Read();
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files.at("a.json").state(), v1::MODEL_FILE_STATE_AS_DOWNLOADED);
  EXPECT_EQ(files.at("a.json").sha256(), kHelloSha256);
  EXPECT_EQ(files.at("b.txt").state(), v1::MODEL_FILE_STATE_AS_DOWNLOADED);
  EXPECT_EQ(files.at("c.json").state(), v1::MODEL_FILE_STATE_ALTERED);
  EXPECT_THAT(files.at("c.json").note(), HasSubstr(kHelloSha256));
  EXPECT_EQ(files.at("d.json").state(), v1::MODEL_FILE_STATE_READ);
}

TEST_F(FileIntegrityTest, ABlobOfTheHubsCacheIsNamedByItsChecksum) {
  Write(fs::path("blobs") / kHelloSha256, kHello);
  const fs::path snapshot = folder_ / "snapshots" / "r";
  fs::create_directories(snapshot);
  fs::create_symlink(fs::path("../../blobs") / kHelloSha256, snapshot / "a.json");
  fs::create_symlink(fs::path("../../blobs") / kHelloGitBlob, snapshot / "gone.json");
  folder_ = snapshot;
  const auto files = Read();
  EXPECT_EQ(files.at("a.json").state(), v1::MODEL_FILE_STATE_AS_DOWNLOADED);
  EXPECT_EQ(files.at("gone.json").state(), v1::MODEL_FILE_STATE_MISSING);
  folder_ = snapshot.parent_path().parent_path();
}

TEST_F(FileIntegrityTest, AShardSaysItselfHowLongItIs) {
  const std::string whole = Shard(1000);
  Write("whole.safetensors", whole);
  Write("short.safetensors", whole.substr(0, whole.size() - 1));
  Write("header.safetensors", whole.substr(0, 40));
  Write("long.safetensors", whole + "x");
  Write("empty.safetensors", "");
  const auto files = Read();
  EXPECT_EQ(files.at("whole.safetensors").state(), v1::MODEL_FILE_STATE_READ);
  for (const char* name : {"short.safetensors", "header.safetensors", "empty.safetensors"}) {
    EXPECT_EQ(files.at(name).state(), v1::MODEL_FILE_STATE_TRUNCATED) << name;
  }
  EXPECT_THAT(files.at("short.safetensors").note(),
              HasSubstr("of " + std::to_string(whole.size()) + " bytes"));
  EXPECT_EQ(files.at("long.safetensors").state(), v1::MODEL_FILE_STATE_ALTERED);
}

// Bytes that were changed in the header say nothing of the file's length.
TEST_F(FileIntegrityTest, AShardWhoseHeaderWasEditedIsAlteredAndNotCutShort) {
  const std::string whole = Shard(1000);
  const auto with = [&](size_t at, const std::string& bytes) {
    std::string edited = whole;
    return edited.replace(at, bytes.size(), bytes);
  };
  Write("size.safetensors", with(0, "\x7f"));
  Write("large.safetensors", with(2, "\x01"));
  Write("huge.safetensors", with(7, "\x01"));
  Write("text.safetensors", with(8, "!"));
  for (const auto& [name, file] : Read()) {
    EXPECT_EQ(file.state(), v1::MODEL_FILE_STATE_ALTERED) << name;
    EXPECT_THAT(file.note(), HasSubstr("header")) << name;
  }
}

TEST_F(FileIntegrityTest, ShardsSayByTheirNamesHowManyTheyAre) {
  Write("model-00001-of-00003.safetensors", Shard(8));
  Write("model-00003-of-00003.safetensors", Shard(8));
  Write("odd-of-one.safetensors", Shard(8));
  const auto files = Read();
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files.at("model-00002-of-00003.safetensors").state(), v1::MODEL_FILE_STATE_MISSING);
}

TEST_F(FileIntegrityTest, WhatIsNoPartOfAModelIsLeftAlone) {
  Write("README.md", "text");
  Write(".gitattributes", "text");
  Write("config.json", "{}");
  fs::create_directories(folder_ / "folder.json");
  EXPECT_EQ(Read().size(), 1u);
}

TEST_F(FileIntegrityTest, ReadingTellsHowFarItIsAndEndsWhenTold) {
  Write("a.safetensors", Shard(200));
  Write("b.json", kHello);
  uint64_t last = 0, total = 0;
  const auto read = ReadModelFiles("m", folder_.string(), [&](uint64_t done, uint64_t all) {
    EXPECT_GT(done, last);
    last = done;
    total = all;
    return true;
  });
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(last, total);
  EXPECT_EQ(read->bytes_read(), total);
  int calls = 0;
  const auto ended = ReadModelFiles("m", folder_.string(), [&](uint64_t, uint64_t) {
    ++calls;
    return false;
  });
  EXPECT_TRUE(absl::IsCancelled(ended.status()));
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(
      absl::IsNotFound(ReadModelFiles("m", (folder_ / "none").string(), [](uint64_t, uint64_t) {
                         return true;
                       }).status()));
}

TEST(BytesByHeader, OddHeadersSayNothing) {
  EXPECT_EQ(BytesByHeader(""), 0u);
  EXPECT_EQ(BytesByHeader("{}"), 0u);
  EXPECT_EQ(BytesByHeader(R"({"w":{"data_offsets":[0,99999999999999999999999]}})"), 0u);
  EXPECT_EQ(BytesByHeader(R"({"w":{"data_offsets")"), 0u);
  const std::string header = R"({"v":{"data_offsets": [ 4 , 12 ]},"w":{"data_offsets":[0,4]}})";
  EXPECT_EQ(BytesByHeader(header), 8 + header.size() + 12);
}

}  // namespace
}  // namespace macrame::runtime
