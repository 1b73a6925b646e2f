#include "cli/near_miss.h"

#include <gtest/gtest.h>

namespace macrame::cli {
namespace {

TEST(NearMiss, CountsEditsAndSwaps) {
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("status", "status"), 0);
  EXPECT_EQ(EditDistance("stauts", "status"), 1);
  EXPECT_EQ(EditDistance("lod", "load"), 1);
}

TEST(NearMiss, NamesTheNearestOrNone) {
  const std::vector<std::string> names = {"devices", "status", "model", "plan"};
  EXPECT_EQ(NearMiss("modle", names), "model");
  EXPECT_EQ(NearMiss("device", names), "devices");
  EXPECT_EQ(NearMiss("xyzzy", names), "");
  EXPECT_EQ(NearMiss(std::string(100'000, 'a'), names), "");
}

}  // namespace
}  // namespace macrame::cli
