#include "transport/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "tests/unit/fresh_folder.h"

namespace macrame::transport {
namespace {

using ::testing::HasSubstr;

class RegularFileTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Written(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
    return Path(name);
  }

  const std::string folder_ = FreshFolder();
};

TEST_F(RegularFileTest, AFileIsReadWholeUpToItsBound) {
  const std::string path = Written("a", "12345");
  EXPECT_EQ(ReadRegularFile(path, 5).value(), "12345");
  EXPECT_EQ(ReadBeginning(path, 3).value(), "123");
  const absl::Status larger = ReadRegularFile(path, 4).status();
  EXPECT_TRUE(absl::IsOutOfRange(larger)) << larger;
  EXPECT_THAT(std::string(larger.message()), HasSubstr(path + " is larger than 4 bytes"));
  EXPECT_TRUE(absl::IsNotFound(ReadRegularFile(Path("none"), 4).status()));
  EXPECT_EQ(ReadRegularFile(Written("empty", ""), 4).value(), "");
  EXPECT_EQ(RegularFile::Open(path)->size(), 5u);
}

// A hang is what this test fails by: no program ever writes into the pipe.
TEST_F(RegularFileTest, WhatIsNoFileIsNamedAtOnce) {
  const std::string pipe = Path("pipe"), link = Path("link");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink(pipe, link);
  for (const auto& [path, kind] : {std::pair<std::string, std::string>{pipe, "a pipe"},
                                   {link, "a pipe"},
                                   {"/dev/zero", "a device"},
                                   {folder_, "a folder"}}) {
    for (const absl::Status& refused :
         {RegularFile::Open(path).status(), ReadRegularFile(path, 9).status(),
          ReadBeginning(path, 9).status()}) {
      EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
      EXPECT_THAT(std::string(refused.message()), HasSubstr(path + " is " + kind + ", not a file"));
    }
  }
}

TEST_F(RegularFileTest, APipeIsReadWhereACommandMayNameOneAndSomebodyWrites) {
  const std::string pipe = Path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const absl::Status silent = ReadFileOrPipe(pipe, 9).status();
  EXPECT_THAT(std::string(silent.message()), HasSubstr(pipe + " is a pipe that no program writes"));
  EXPECT_THAT(std::string(ReadFileOrPipe("/dev/zero", 9).status().message()),
              HasSubstr("/dev/zero is a device, not a file"));
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "12345", 5), 5);
  ::close(ends[1]);
  EXPECT_EQ(ReadFileOrPipe("/dev/fd/" + std::to_string(ends[0]), 9).value(), "12345");
  ::close(ends[0]);
  EXPECT_EQ(ReadFileOrPipe(Written("a", "12345"), 9).value(), "12345");
}

}  // namespace
}  // namespace macrame::transport
