#include "proto/near_miss.h"

#include <gtest/gtest.h>

namespace macrame {
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
  EXPECT_EQ(NearMiss("STATUS", names), "status");
  EXPECT_EQ(NearMiss("xyzzy", names), "");
  EXPECT_EQ(NearMiss("", names), "");
  EXPECT_EQ(NearMiss(std::string(100'000, 'a'), names), "");
  EXPECT_EQ(NearMiss("a", {std::string(100'000, 'a')}), "");
}

TEST(NearMiss, IsSaidBehindTheError) {
  EXPECT_EQ(DidYouMean("strater", {"starter", "enterprise"}), "; did you mean 'starter'?");
  EXPECT_EQ(DidYouMean("palace", {"starter", "enterprise"}), "");
}

TEST(NearMiss, LongListsAreCutAndSaySo) {
  EXPECT_EQ(NameList({"a", "b"}), "a, b");
  const std::string list = NameList(std::vector<std::string>(1000, "n"));
  EXPECT_LT(list.size(), 100u);
  EXPECT_TRUE(list.ends_with(" and 976 more")) << list;
}

}  // namespace
}  // namespace macrame
