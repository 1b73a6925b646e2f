#include "agentd/base/web_url.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

TEST(WebUrl, FindsTheHostInAnAuthority) {
  EXPECT_EQ(HostOf("localhost"), "localhost");
  EXPECT_EQ(HostOf("LocalHost:8000"), "localhost");
  EXPECT_EQ(HostOf("localhost."), "localhost");
  EXPECT_EQ(HostOf("mac_mini-1.local"), "mac_mini-1.local");
  EXPECT_EQ(HostOf("127.0.0.1:8000"), "127.0.0.1");
  EXPECT_EQ(HostOf("[::1]:8000"), "::1");
  EXPECT_EQ(HostOf("[::1]"), "::1");
  for (const char* bad :
       {"", "[::1", "[::1]x", "a b", "localhost:80000000", "localhost:8x", "user@localhost",
        "localhost/../x", "local\xC3\xA9", "loc%61lhost", "a!b", ":80", "http://localhost"}) {
    EXPECT_EQ(HostOf(bad), "") << bad;
  }
}

TEST(WebUrl, AnOriginIsASchemeOfTheWebAndAnAuthority) {
  EXPECT_EQ(AuthorityOfOrigin("http://localhost:3000"), "localhost:3000");
  EXPECT_EQ(AuthorityOfOrigin("https://a.example"), "a.example");
  EXPECT_EQ(AuthorityOfOrigin("http://[::1]:8"), "[::1]:8");
  for (const char* bad : {"", "null", "*", "localhost", "https://", "https://a/", "https://a/b",
                          "https://a?b", "https://a#b", "https://u@a", "https://a b",
                          "chrome-extension://abc", "file:///etc/passwd"}) {
    EXPECT_EQ(AuthorityOfOrigin(bad), "") << bad;
  }
}

TEST(WebUrl, AUrlSaysWhereToAskAndForWhat) {
  const auto url = ParseWebUrl("https://hooks.example/services/a%20b?token=x#part");
  ASSERT_TRUE(url.has_value());
  EXPECT_TRUE(url->is_secure);
  EXPECT_EQ(url->host, "hooks.example");
  EXPECT_EQ(url->port, "443");
  EXPECT_EQ(url->target, "/services/a%20b?token=x");
  EXPECT_EQ(ParseWebUrl("http://[::1]:9000")->host, "::1");
  EXPECT_EQ(ParseWebUrl("http://[::1]:9000")->port, "9000");
  EXPECT_EQ(ParseWebUrl("http://a?b")->target, "/?b");
  for (const char* bad : {"", "hooks.example", "ftp://a/b", "https://", "https://u:p@a/b",
                          "https://a b/", "//a/b", "https:/a"}) {
    EXPECT_FALSE(ParseWebUrl(bad).has_value()) << bad;
  }
}

TEST(WebUrl, EscapesBecomeWhatTheyStandForUnlessOneIsMalformed) {
  EXPECT_EQ(PercentDecode("mlx-community%2FTiny"), "mlx-community/Tiny");
  EXPECT_EQ(PercentDecode("a+b"), "a+b");
  EXPECT_EQ(PercentDecode("a%00b"), std::string("a\0b", 3));
  EXPECT_EQ(PercentDecode("a%2"), "a%2");
  EXPECT_EQ(PercentDecode("%zz%41"), "%zz%41");
}

TEST(TracesUrl, AddsThePathThatCollectorsServe) {
  EXPECT_EQ(TracesUrl("http://127.0.0.1:4318")->target, "/v1/traces");
  EXPECT_EQ(TracesUrl("http://127.0.0.1:4318/")->target, "/v1/traces");
  EXPECT_EQ(TracesUrl("https://a.example/otlp/")->target, "/otlp/v1/traces");
  EXPECT_EQ(TracesUrl("https://a.example/otlp")->port, "443");
  for (const char* text : {"", "a.example", "http://a/?x=1"}) {
    EXPECT_FALSE(TracesUrl(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace macrame::agentd
