#include "transport/private_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "tests/unit/fresh_folder.h"

namespace macrame::transport {
namespace {

namespace fs = std::filesystem;

class PrivateFileTest : public ::testing::Test {
 protected:
  PrivateFileTest() : folder_(FreshFolder()) {}

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  static void Write(const std::string& path, const std::string& text, mode_t mode) {
    std::ofstream(path, std::ios::binary) << text;
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  }
  static mode_t ModeOf(const fs::path& path) {
    struct stat info {};
    return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
  }
  // What is in the folder, beside `.` and `..`.
  size_t Entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  const fs::path folder_;
};

bool Says(const absl::Status& status, const std::string& words) {
  return std::string(status.message()).find(words) != std::string::npos;
}

TEST_F(PrivateFileTest, AnyBytesAreReadBack) {
  std::string text = "line\r\n";
  for (int byte = 0; byte < 256; ++byte) text.push_back(static_cast<char>(byte));
  for (const std::string& content : {std::string(), std::string("x"), text}) {
    const std::string path = Path("file" + std::to_string(content.size()));
    ASSERT_TRUE(WriteNewPrivateFile(path, content).ok());
    EXPECT_EQ(ReadPrivateFile(path, "secret").value(), content);
  }
}

TEST_F(PrivateFileTest, OnlyItsUserMayReadWhatIsWritten) {
  const mode_t before = ::umask(0);
  EXPECT_TRUE(WriteNewPrivateFile(Path("new/deep/file"), "s").ok());
  EXPECT_TRUE(ReplacePrivateFile(Path("other/file"), "s").ok());
  ::umask(before);
  EXPECT_EQ(ModeOf(Path("new/deep/file")), 0600u);
  EXPECT_EQ(ModeOf(Path("new/deep")), 0700u);
  EXPECT_EQ(ModeOf(Path("other/file")), 0600u);
  EXPECT_EQ(ModeOf(Path("other")), 0700u);
}

TEST_F(PrivateFileTest, AFolderThatIsThereKeepsItsMode) {
  fs::create_directory(Path("shared"));
  ASSERT_EQ(::chmod(Path("shared").c_str(), 0755), 0);
  EXPECT_TRUE(WriteNewPrivateFile(Path("shared/file"), "s").ok());
  EXPECT_EQ(ModeOf(Path("shared")), 0755u);
  EXPECT_TRUE(MakePrivateFolder("").ok());
}

TEST_F(PrivateFileTest, EveryModeThatLetsOthersInIsRefusedWithTheCommandThatHelps) {
  const std::string path = Path("secret");
  for (const mode_t others : {0604, 0602, 0601, 0640, 0620, 0610, 0666, 0777}) {
    Write(path, "s", others);
    const auto read = ReadPrivateFile(path, "cluster secret");
    EXPECT_EQ(read.status().code(), absl::StatusCode::kPermissionDenied) << others;
    EXPECT_TRUE(Says(read.status(), "the cluster secret " + path)) << read.status();
    EXPECT_TRUE(Says(read.status(), "chmod 600 " + path)) << read.status();
  }
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(ReadPrivateFile(path, "cluster secret").value(), "s");
}

TEST_F(PrivateFileTest, ALinkIsAsPrivateAsWhatItLeadsTo) {
  Write(Path("open"), "s", 0644);
  Write(Path("closed"), "s", 0600);
  fs::create_symlink(Path("open"), Path("to_open"));
  fs::create_symlink(Path("closed"), Path("to_closed"));
  EXPECT_EQ(ReadPrivateFile(Path("to_open"), "key").status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ReadPrivateFile(Path("to_closed"), "key").value(), "s");
}

TEST_F(PrivateFileTest, WhatIsMissingIsSaidByKindAndPath) {
  Write(Path("file"), "s", 0600);
  fs::create_symlink(Path("nowhere"), Path("dangling"));
  for (const char* name : {"none", "no/folder/none", "file/below_a_file", "dangling"}) {
    const auto read = ReadPrivateFile(Path(name), "membership");
    EXPECT_EQ(read.status().code(), absl::StatusCode::kNotFound) << name << read.status();
    EXPECT_TRUE(Says(read.status(), "membership at " + Path(name))) << read.status();
  }
}

TEST_F(PrivateFileTest, TheLargestFileIsReadAndOneByteMoreIsNot) {
  Write(Path("largest"), std::string(kPrivateFileBytesMax, 'x'), 0600);
  EXPECT_EQ(ReadPrivateFile(Path("largest"), "key").value().size(), kPrivateFileBytesMax);
  Write(Path("larger"), std::string(kPrivateFileBytesMax + 1, 'x'), 0600);
  const auto read = ReadPrivateFile(Path("larger"), "key");
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Says(read.status(), "too large")) << read.status();
}

TEST_F(PrivateFileTest, AFolderIsNoFile) {
  fs::create_directory(Path("folder"));
  ASSERT_EQ(::chmod(Path("folder").c_str(), 0700), 0);
  const auto read = ReadPrivateFile(Path("folder"), "key");
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Says(read.status(), "not a file")) << read.status();
}

