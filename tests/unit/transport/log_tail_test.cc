#include "transport/log_tail.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "tests/unit/fresh_folder.h"

namespace macrame::transport {
namespace {

class LogTailTest : public ::testing::Test {
 protected:
  void Append(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }

  const std::string path_ = FreshFolder() + "/agentd.log";
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

// What is read at once is bounded: a line that is longer must not keep all that follow it back.
TEST_F(LogTailTest, ALineThatIsTooLongIsLeftOutAndTheNextOnesAreGiven) {
  Append("first\n");
  LogTail tail(path_);
  ASSERT_EQ(tail.Last(10).value(), "first\n");
  Append(std::string(2 * kLogTailBytesMax + 7, 'x') + "\nnext\nhalf");
  std::string given;
  for (int reads = 0; reads < 10; ++reads) given += tail.New();
  ASSERT_GE(given.size(), 5u);
  EXPECT_EQ(given.substr(given.size() - 5), "next\n");
  Append(" of it\n");
  EXPECT_EQ(tail.New(), "half of it\n");
}

TEST_F(LogTailTest, MuchThatIsNewComesInPiecesOfWholeLines) {
  LogTail tail(path_);
  EXPECT_EQ(tail.New(), "");
  std::string text;
  for (int i = 0; text.size() < 3 * kLogTailBytesMax; ++i) text += std::to_string(i) + " line\n";
  Append(text);
  std::string given;
  for (std::string piece = tail.New(); !piece.empty(); piece = tail.New()) {
    EXPECT_LE(piece.size(), kLogTailBytesMax);
    EXPECT_EQ(piece.back(), '\n');
    given += piece;
  }
  EXPECT_EQ(given, text);
}

TEST_F(LogTailTest, AFileThatIsGoneForAMomentIsReadWhenItIsBack) {
  Append("one\n");
  LogTail tail(path_);
  ASSERT_EQ(tail.Last(1).value(), "one\n");
  ASSERT_EQ(std::remove(path_.c_str()), 0);
  EXPECT_EQ(tail.New(), "");
  Append("2\n");
  EXPECT_EQ(tail.New(), "2\n");
}

TEST_F(LogTailTest, NoLineAskedForIsNoneGiven) {
  Append("one\ntwo\n");
  LogTail tail(path_);
  EXPECT_EQ(tail.Last(0).value(), "");
  Append("three\n");
  EXPECT_EQ(tail.New(), "three\n");
  std::ofstream(path_, std::ios::trunc);
  EXPECT_EQ(LogTail(path_).Last(5).value(), "");
}

TEST_F(LogTailTest, AFileThatIsNotThereIsSaidToBeMissing) {
  const auto last = LogTail(path_ + ".none").Last(1);
  EXPECT_EQ(last.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(last.status().message()).find(".none"), std::string::npos);
}

}  // namespace
}  // namespace macrame::transport
