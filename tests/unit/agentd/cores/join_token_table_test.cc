#include "agentd/cores/join_token_table.h"

#include <gtest/gtest.h>

#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using std::chrono::seconds;

const MonotonicTime kStart = MonotonicTime() + std::chrono::hours(1);
constexpr char kId[] = "00112233aabbccdd";

JoinPass Pass(uint32_t uses, bool approve = false) {
  JoinPass pass;
  pass.id = kId;
  pass.secret = std::string(32, 's');
  pass.expires = kStart + std::chrono::hours(1);
  pass.uses_left = uses;
  pass.approve = approve;
  return pass;
}

JoinAsker Asker(char digit, const std::string& hostname = "bess") {
  return {NodeId(std::string(32, digit)), hostname, "10.0.0.7", std::string(1, digit)};
}

std::string Code(const absl::Status& status) { return ReasonOf(status).code(); }

TEST(JoinTokenTableTest, OneUseIsOneNodeWhichMayAskAgain) {
  JoinTokenTable table;
  ASSERT_TRUE(table.Add(Pass(1), kStart).ok());
  EXPECT_EQ(*table.Take(kId, Asker('a'), kStart), JoinVerdict::kIssue);
  // Its answer may have been lost.
  EXPECT_EQ(*table.Take(kId, Asker('a'), kStart + seconds(1)), JoinVerdict::kIssue);
  EXPECT_EQ(Code(table.Take(kId, Asker('b'), kStart + seconds(1)).status()), "TOKEN_USED");
  // The same node with another key is another one.
  JoinAsker other_key = Asker('a');
  other_key.request_digest = "z";
  EXPECT_EQ(Code(table.Take(kId, other_key, kStart + seconds(1)).status()), "TOKEN_USED");
}

TEST(JoinTokenTableTest, AUsedTokenIsGoneSoonAndAnExpiredOneAtOnce) {
  JoinTokenTable table;
  ASSERT_TRUE(table.Add(Pass(1), kStart).ok());
  EXPECT_TRUE(table.Expects(kStart + std::chrono::minutes(59)));
  EXPECT_NE(table.Find(kId, kStart), nullptr);
  ASSERT_TRUE(table.Take(kId, Asker('a'), kStart).ok());
  EXPECT_TRUE(table.Expects(kStart + kUsedTokenKept - seconds(1)));
  EXPECT_FALSE(table.Expects(kStart + kUsedTokenKept));
  EXPECT_EQ(table.Find(kId, kStart + kUsedTokenKept), nullptr);

  JoinTokenTable later;
  ASSERT_TRUE(later.Add(Pass(2), kStart).ok());
  EXPECT_FALSE(later.Expects(kStart + std::chrono::hours(1)));
  EXPECT_FALSE(later.Take(kId, Asker('a'), kStart + std::chrono::hours(1)).ok());
}

TEST(JoinTokenTableTest, TheTokenOfWhoWasRevokedLetsNobodyInAnyMore) {
  JoinTokenTable table;
  ASSERT_TRUE(table.Add(Pass(5), kStart).ok());
  ASSERT_TRUE(table.Take(kId, Asker('b'), kStart).ok());
  table.ForgetTokensOf(Asker('a').node);
  EXPECT_NE(table.Find(kId, kStart), nullptr) << "it did not come with this one";
  table.ForgetTokensOf(Asker('b').node);
  EXPECT_EQ(table.Find(kId, kStart), nullptr);
}

TEST(JoinTokenTableTest, WhoFailsTooOftenWaitsAMinuteAndOthersDoNot) {
  JoinTokenTable table;
  ASSERT_TRUE(table.Add(Pass(1), kStart).ok());
  for (size_t i = 0; i < kFailuresPerAddressMax; ++i) {
    ASSERT_TRUE(table.MayTry("10.0.0.66", kStart).ok()) << i;
    table.NoteFailure("10.0.0.66", kStart);
  }
  EXPECT_EQ(Code(table.MayTry("10.0.0.66", kStart)), "JOIN_LIMITED");
  EXPECT_TRUE(table.MayTry("10.0.0.7", kStart).ok());
  EXPECT_TRUE(table.MayTry("10.0.0.66", kStart + kAttemptWindow + seconds(1)).ok());
}

TEST(JoinTokenTableTest, FailuresFromOneIp6NetworkCountTogether) {
  JoinTokenTable table;
  ASSERT_TRUE(table.Add(Pass(1), kStart).ok());
  for (size_t i = 0; i < kFailuresPerAddressMax; ++i) {
    table.NoteFailure("2001:db8:1:2::" + std::to_string(i), kStart);
  }
  EXPECT_EQ(Code(table.MayTry("2001:db8:1:2::66", kStart)), "JOIN_LIMITED");
  EXPECT_TRUE(table.MayTry("2001:db8:1:3::66", kStart).ok());
}

TEST(JoinTokenTableTest, FailuresOfManyAddressesAreBoundedInAll) {
  JoinTokenTable table;
  ASSERT_TRUE(table.Add(Pass(1), kStart).ok());
  for (size_t i = 0; i < kFailuresMax; ++i)
    table.NoteFailure("10.1.0." + std::to_string(i), kStart);
  EXPECT_EQ(Code(table.MayTry("10.0.0.7", kStart)), "JOIN_LIMITED");
}

TEST(JoinTokenTableTest, APersonApprovesByNameOrId) {
  JoinTokenTable table;
  ASSERT_TRUE(table.Add(Pass(2, true), kStart).ok());
  EXPECT_EQ(*table.Take(kId, Asker('a', "ada"), kStart), JoinVerdict::kWait);
  EXPECT_EQ(*table.Take(kId, Asker('b', "ada"), kStart), JoinVerdict::kWait);
  EXPECT_EQ(table.Waiting(kStart).size(), 2u);
  EXPECT_EQ(Code(table.Approve("ada", kStart).status()), "NODE_AMBIGUOUS");
  EXPECT_EQ(Code(table.Approve("aaa", kStart).status()), "NODE_NOT_FOUND");
  EXPECT_EQ(table.Approve("aaaa", kStart)->node, Asker('a').node);
  EXPECT_EQ(*table.Take(kId, Asker('a', "ada"), kStart), JoinVerdict::kIssue);
  EXPECT_EQ(*table.Take(kId, Asker('b', "ada"), kStart), JoinVerdict::kWait);
  // Who asks no more has given up.
  const MonotonicTime later = kStart + kJoinWaitingKept + seconds(1);
  EXPECT_TRUE(table.Waiting(later).empty());
  EXPECT_EQ(Code(table.Approve("bbbb", later).status()), "NODE_NOT_FOUND");
}

TEST(JoinTokenTableTest, ApprovalIsOfOneKey) {
  JoinTokenTable table;
  ASSERT_TRUE(table.Add(Pass(2, true), kStart).ok());
  ASSERT_TRUE(table.Take(kId, Asker('a'), kStart).ok());
  ASSERT_TRUE(table.Approve("aaaa", kStart).ok());
  JoinAsker other_key = Asker('a');
  other_key.request_digest = "z";
  EXPECT_EQ(*table.Take(kId, other_key, kStart), JoinVerdict::kWait);
}

}  // namespace
}  // namespace macrame::agentd
