#include "agentd/gateway/access/stored_answers.h"

#include <gtest/gtest.h>

#include "agentd/gateway/access/api_key.h"
#include "agentd/gateway/base/tenant.h"

namespace macrame::agentd {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr uint64_t kHourMs = 3'600'000;
constexpr uint64_t kNow = 1'700'000'000'000;

v1::TenantLimits Tenant(const std::string& name, std::optional<uint32_t> retention_s) {
  v1::TenantLimits tenant;
  tenant.set_name(name);
  if (retention_s.has_value()) tenant.set_retention_s(*retention_s);
  return tenant;
}

RetentionRules RulesOf(const v1::TenantLimits& tenant, seconds otherwise = seconds(0)) {
  return RetentionRules(otherwise, {{tenant.name(), tenant}});
}

const std::string kLaw = OwnerOfTenant("law");
const std::string kArt = OwnerOfTenant("art");

ResponseStore::Text Text(const std::string& text) {
  return std::make_shared<const std::string>(text);
}

class StoredAnswersTest : public ::testing::Test {
 protected:
  void Put(const std::string& id, const std::string& owner, uint64_t now, uint64_t since = 0) {
    answers_.Put(id, {owner, Text("body"), Text("[]"), since}, answers_.Begin(), now);
  }
  bool Has(const std::string& id, const std::string& owner, uint64_t now) {
    return answers_.Find(id, owner, now).has_value();
  }
  StoredAnswers answers_;
};

TEST_F(StoredAnswersTest, ATenantsRetentionEndsItsAnswersAlone) {
  answers_.SetRules(RulesOf(Tenant("law", 3600)), kNow);
  Put("a", kLaw, kNow);
  Put("b", kArt, kNow);
  EXPECT_TRUE(Has("a", kLaw, kNow + kHourMs - 1));
  EXPECT_FALSE(Has("a", kLaw, kNow + kHourMs)) << "not found before the purge, either";
  EXPECT_EQ(answers_.turns(), 2u);
  EXPECT_EQ(answers_.Purge(kNow + kHourMs).turns, 1u);
  EXPECT_EQ(answers_.turns(), 1u);
  EXPECT_TRUE(Has("b", kArt, kNow + 1000 * kHourMs)) << "bounded by number alone";
}

TEST_F(StoredAnswersTest, AnOrderReachesWhatWasStoredBeforeIt) {
  Put("old", kLaw, kNow);
  Put("new", kLaw, kNow + kHourMs);
  const auto dropped = answers_.SetRules(RulesOf(Tenant("law", 3600)), kNow + kHourMs + 1);
  EXPECT_EQ(dropped.turns, 1u);
  EXPECT_EQ(dropped.bytes, kLaw.size() + 6);
  EXPECT_EQ(answers_.turns(), 1u);
  EXPECT_TRUE(Has("new", kLaw, kNow + kHourMs + 1));
}

TEST_F(StoredAnswersTest, ZeroStoresNothing) {
  Put("old", kLaw, kNow);
  EXPECT_EQ(answers_.SetRules(RulesOf(Tenant("law", 0)), kNow).turns, 1u);
  EXPECT_FALSE(answers_.MayStore(kLaw));
  EXPECT_TRUE(answers_.MayStore(kArt));
  Put("new", kLaw, kNow);
  EXPECT_EQ(answers_.turns(), 0u);
}

TEST_F(StoredAnswersTest, AConversationIsAsOldAsItsFirstAnswer) {
  answers_.SetRules(RulesOf(Tenant("law", 3600)), kNow);
  Put("first", kLaw, kNow);
  const auto first = answers_.Find("first", kLaw, kNow + kHourMs / 2);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->since_unix_ms, kNow);
  Put("second", kLaw, kNow + kHourMs / 2, first->since_unix_ms);
  EXPECT_TRUE(Has("second", kLaw, kNow + kHourMs - 1));
  EXPECT_FALSE(Has("second", kLaw, kNow + kHourMs)) << "the first is in it";
  Put("third", kLaw, kNow + kHourMs, kNow);
  answers_.Purge(kNow + kHourMs);
  EXPECT_EQ(answers_.turns(), 0u);
}

