#include "agentd/gateway/access/request_limits.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Principal Limited(uint32_t requests, uint32_t tokens = 0, uint32_t concurrent = 0) {
  Principal principal;
  principal.key_id = "one";
  principal.requests_per_minute = requests;
  principal.tokens_per_minute = tokens;
  principal.concurrent_requests = concurrent;
  return principal;
}

Principal KeyOf(const std::string& id) {
  Principal principal;
  principal.key_id = id;
  return principal;
}

std::string Header(const LimitVerdict& verdict, const std::string& name) {
  for (const auto& [field, value] : verdict.headers) {
    if (field == name) return value;
  }
  return "";
}

TEST(RequestLimits, AMinutesRequestsAndThenAsTheBucketFills) {
  RequestLimits limits;
  RequestLimits::Time now{seconds(1000)};
  const Principal principal = Limited(6);
  for (int i = 0; i < 6; ++i) {
    const LimitVerdict verdict = limits.Begin(principal, now);
    ASSERT_FALSE(verdict.refused.has_value()) << i;
    EXPECT_EQ(Header(verdict, "x-ratelimit-remaining-requests"), std::to_string(5 - i));
    limits.End(KeyOf("one"));
  }
  const LimitVerdict refused = limits.Begin(principal, now);
  ASSERT_TRUE(refused.refused.has_value());
  EXPECT_EQ(refused.refused->http_status, 429);
  EXPECT_EQ(refused.refused->code, "rate_limit_exceeded");
  EXPECT_EQ(refused.refused->retry_after_seconds, 10);
  EXPECT_EQ(Header(refused, "x-ratelimit-limit-requests"), "6");
  EXPECT_EQ(Header(refused, "x-ratelimit-reset-requests"), "1m0s");
  EXPECT_TRUE(limits.Begin(principal, now + milliseconds(9990)).refused.has_value());
  EXPECT_FALSE(limits.Begin(principal, now + milliseconds(10'010)).refused.has_value());
  EXPECT_TRUE(limits.Begin(principal, now + milliseconds(10'020)).refused.has_value());
}

TEST(RequestLimits, TokensCountWhenTheyAreKnownAndAreWaitedFor) {
  RequestLimits limits;
  RequestLimits::Time now{seconds(1000)};
  const Principal principal = Limited(0, 600);
  EXPECT_FALSE(limits.Begin(principal, now).refused.has_value());
  limits.AddTokens(KeyOf("one"), 700, now);
  limits.End(KeyOf("one"));
  const LimitVerdict refused = limits.Begin(principal, now);
  ASSERT_TRUE(refused.refused.has_value());
  EXPECT_EQ(Header(refused, "x-ratelimit-remaining-tokens"), "0");
  EXPECT_EQ(Header(refused, "x-ratelimit-limit-requests"), "") << "it has no such limit";
  EXPECT_EQ(refused.refused->retry_after_seconds, 11);  // 101 tokens at ten a second
  EXPECT_FALSE(limits.Begin(principal, now + milliseconds(10'200)).refused.has_value());
}

TEST(RequestLimits, SoManyAtOnceAndNoMore) {
  RequestLimits limits;
  RequestLimits::Time now{seconds(1000)};
  const Principal principal = Limited(0, 0, 2);
  EXPECT_FALSE(limits.Begin(principal, now).refused.has_value());
  EXPECT_FALSE(limits.Begin(principal, now).refused.has_value());
  const LimitVerdict refused = limits.Begin(principal, now);
  ASSERT_TRUE(refused.refused.has_value());
  EXPECT_EQ(refused.refused->retry_after_seconds, 1);
  limits.End(KeyOf("one"));
  EXPECT_FALSE(limits.Begin(principal, now).refused.has_value());
}

TEST(RequestLimits, ARefusalForOneLimitTakesNothingOfAnother) {
  RequestLimits limits;
  RequestLimits::Time now{seconds(1000)};
  const Principal principal = Limited(2, 0, 1);
  EXPECT_FALSE(limits.Begin(principal, now).refused.has_value());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(limits.Begin(principal, now).refused.has_value());
  limits.End(KeyOf("one"));
  EXPECT_FALSE(limits.Begin(principal, now).refused.has_value());
}

TEST(RequestLimits, KeysDoNotShareAndLimitsMayChange) {
  RequestLimits limits;
  RequestLimits::Time now{seconds(1000)};
  EXPECT_FALSE(limits.Begin(Limited(1), now).refused.has_value());
  EXPECT_TRUE(limits.Begin(Limited(1), now).refused.has_value());
  Principal other = Limited(1);
  other.key_id = "two";
  EXPECT_FALSE(limits.Begin(other, now).refused.has_value());
  EXPECT_FALSE(limits.Begin(Limited(0), now).refused.has_value());
  limits.End(KeyOf("one"));
  limits.End(KeyOf("one"));
  limits.Keep({"two"}, {});
  EXPECT_FALSE(limits.Begin(Limited(1), now).refused.has_value()) << "forgotten with its key";
}

Principal OfTenant(const std::string& id, uint32_t requests = 0) {
  Principal principal = Limited(requests);
  principal.key_id = id;
  principal.tenant = "law";
  return principal;
}

TEST(RequestLimits, KeysOfATenantShareItsLimits) {
  RequestLimits limits;
  RequestLimits::Time now{seconds(1000)};
  v1::TenantLimits tenant;
  tenant.set_requests_per_minute(3);
  tenant.set_concurrent_requests(2);
  EXPECT_FALSE(limits.Begin(OfTenant("one"), now, &tenant).refused.has_value());
  const LimitVerdict second = limits.Begin(OfTenant("two"), now, &tenant);
  EXPECT_FALSE(second.refused.has_value());
  EXPECT_EQ(Header(second, "x-ratelimit-remaining-requests"), "1") << "its tenant's";
  const LimitVerdict busy = limits.Begin(OfTenant("three"), now, &tenant);
  ASSERT_TRUE(busy.refused.has_value());
  EXPECT_NE(busy.refused->message.find("The tenant 'law'"), std::string::npos);
  EXPECT_FALSE(limits.Begin(KeyOf("other"), now).refused.has_value()) << "of no tenant";
  limits.End(OfTenant("one"));
  EXPECT_FALSE(limits.Begin(OfTenant("three"), now, &tenant).refused.has_value());
  limits.End(OfTenant("two"));
  EXPECT_TRUE(limits.Begin(OfTenant("two"), now, &tenant).refused.has_value()) << "a minute's";
  EXPECT_FALSE(limits.Begin(OfTenant("two"), now + seconds(21), &tenant).refused.has_value());
}

TEST(RequestLimits, AKeysOwnLimitAndItsTenantsHoldBoth) {
  RequestLimits limits;
  RequestLimits::Time now{seconds(1000)};
  v1::TenantLimits tenant;
  tenant.set_requests_per_minute(2);
  const LimitVerdict first = limits.Begin(OfTenant("one", 1), now, &tenant);
  EXPECT_EQ(Header(first, "x-ratelimit-limit-requests"), "1") << "the key has less left";
  // Refused for the key's own limit, nothing is taken of the tenant's.
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(limits.Begin(OfTenant("one", 1), now, &tenant).refused.has_value());
  }
  EXPECT_FALSE(limits.Begin(OfTenant("two"), now, &tenant).refused.has_value());
  // Nor the other way round.
  EXPECT_TRUE(limits.Begin(OfTenant("three", 1), now, &tenant).refused.has_value());
  tenant.set_requests_per_minute(100);
  EXPECT_FALSE(limits.Begin(OfTenant("three", 1), now, &tenant).refused.has_value())
      << "a higher limit holds at once";
}

TEST(RequestLimits, TokensOfAllKeysCountForTheirTenant) {
  RequestLimits limits;
  RequestLimits::Time now{seconds(1000)};
  v1::TenantLimits tenant;
  tenant.set_tokens_per_minute(600);
  for (const char* key : {"one", "two"}) {
    EXPECT_FALSE(limits.Begin(OfTenant(key), now, &tenant).refused.has_value()) << key;
  }
  for (const char* key : {"one", "two"}) limits.AddTokens(OfTenant(key), 350, now);
  EXPECT_TRUE(limits.Begin(OfTenant("three"), now, &tenant).refused.has_value());
  EXPECT_FALSE(limits.Begin(OfTenant("three"), now + seconds(11), &tenant).refused.has_value());
  // Limits that are taken away hold nobody any more.
  EXPECT_FALSE(limits.Begin(OfTenant("four"), now).refused.has_value());
}

TEST(RequestLimits, WhatATenantOverdrewIsForgottenWithItsLimit) {
  RequestLimits limits;
  RequestLimits::Time now{seconds(1000)};
  v1::TenantLimits tenant;
  tenant.set_tokens_per_minute(600);
  EXPECT_FALSE(limits.Begin(OfTenant("one"), now, &tenant).refused.has_value());
  limits.AddTokens(OfTenant("one"), 100'000, now);
  EXPECT_TRUE(limits.Begin(OfTenant("one"), now, &tenant).refused.has_value());
  EXPECT_FALSE(limits.Begin(OfTenant("one"), now).refused.has_value()) << "no limit";
  EXPECT_FALSE(limits.Begin(OfTenant("one"), now, &tenant).refused.has_value());
}

TEST(RequestLimits, ATenantsRequestsUnderWayOutliveItsKeysBeingForgotten) {
  RequestLimits limits;
  RequestLimits::Time now{seconds(1000)};
  v1::TenantLimits tenant;
  tenant.set_concurrent_requests(1);
  tenant.set_requests_per_minute(100);
  EXPECT_FALSE(limits.Begin(OfTenant("one"), now, &tenant).refused.has_value());
  limits.Keep({}, {});
  EXPECT_TRUE(limits.Begin(OfTenant("two"), now, &tenant).refused.has_value());
  limits.End(OfTenant("one"));
  limits.Keep({}, {});
  const LimitVerdict fresh = limits.Begin(OfTenant("two"), now, &tenant);
  EXPECT_FALSE(fresh.refused.has_value());
  EXPECT_EQ(Header(fresh, "x-ratelimit-remaining-requests"), "99") << "it was forgotten";
}

TEST(RequestLimits, TimesReadAsOpenAisDo) {
  EXPECT_EQ(ResetText(milliseconds(0)), "0ms");
  EXPECT_EQ(ResetText(milliseconds(350)), "350ms");
  EXPECT_EQ(ResetText(milliseconds(1001)), "2s");
  EXPECT_EQ(ResetText(seconds(65)), "1m5s");
}

}  // namespace
}  // namespace macrame::agentd
