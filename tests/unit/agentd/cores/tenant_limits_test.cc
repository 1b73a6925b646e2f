#include "agentd/cores/tenant_limits.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "agentd/cores/node_marks.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

using Tenants = std::map<std::string, v1::TenantLimits>;

struct Asked {
  std::optional<uint32_t> requests = std::nullopt, tokens = std::nullopt, at_once = std::nullopt;
  bool clear = false;
};

v1::SetTenantRequest Order(const std::string& name, const Asked& asked) {
  v1::SetTenantRequest request;
  request.set_name(name);
  request.set_clear(asked.clear);
  if (asked.requests) request.set_requests_per_minute(*asked.requests);
  if (asked.tokens) request.set_tokens_per_minute(*asked.tokens);
  if (asked.at_once) request.set_concurrent_requests(*asked.at_once);
  return request;
}

// Carries the order out as AccessService does.
absl::StatusOr<v1::SetTenantResponse> Set(const v1::SetTenantRequest& request, Tenants* tenants) {
  const absl::StatusOr<TenantChange> change = DecideTenant(request, *tenants);
  if (!change.ok()) return change.status();
  if (change->value.empty()) {
    tenants->erase(request.name());
  } else {
    EXPECT_TRUE((*tenants)[request.name()].ParseFromString(change->value));
  }
  return change->response;
}

std::string Text(const v1::TenantLimits& limits) {
  return absl::StrCat(limits.name(), " ", limits.requests_per_minute(), " ",
                      limits.tokens_per_minute(), " ", limits.concurrent_requests());
}

TEST(TenantLimits, WhatIsUnsetStaysAsItIs) {
  Tenants tenants;
  const auto first = Set(Order("ads", {.requests = 60, .at_once = 4}), &tenants);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(first->changed());
  EXPECT_EQ(Text(first->tenant()), "ads 60 0 4");
  const auto second = Set(Order("ads", {.tokens = 9000}), &tenants);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(Text(second->tenant()), "ads 60 9000 4");
  EXPECT_EQ(Text(tenants.at("ads")), "ads 60 9000 4");
}

TEST(TenantLimits, ClearForgetsWhatTheOrderDoesNotName) {
  Tenants tenants;
  ASSERT_TRUE(Set(Order("ads", {.requests = 60, .tokens = 9000, .at_once = 4}), &tenants).ok());
  const auto left = Set(Order("ads", {.at_once = 2, .clear = true}), &tenants);
  ASSERT_TRUE(left.ok());
  EXPECT_EQ(Text(left->tenant()), "ads 0 0 2");
}

TEST(TenantLimits, ATenantWhoseLimitsAreAllZeroHasNoEntry) {
  for (const Asked& asked : {Asked{.clear = true}, Asked{.requests = 0}}) {
    Tenants tenants;
    ASSERT_TRUE(Set(Order("ads", {.requests = 60}), &tenants).ok());
    const auto gone = Set(Order("ads", asked), &tenants);
    ASSERT_TRUE(gone.ok());
    EXPECT_TRUE(gone->changed());
    EXPECT_EQ(Text(gone->tenant()), "ads 0 0 0");
    EXPECT_TRUE(tenants.empty());
    EXPECT_FALSE(Set(Order("ads", asked), &tenants)->changed()) << "it had none before";
  }
}

TEST(TenantLimits, ARepeatedOrderChangesNothing) {
  Tenants tenants;
  const v1::SetTenantRequest order = Order("ads", {.requests = 60, .tokens = 9000});
  EXPECT_TRUE(Set(order, &tenants)->changed());
  EXPECT_FALSE(Set(order, &tenants)->changed());
  // Another way to say the same.
  EXPECT_FALSE(
      Set(Order("ads", {.requests = 60, .tokens = 9000, .clear = true}), &tenants)->changed());
}

TEST(TenantLimits, OtherTenantsStay) {
  Tenants tenants;
  ASSERT_TRUE(Set(Order("ads", {.requests = 60}), &tenants).ok());
  ASSERT_TRUE(Set(Order("adsl", {.requests = 7}), &tenants).ok());
  ASSERT_TRUE(Set(Order("ads", {.clear = true}), &tenants).ok());
  ASSERT_EQ(tenants.size(), 1u);
  EXPECT_EQ(Text(tenants.at("adsl")), "adsl 7 0 0");
}

TEST(TenantLimits, ANameIsALineOfText) {
  const std::vector<std::string> bad = {
      "", std::string(kTenantBytesMax + 1, 'a'), "a\nb", "a\x7f", std::string("a\0b", 3), "\xff"};
  for (const std::string& name : bad) {
    const auto refused = DecideTenant(Order(name, {.requests = 1}), {});
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ReasonOf(refused.status()).code(), reasons::kBadRequest);
  }
  for (const std::string& name :
       {std::string(kTenantBytesMax, 'a'), std::string("Müller & Söhne")}) {
    EXPECT_TRUE(DecideTenant(Order(name, {.requests = 1}), {}).ok()) << name;
  }
}

