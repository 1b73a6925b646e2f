#include "runtime/supervisor/rank_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "tests/unit/fresh_folder.h"

namespace macrame::runtime {
namespace {

TEST(RankLog, TwoFilesBoundIt) {
  const std::string path = FreshFolder() + "/rank.log";
  {
    RankLog log(path, 100);
    for (int i = 0; i < 50; ++i) log.Write("0123456789");
  }
  EXPECT_LE(std::filesystem::file_size(path), 110u);
  EXPECT_EQ(std::filesystem::file_size(path + ".1"), 100u);
}

TEST(RankLog, OneThatTakesNoMoreKeepsItsBeginning) {
  const std::string path = FreshFolder() + "/rank.log";
  {
    RankLog log(path, 25, FullLog::kTakesNoMore);
    for (int i = 0; i < 50; ++i) log.Write("0123456789");
  }
  std::ifstream file(path, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "0123456789012345678901234");
  EXPECT_FALSE(std::filesystem::exists(path + ".1"));
}

namespace fs = std::filesystem;

class RankLogFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = FreshFolder();
    path_ = folder_ + "/m-rank0.log";
  }
  static std::string TextOf(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }

  std::string folder_, path_;
};

// The two files together are always the end of what was written, however it was cut into pieces.
TEST_F(RankLogFiles, HoldTheEndOfWhatWasWrittenInItsOrder) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    const uint64_t most = 1 + random() % 200;
    size_t largest = 0;
    std::string all;
    {
      RankLog log(path_, most);
      for (int i = 0; i < 60; ++i) {
        std::string piece(random() % 40, '\0');
        for (char& letter : piece) letter = static_cast<char>('a' + random() % 26);
        largest = std::max(largest, piece.size());
        log.Write(piece);
        all += piece;
        ASSERT_LT(fs::file_size(path_), most + largest + 1) << "seed " << seed;
      }
    }
    const std::string kept = TextOf(path_ + ".1") + TextOf(path_);
    EXPECT_EQ(kept, all.substr(all.size() - kept.size())) << "seed " << seed;
    EXPECT_GE(kept.size(), std::min<size_t>(all.size(), most)) << "seed " << seed;
    fs::remove(path_);
    fs::remove(path_ + ".1");
  }
}

// The rank of the next epoch writes behind the last one's words, not over them.
TEST_F(RankLogFiles, GoOnWhereTheRankBeforeEnded) {
  { RankLog(path_, 100).Write("first rank\n"); }
  { RankLog(path_, 100).Write("second rank\n"); }
  EXPECT_EQ(TextOf(path_), "first rank\nsecond rank\n");
  EXPECT_FALSE(fs::exists(path_ + ".1"));
  std::ofstream(path_, std::ios::app) << std::string(200, 'x');
  { RankLog(path_, 100).Write("third rank\n"); }
  EXPECT_EQ(TextOf(path_), "third rank\n") << "what was too long already was put aside";
  EXPECT_EQ(TextOf(path_ + ".1").size(), 23u + 200u);
}

TEST_F(RankLogFiles, AreTheUsersAlone) {
  RankLog log(path_, 4);
  log.Write("prompt");
  log.Write("answer");
  for (const std::string& path : {path_, path_ + ".1"}) {
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  }
}

// What can't be put aside must not grow for ever.
TEST_F(RankLogFiles, StayBoundedWhereTheOlderOneIsInTheWay) {
  fs::create_directories(path_ + ".1/kept");
  RankLog log(path_, 100);
  for (int i = 0; i < 500; ++i) log.Write("0123456789");
  EXPECT_LE(fs::file_size(path_), 110u);
  EXPECT_TRUE(fs::exists(path_ + ".1/kept"));
}

TEST(RankLog, AFolderThatIsNotThereIsNoError) {
  RankLog log("/nonexistent/folder/log", 100);
  log.Write("lost");
}

}  // namespace
}  // namespace macrame::runtime
