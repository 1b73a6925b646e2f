#include "proto/suggestions.h"

#include <gtest/gtest.h>

namespace macrame {
namespace {

TEST(SuggestedName, CountsEditsAndSwaps) {
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("status", "status"), 0);
  EXPECT_EQ(EditDistance("stauts", "status"), 1);
  EXPECT_EQ(EditDistance("lod", "load"), 1);
}

TEST(SuggestedName, NamesTheNearestOrNone) {
  const std::vector<std::string> names = {"devices", "status", "model", "plan"};
  EXPECT_EQ(SuggestedName("modle", names), "model");
  EXPECT_EQ(SuggestedName("device", names), "devices");
  EXPECT_EQ(SuggestedName("STATUS", names), "status");
  EXPECT_EQ(SuggestedName("xyzzy", names), "");
  EXPECT_EQ(SuggestedName("", names), "");
  EXPECT_EQ(SuggestedName(std::string(100'000, 'a'), names), "");
  EXPECT_EQ(SuggestedName("a", {std::string(100'000, 'a')}), "");
}

TEST(SuggestedName, IsSaidBehindTheError) {
  EXPECT_EQ(DidYouMean("strater", {"starter", "enterprise"}), "; did you mean 'starter'?");
  EXPECT_EQ(DidYouMean("palace", {"starter", "enterprise"}), "");
}

TEST(SuggestedName, LongListsAreCutAndSaySo) {
  EXPECT_EQ(NameList({"a", "b"}), "a, b");
  const std::string list = NameList(std::vector<std::string>(1000, "n"));
  EXPECT_LT(list.size(), 100u);
  EXPECT_TRUE(list.ends_with(" and 976 more")) << list;
}

}  // namespace
}  // namespace macrame
