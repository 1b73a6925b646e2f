#include "agentd/gateway/base/tenant.h"

#include <gtest/gtest.h>

#include <set>

#include "agentd/gateway/dialects/chat_request.h"

namespace macrame::agentd {
namespace {

v1::GenerateRequest Of(const std::string& key, const std::string& more = "",
                       const std::string& address = "") {
  auto parsed = ParseChatRequest(
      R"({"model":"m","messages":[{"role":"user","content":"hi"}])" + more + "}", 32);
  v1::GenerateRequest request = std::get<ChatRequest>(parsed).generate;
  SetTenant(AskerOfText(key, address), &request);
  return request;
}

TEST(Tenant, TheKeyIsTakenFromEitherHeader) {
  EXPECT_EQ(ApiKeyOf("Bearer sk-1", ""), "sk-1");
  EXPECT_EQ(ApiKeyOf("bearer  sk-1 ", "other"), "sk-1");
  EXPECT_EQ(ApiKeyOf("", "sk-2"), "sk-2");
  EXPECT_EQ(ApiKeyOf("", ""), "");
  EXPECT_NE(ApiKeyOf("Basic dXNlcg==", ""), "") << "another scheme is another client";
}

TEST(Tenant, NoTwoKeysShareASaltAndNoSaltLooksLikeAnother) {
  const std::string with_salt = R"(,"cache_salt":"x")";
  const std::set<std::string> salts = {
      Of("").cache_salt(),
      Of("a").cache_salt(),
      Of("b").cache_salt(),
      Of("", with_salt).cache_salt(),
      Of("a", with_salt).cache_salt(),
      Of("b", with_salt).cache_salt(),
      Of("", R"(,"cache_salt":"a")").cache_salt(),
      Of("", R"(,"cache_salt":")" + Of("a").cache_salt() + R"(")").cache_salt()};
  EXPECT_EQ(salts.size(), 8u);
  EXPECT_EQ(Of("a").cache_salt(), Of("a").cache_salt());
  EXPECT_EQ(Of("").cache_salt(), "");
}

TEST(Tenant, AUserHasTurnsOfItsOwnAndSharesItsTenantsCache) {
  const v1::GenerateRequest one = Of("a", R"(,"user":"u1")"), two = Of("a", R"(,"user":"u2")");
  EXPECT_NE(one.fairness_key(), two.fairness_key());
  EXPECT_EQ(one.cache_salt(), two.cache_salt());
  EXPECT_EQ(one.fairness_key(), Of("a", R"(,"safety_identifier":"u1")").fairness_key());
}

// What stands before the slash is whose turns they are.
TEST(Tenant, WhereNoKeysAreAskedForTurnsAreTakenByAddress) {
  const auto lane = [](const std::string& key, const std::string& more,
                       const std::string& address) {
    const std::string whole = Of(key, more, address).fairness_key();
    EXPECT_NE(whole.find('/'), std::string::npos);
    return whole.substr(0, whole.find('/'));
  };
  const std::string user = R"(,"user":"u1")";
  EXPECT_EQ(lane("a", "", "10.0.0.7"), lane("b", user, "10.0.0.7"));
  EXPECT_EQ(lane("", user, "10.0.0.7"), lane("b", "", "10.0.0.7"));
  EXPECT_NE(lane("a", "", "10.0.0.7"), lane("a", "", "10.0.0.8"));
  for (const char* key : {"", "a", "b"}) EXPECT_EQ(lane(key, user, ""), "") << "this machine";
  EXPECT_NE(Of("a").cache_salt(), Of("b").cache_salt()) << "prefixes stay apart";
}

// What the gateway keeps for a client is of its address then, under whatever key; of a tenant that
// is known it is the tenant's.
TEST(Tenant, WhereNoKeysAreAskedForRoomIsTakenByAddress) {
  EXPECT_EQ(AskerOfText("a", "10.0.0.7").holder, AskerOfText("b", "10.0.0.7").holder);
  EXPECT_NE(AskerOfText("a", "10.0.0.7").holder, AskerOfText("a", "10.0.0.8").holder);
  EXPECT_NE(AskerOfText("a", "10.0.0.7").tenant, AskerOfText("b", "10.0.0.7").tenant);
  EXPECT_EQ(AskerOfKey("law", "1").holder, AskerOfKey("law", "2").holder);
  EXPECT_NE(AskerOfKey("law", "1").holder, AskerOfKey("art", "1").holder);
  EXPECT_NE(AskerOfKey("", "1").holder, AskerOfKey("", "2").holder);
}

TEST(Tenant, WhatGoesOnIsShortAndHoldsNoKey) {
  const std::string key(5000, 'k');
  const v1::GenerateRequest request = Of(key, R"(,"user":")" + std::string(5000, 'u') + R"(")");
  EXPECT_LE(request.fairness_key().size(), 256u);
  EXPECT_LE(request.cache_salt().size(), 256u);
  EXPECT_EQ(request.SerializeAsString().find("kkkk"), std::string::npos);
}

TEST(Tenant, ASaltThatIsNoTextIsRefused) {
  const auto parsed = ParseChatRequest(
      R"({"model":"m","messages":[{"role":"user","content":"hi"}],"cache_salt":7})", 32);
  ASSERT_TRUE(std::holds_alternative<ApiError>(parsed));
  EXPECT_EQ(std::get<ApiError>(parsed).param, "cache_salt");
}

}  // namespace
}  // namespace macrame::agentd