TEST(TenantLimits, ALimitHasABound) {
  const uint32_t most = kTenantLimitMax;
  EXPECT_TRUE(DecideTenant(Order("a", {most, most, most, false}), {}).ok());
  for (const Asked& asked :
       {Asked{.requests = most + 1}, Asked{.tokens = most + 1}, Asked{.at_once = ~uint32_t{0}}}) {
    const auto refused = DecideTenant(Order("a", asked), {});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(refused.status().message().find(std::to_string(most)), std::string::npos);
  }
}

// One that has limits may always change them; one more may not come; one without takes no room.
TEST(TenantLimits, SoManyTenantsHaveLimitsAndNoMore) {
  Tenants tenants;
  for (size_t i = 0; i < kLimitedTenantsMax; ++i) {
    ASSERT_TRUE(Set(Order(absl::StrCat("t", i), {.requests = 1}), &tenants).ok()) << i;
  }
  const auto refused = DecideTenant(Order("late", {.requests = 1}), tenants);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused.status()).code(), reasons::kBadRequest);
  EXPECT_TRUE(DecideTenant(Order("t7", {.requests = 2}), tenants).ok());
  const auto nothing = DecideTenant(Order("late", {.clear = true}), tenants);
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  EXPECT_FALSE(nothing->response.changed());
  ASSERT_TRUE(Set(Order("t7", {.clear = true}), &tenants).ok());
  EXPECT_TRUE(Set(Order("late", {.requests = 1}), &tenants).ok());
}

// Whatever the orders: what is told is what is written, and what has no limits is not kept.
TEST(TenantLimits, WhatIsToldIsWhatIsWritten) {
  std::mt19937 random(11);
  Tenants tenants;
  const auto draw = [&]() -> std::optional<uint32_t> {
    return random() % 2 == 0 ? std::nullopt : std::optional<uint32_t>(random() % 3);
  };
  for (int round = 0; round < 2000; ++round) {
    const std::string name(1, static_cast<char>('a' + random() % 3));
    const std::string before =
        tenants.contains(name) ? Text(tenants.at(name)) : absl::StrCat(name, " 0 0 0");
    const auto told = Set(Order(name, {draw(), draw(), draw(), random() % 4 == 0}), &tenants);
    ASSERT_TRUE(told.ok());
    const std::string now =
        tenants.contains(name) ? Text(tenants.at(name)) : absl::StrCat(name, " 0 0 0");
    ASSERT_EQ(Text(told->tenant()), now);
    ASSERT_EQ(told->changed(), now != before);
    for (const auto& [key, limits] : tenants) {
      ASSERT_EQ(key, limits.name());
      ASSERT_NE(Text(limits), absl::StrCat(key, " 0 0 0"));
    }
  }
}

// How long answers are kept, and memory only: changed by what names them, and by nothing else.
TEST(TenantLimits, WhatIsKeptChangesByItsOwnOrders) {
  v1::TenantLimits before;
  before.set_name("law");
  before.set_retention_s(60);
  before.set_memory_only(true);
  before.set_requests_per_minute(5);
  const auto change = [&](const v1::SetTenantRequest& request) {
    return *DecideTenant(request, {{"law", before}});
  };
  v1::SetTenantRequest request;
  request.set_name("law");
  request.set_clear(true);
  EXPECT_EQ(change(request).response.tenant().retention_s(), 60u)
      << "limits are cleared, and nothing loosened";
  EXPECT_EQ(change(request).response.tenant().requests_per_minute(), 0u);
  EXPECT_TRUE(change(request).response.tenant().memory_only());
  EXPECT_NE(change(request).value, "");
  request.set_retention_s(0);
  EXPECT_TRUE(change(request).response.tenant().has_retention_s());
  EXPECT_EQ(change(request).response.tenant().retention_s(), 0u);
  request.clear_retention_s();
  request.set_clear_retention(true);
  EXPECT_FALSE(change(request).response.tenant().has_retention_s());
  EXPECT_NE(change(request).value, "") << "memory only stays";
  request.set_memory_only(false);
  EXPECT_EQ(change(request).value, "") << "nothing is left to be kept of it";
  EXPECT_TRUE(change(request).response.changed());
}

TEST(TenantLimits, ATimeIsBounded) {
  v1::SetTenantRequest request;
  request.set_name("law");
  request.set_retention_s(kRetentionSecondsMax);
  EXPECT_TRUE(DecideTenant(request, {}).ok());
  request.set_retention_s(kRetentionSecondsMax + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(DecideTenant(request, {}).status()));
}

}  // namespace
}  // namespace macrame::agentd
