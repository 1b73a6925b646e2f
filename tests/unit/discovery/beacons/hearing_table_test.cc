#include "discovery/beacons/hearing_table.h"

#include <gtest/gtest.h>

namespace macrame::discovery {
namespace {

using std::chrono::seconds;

const NodeId kSelf("000000000000000000000000000000aa");
const NodeId kPeer("000000000000000000000000000000bb");
const NodeId kThird("000000000000000000000000000000cc");
const MonotonicTime kStart(seconds(3));  // soon after the machine's boot

TEST(HearingTable, NobodyIsToldApartFromNotAnswered) {
  HearingTable table(kSelf);
  table.AddInterface("en0", kStart);
  table.AddInterface("en1", kStart);
  EXPECT_EQ(table.StateOf("en0", kStart + seconds(5)), Hearing::kTooEarly);
  for (int t = 0; t < 20; ++t) table.Heard("en1", kPeer, false, kStart + seconds(t));
  const MonotonicTime now = kStart + seconds(20);
  EXPECT_EQ(table.StateOf("en0", now), Hearing::kHeardNobody);
  EXPECT_EQ(table.StateOf("en1", now), Hearing::kHeardNotAnswered);
  const auto problems = table.Problems(now);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].code(), "HEARD_NOBODY");
  EXPECT_NE(problems[0].message().find("en0"), std::string::npos);
  EXPECT_EQ(problems[1].code(), "NOT_ANSWERED");
  EXPECT_NE(problems[1].message().find("en1"), std::string::npos);
  EXPECT_FALSE(problems[1].remedy().empty());
}

// A machine without the secret is listed with what lets it in; that nobody is heard would be wrong.
TEST(HearingTable, WhereMachinesAreHeardThatAreNoMembersNobodyIsNotSaid) {
  HearingTable table(kSelf);
  table.AddInterface("en0", kStart);
  table.AddInterface("en1", kStart);
  table.HeardOther(kStart + seconds(18));
  EXPECT_TRUE(table.Problems(kStart + seconds(20)).empty());
  EXPECT_EQ(table.Problems(kStart + seconds(40)).size(), 2u) << "it is gone, too";
}

TEST(HearingTable, OneThatHearsUsIsEnough) {
  HearingTable table(kSelf);
  table.AddInterface("en0", kStart);
  for (int t = 0; t < 20; ++t) {
    table.Heard("en0", kPeer, false, kStart + seconds(t));
    table.Heard("en0", kThird, t % 5 == 0, kStart + seconds(t));
  }
  EXPECT_EQ(table.StateOf("en0", kStart + seconds(20)), Hearing::kBothWays);
  EXPECT_TRUE(table.Problems(kStart + seconds(20)).empty());
  // It goes away, and the other one still does not hear us.
  for (int t = 20; t < 50; ++t) table.Heard("en0", kPeer, false, kStart + seconds(t));
  EXPECT_EQ(table.StateOf("en0", kStart + seconds(50)), Hearing::kHeardNotAnswered);
}

TEST(HearingTable, SilenceForgets) {
  HearingTable table(kSelf);
  table.AddInterface("en0", kStart);
  table.Heard("en0", kPeer, true, kStart);
  table.Heard("en9", kThird, true, kStart);  // not an interface of ours
  EXPECT_EQ(table.HeardLately(kStart + seconds(1)), std::vector<NodeId>{kPeer});
  EXPECT_EQ(table.StateOf("en0", kStart + seconds(16)), Hearing::kHeardNobody);
  EXPECT_TRUE(table.HeardLately(kStart + seconds(16)).empty());
  table.RemoveInterface("en0");
  EXPECT_TRUE(table.Problems(kStart + seconds(60)).empty());
}

TEST(HearingTable, IsBounded) {
  HearingTable table(kSelf);
  table.AddInterface("en0", kStart);
  for (int i = 0; i < 1000; ++i) {
    table.Heard("en0", NodeId(std::to_string(i)), true, kStart + std::chrono::milliseconds(i));
  }
  const auto heard = table.HeardLately(kStart + seconds(2));
  EXPECT_EQ(heard.size(), kHeardPerInterfaceMax);
  EXPECT_EQ(heard.front().value(), "999");
}

}  // namespace
}  // namespace macrame::discovery