TEST_F(StoredAnswersTest, WhatIsUnderWayWhenItsTenantIsErasedIsNotStoredAfterIt) {
  const uint64_t begun = answers_.Begin();
  Put("a", kLaw, kNow);
  Put("b", kLaw, kNow);
  Put("c", kArt, kNow);
  const auto dropped = answers_.EraseOf(kLaw);
  EXPECT_EQ(dropped.turns, 2u);
  EXPECT_EQ(dropped.bytes, 2 * (kLaw.size() + 6));
  answers_.Put("late", {kLaw, Text("body"), Text("[]")}, begun, kNow);
  EXPECT_FALSE(Has("late", kLaw, kNow));
  answers_.Put("other", {kArt, Text("body"), Text("[]")}, begun, kNow);
  EXPECT_TRUE(Has("other", kArt, kNow));
  EXPECT_TRUE(Has("c", kArt, kNow));
  Put("after", kLaw, kNow);
  EXPECT_TRUE(Has("after", kLaw, kNow));
}

TEST_F(StoredAnswersTest, ErasuresAreBoundedTheSafeWay) {
  const uint64_t begun = answers_.Begin();
  answers_.EraseOf(kLaw);
  for (size_t i = 0; i < kErasedOwnersMax; ++i) answers_.EraseOf(std::to_string(i));
  answers_.Put("late", {kLaw, Text("body"), Text("[]")}, begun, kNow);
  EXPECT_EQ(answers_.turns(), 0u) << "forgotten erasures hold for all that began before";
  Put("new", kLaw, kNow);
  EXPECT_EQ(answers_.turns(), 1u);
}

TEST_F(StoredAnswersTest, AClockThatWasSetBackKeepsNothingLonger) {
  answers_.SetRules(RulesOf(Tenant("law", 3600)), kNow);
  Put("a", kLaw, kNow);
  EXPECT_TRUE(Has("a", kLaw, kNow - kClockSlackMs));
  EXPECT_FALSE(Has("a", kLaw, kNow - kClockSlackMs - 1));
  EXPECT_EQ(answers_.Purge(kNow - kClockSlackMs - 1).turns, 1u);
}

TEST_F(StoredAnswersTest, OthersNeitherFindNorErase) {
  Put("a", kLaw, kNow);
  EXPECT_FALSE(Has("a", kArt, kNow));
  EXPECT_FALSE(answers_.Erase("a", kArt, kNow));
  EXPECT_TRUE(answers_.Erase("a", kLaw, kNow));
  EXPECT_FALSE(answers_.Erase("a", kLaw, kNow));
}

TEST(RetentionRules, ATenantsOrderComesBeforeTheNodes) {
  const RetentionRules rules = RulesOf(Tenant("law", 7200), hours(1));
  EXPECT_EQ(rules.KeptFor(kLaw), hours(2));
  EXPECT_EQ(rules.KeptFor(kArt), hours(1));
  EXPECT_EQ(rules.KeptFor(""), hours(1));
  EXPECT_EQ(RulesOf(Tenant("law", std::nullopt)).KeptFor(kLaw), std::nullopt);
  EXPECT_EQ(RulesOf(Tenant("law", 0), hours(1)).KeptFor(kLaw), seconds(0));
  EXPECT_EQ(AskerOfKey("law", "0123456789ab").tenant, kLaw);
  v1::TenantLimits memory_only = Tenant("law", std::nullopt);
  memory_only.set_memory_only(true);
  EXPECT_TRUE(RulesOf(memory_only).IsMemoryOnly("law"));
  EXPECT_FALSE(RulesOf(memory_only).IsMemoryOnly("art"));
  EXPECT_FALSE(RulesOf(memory_only).IsMemoryOnly(""));
}

}  // namespace
}  // namespace macrame::agentd
