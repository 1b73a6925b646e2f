#include "transport/log_tail.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace macrame::transport {
namespace {

class LogTailTest : public ::testing::Test {
 protected:
  void Append(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }

  const std::string path_ = ::testing::TempDir() + "log_tail_" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name();
  void SetUp() override { std::ofstream(path_, std::ios::trunc); }
};

TEST_F(LogTailTest, GivesTheLastWholeLines) {
  Append("one\ntwo\nthree\nhalf");
  EXPECT_EQ(LogTail(path_).Last(2).value(), "two\nthree\n");
  EXPECT_EQ(LogTail(path_).Last(99).value(), "one\ntwo\nthree\n");
}

TEST_F(LogTailTest, GoesOnWhereItStoppedOnceALineIsWhole) {
  Append("one\nha");
  LogTail tail(path_);
  EXPECT_EQ(tail.Last(10).value(), "one\n");
  EXPECT_EQ(tail.New(), "");
  Append("lf\nmore\n");
  EXPECT_EQ(tail.New(), "half\nmore\n");
  EXPECT_EQ(tail.New(), "");
}

TEST_F(LogTailTest, ARotatedFileIsReadFromItsStart) {
  Append("a long line of the old file\n");
  LogTail tail(path_);
  ASSERT_TRUE(tail.Last(10).ok());
  std::ofstream(path_, std::ios::trunc) << "new\n";
  EXPECT_EQ(tail.New(), "new\n");
}

TEST_F(LogTailTest, ALargeFileIsNotReadWhole) {
  std::string text;
  for (int i = 0; i < 40000; ++i) text += "line " + std::to_string(i) + "\n";
  Append(text);
  const std::string last = LogTail(path_).Last(1000000).value();
  EXPECT_LE(last.size(), kLogTailBytesMax);
  EXPECT_EQ(last.rfind("line ", 0), 0u);
  EXPECT_EQ(last.substr(last.size() - 11), "line 39999\n");
}

TEST_F(LogTailTest, AFileThatIsNotThereIsSaidToBeMissing) {
  const auto last = LogTail(path_ + ".none").Last(1);
  EXPECT_EQ(last.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(last.status().message()).find(".none"), std::string::npos);
}

}  // namespace
}  // namespace macrame::transport
