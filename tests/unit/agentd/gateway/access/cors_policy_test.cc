#include "agentd/gateway/access/cors_policy.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

std::string Value(const HeaderFields& fields, const std::string& name) {
  for (const auto& [key, value] : fields) {
    if (key == name) return value;
  }
  return "";
}

TEST(CorsPolicy, WithoutAListNothingIsSaid) {
  const CorsPolicy policy;
  EXPECT_FALSE(policy.Allows("https://chat.example"));
  EXPECT_TRUE(policy.Headers("https://chat.example").empty());
}

TEST(CorsPolicy, AListedOriginIsNamedAndOthersAreNot) {
  const CorsPolicy policy({"https://Chat.example", "http://localhost:3000"});
  EXPECT_TRUE(policy.Allows("https://chat.example"));
  EXPECT_TRUE(policy.Allows("http://localhost:3000"));
  for (const char* other :
       {"", "null", "https://chat.example:8443", "http://chat.example", "https://chat.example.evil",
        "https://evil/https://chat.example", "http://localhost:30001"}) {
    EXPECT_FALSE(policy.Allows(other)) << other;
    const HeaderFields fields = policy.Headers(other);
    EXPECT_EQ(Value(fields, "access-control-allow-origin"), "") << other;
    EXPECT_EQ(Value(fields, "vary"), "Origin") << "caches keep answers apart all the same";
  }
  const HeaderFields fields = policy.Headers("https://chat.example");
  EXPECT_EQ(Value(fields, "access-control-allow-origin"), "https://chat.example");
  EXPECT_EQ(Value(fields, "access-control-allow-credentials"), "");
}

TEST(CorsPolicy, AStarIsEveryPage) {
  const CorsPolicy policy({"*"});
  EXPECT_TRUE(policy.Allows("null"));
  EXPECT_FALSE(policy.Allows("")) << "no browser asks";
  EXPECT_EQ(Value(policy.Headers("https://any.example"), "access-control-allow-origin"), "*");
}

TEST(CorsPolicy, ThePreflightAllowsTheMethodsAndTheHeadersAskedFor) {
  const std::string asked = "authorization,content-type,x-api-key,x-stainless-retry-count";
  const HttpReply reply = CorsPolicy({"*"}).Preflight("POST", asked);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(Value(reply.headers, "access-control-allow-methods"), "POST");
  EXPECT_EQ(Value(reply.headers, "access-control-allow-headers"), asked);
  EXPECT_EQ(Value(CorsPolicy({"*"}).Preflight("GET", "").headers, "access-control-allow-headers"),
            "");
}

}  // namespace
}  // namespace macrame::agentd