TEST_F(PrivateFileTest, APipeThatNobodyWritesToIsNoFileAndIsNotWaitedFor) {
  const std::string path = Path("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  auto read = std::async(std::launch::async, [&] { return ReadPrivateFile(path, "key").status(); });
  const bool came = read.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  EXPECT_TRUE(came) << "it waits for a writer";
  // Who waits for a writer is let go by one.
  if (!came) std::ofstream(path) << "s";
  EXPECT_EQ(read.get().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PrivateFileTest, ANewFileTakesNobodysPlace) {
  Write(Path("file"), "old", 0600);
  fs::create_symlink(Path("elsewhere"), Path("link"));
  for (const char* name : {"file", "link"}) {
    const absl::Status written = WriteNewPrivateFile(Path(name), "new");
    EXPECT_EQ(written.code(), absl::StatusCode::kAlreadyExists) << name << written;
    EXPECT_TRUE(Says(written, Path(name))) << written;
  }
  EXPECT_EQ(ReadPrivateFile(Path("file"), "key").value(), "old");
  EXPECT_FALSE(fs::exists(Path("elsewhere")));
}

TEST_F(PrivateFileTest, WhereNoFolderCanBeTheFailureNamesThePlace) {
  Write(Path("file"), "s", 0600);
  for (const auto& write : {WriteNewPrivateFile, ReplacePrivateFile}) {
    const absl::Status below = write(Path("file/below/key"), "s");
    EXPECT_EQ(below.code(), absl::StatusCode::kPermissionDenied) << below;
    EXPECT_TRUE(Says(below, Path("file/below"))) << below;
    EXPECT_FALSE(write(Path("file/key"), "s").ok());
  }
  EXPECT_EQ(ReadPrivateFile(Path("file"), "key").value(), "s");
}

TEST_F(PrivateFileTest, WhatIsReplacedIsTheLinkAndNotWhatItLedTo) {
  Write(Path("theirs"), "theirs", 0600);
  fs::create_symlink(Path("theirs"), Path("link"));
  ASSERT_TRUE(ReplacePrivateFile(Path("link"), "ours").ok());
  EXPECT_EQ(ReadPrivateFile(Path("theirs"), "key").value(), "theirs");
  EXPECT_EQ(ReadPrivateFile(Path("link"), "key").value(), "ours");
  EXPECT_FALSE(fs::is_symlink(Path("link")));
}

TEST_F(PrivateFileTest, WhatAnEarlierAttemptLeftIsInNobodysWay) {
  Write(Path("file"), "old", 0600);
  Write(Path("file.new"), "half of a", 0644);
  ASSERT_TRUE(ReplacePrivateFile(Path("file"), "new").ok());
  EXPECT_EQ(ReadPrivateFile(Path("file"), "key").value(), "new");
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(PrivateFileTest, AFolderInThePlaceIsKeptAndNothingIsLeftBehind) {
  fs::create_directories(Path("key/inside"));
  const absl::Status written = ReplacePrivateFile(Path("key"), "s");
  EXPECT_FALSE(written.ok());
  EXPECT_TRUE(Says(written, Path("key"))) << written;
  EXPECT_TRUE(fs::is_directory(Path("key/inside")));
  EXPECT_EQ(Entries(), 1u);
}

TEST_F(PrivateFileTest, AReaderFindsTheOldFileOrTheNewOne) {
  const std::string path = Path("file");
  const auto content = [](int round) {
    return std::string(static_cast<size_t>(1 + round % 7 * 5000), static_cast<char>('a' + round));
  };
  ASSERT_TRUE(WriteNewPrivateFile(path, content(0)).ok());
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done) {
      const auto read = ReadPrivateFile(path, "key");
      ASSERT_TRUE(read.ok()) << read.status();
      ASSERT_FALSE(read->empty());
      ASSERT_EQ(*read, content(read->front() - 'a')) << "parts of two files";
    }
  });
  for (int round = 1; round < 25; ++round) {
    EXPECT_TRUE(ReplacePrivateFile(path, content(round)).ok());
  }
  done = true;
  reader.join();
  EXPECT_EQ(ReadPrivateFile(path, "key").value(), content(24));
}

}  // namespace
}  // namespace macrame::transport
