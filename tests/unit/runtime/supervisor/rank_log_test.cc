#include "runtime/supervisor/rank_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace macrame::runtime {
namespace {

TEST(RankLog, TwoFilesBoundIt) {
  const std::string path = testing::TempDir() + "rank_log_test." + std::to_string(getpid());
  {
    RankLog log(path, 100);
    for (int i = 0; i < 50; ++i) log.Write("0123456789");
  }
  EXPECT_LE(std::filesystem::file_size(path), 110u);
  EXPECT_EQ(std::filesystem::file_size(path + ".1"), 100u);
  std::filesystem::remove(path);
  std::filesystem::remove(path + ".1");
}

TEST(RankLog, AFolderThatIsNotThereIsNoError) {
  RankLog log("/nonexistent/folder/log", 100);
  log.Write("lost");
}

}  // namespace
}  // namespace macrame::runtime
