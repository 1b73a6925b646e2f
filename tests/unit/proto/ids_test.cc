#include "proto/ids.h"

#include <gtest/gtest.h>

namespace macrame {
namespace {

TEST(NodeId, OnlyThirtyTwoLowerCaseHexDigitsAreOne) {
  EXPECT_TRUE(IsValidNodeId("0123456789abcdef0123456789abcdef"));
  EXPECT_FALSE(IsValidNodeId("0123456789ABCDEF0123456789abcdef"));
  EXPECT_FALSE(IsValidNodeId("0123456789abcdef0123456789abcde"));
  EXPECT_FALSE(IsValidNodeId("0123456789abcdef0123456789abcdefa"));
  EXPECT_FALSE(IsValidNodeId("../../../../../../etc/passwd0000"));
  EXPECT_FALSE(IsValidNodeId(""));
}

TEST(NodeId, FourOfItsFirstDigitsMayMeanIt) {
  constexpr std::string_view kId = "0123456789abcdef0123456789abcdef";
  EXPECT_TRUE(IsBeginningOfId("0123", kId));
  EXPECT_TRUE(IsBeginningOfId(kId, kId));
  EXPECT_FALSE(IsBeginningOfId("012", kId));
  EXPECT_FALSE(IsBeginningOfId("", kId));
  EXPECT_FALSE(IsBeginningOfId("1234", kId));
  EXPECT_FALSE(IsBeginningOfId(std::string(kId) + "0", kId));
}

TEST(FencePair, TheTermDecidesThenTheCoordinatorSoNoTwoTie) {
  const FencePair old_term{Term(3), NodeId("ffff")};
  const FencePair low{Term(4), NodeId("aaaa")};
  const FencePair high{Term(4), NodeId("bbbb")};
  EXPECT_LT(old_term, low);
  EXPECT_LT(low, high);
  EXPECT_NE(low, high);
}

}  // namespace
}  // namespace macrame
