// What is read of URLs that come from anywhere: every result can be put into a request's head, and
// what is read again says the same.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agentd/base/web_url.h"

namespace macrame::agentd {
namespace {

// Mostly what URLs are made of, in the wrong places.
std::string AnyText(std::mt19937& dice) {
  static const std::vector<std::string> kPieces = {"http://",
                                                   "HTTPS://",
                                                   "localhost",
                                                   "10.0.0.1",
                                                   "[::1]",
                                                   "[",
                                                   "]",
                                                   ":",
                                                   "8080",
                                                   "65536",
                                                   "@",
                                                   "user:pw@",
                                                   "/",
                                                   "//",
                                                   "..",
                                                   "?a=b",
                                                   "#x",
                                                   "%2F",
                                                   "%",
                                                   "%zz",
                                                   "\r\n",
                                                   "\0",
                                                   "\xff",
                                                   " ",
                                                   "a_b-c",
                                                   ".",
                                                   "Host",
                                                   "127.1",
                                                   "[fe80::1%eth0]",
                                                   "ü",
                                                   "\\",
                                                   "<tag>",
                                                   "99999999999999999999",
                                                   "-1"};
  std::string text = dice() % 3 == 0 ? "" : dice() % 2 == 0 ? "http://" : "https://";
  for (uint32_t piece = 0; piece < dice() % 7; ++piece) {
    text += dice() % 12 == 0 ? std::string(1, static_cast<char>(dice()))
                             : kPieces[dice() % kPieces.size()];
  }
  return text;
}

TEST(WebUrlProperty, WhatIsReadOfAnyTextFitsIntoARequest) {
  int read = 0;
  for (uint32_t seed = 1; seed <= 40'000; ++seed) {
    std::mt19937 dice(seed);
    const std::string text = AnyText(dice);
    const auto url = ParseWebUrl(text);
    if (!url.has_value()) continue;
    ++read;
    SCOPED_TRACE(absl::StrCat(seed, ": ", text));
    EXPECT_FALSE(url->host.empty());
    for (const char c : url->host) {
      EXPECT_TRUE(std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_' ||
                  c == ':');
      EXPECT_FALSE(std::isupper(static_cast<unsigned char>(c)));
    }
    EXPECT_FALSE(url->port.empty());
    EXPECT_LE(std::stoul(url->port), 65535u);
    EXPECT_EQ(url->target.front(), '/');
    for (const char c : url->target) EXPECT_TRUE(c > ' ' && c < '\x7f' && c != '#');
    EXPECT_EQ(text.find('@') < text.find_first_of("/?#", text.find("//") + 2), false)
        << "a user is named";
  }
  EXPECT_GT(read, 1000);
}

TEST(WebUrlProperty, WhatWasReadReadsTheSameAgain) {
  for (uint32_t seed = 1; seed <= 20'000; ++seed) {
    std::mt19937 dice(seed);
    const auto url = ParseWebUrl(AnyText(dice));
    if (!url.has_value() || url->host.back() == '.') continue;  // of several dots one goes
    const bool is_six = url->host.find(':') != std::string::npos;
    const std::string host = is_six ? absl::StrCat("[", url->host, "]") : url->host;
    const auto again = ParseWebUrl(
        absl::StrCat(url->is_secure ? "https://" : "http://", host, ":", url->port, url->target));
    ASSERT_TRUE(again.has_value()) << seed;
    EXPECT_EQ(again->is_secure, url->is_secure) << seed;
    EXPECT_EQ(again->port, url->port) << seed;
    EXPECT_EQ(again->target, url->target) << seed;
    EXPECT_EQ(again->host, url->host) << seed;
    EXPECT_EQ(HostOf(absl::StrCat(host, ":", url->port)), again->host) << seed;
  }
}

// A page's origin is let in by its authority: it never has more in it than the page's.
TEST(WebUrlProperty, AnOriginsAuthorityIsPartOfItAndHasAHost) {
  for (uint32_t seed = 1; seed <= 20'000; ++seed) {
    std::mt19937 dice(seed);
    const std::string text = AnyText(dice);
    const std::string authority = AuthorityOfOrigin(text);
    if (authority.empty()) continue;
    EXPECT_TRUE(text.size() > authority.size() &&
                text.compare(text.size() - authority.size(), authority.size(), authority) == 0)
        << text;
    EXPECT_EQ(authority.find_first_of("/?#@\\ \r\n"), std::string::npos) << text;
    EXPECT_NE(HostOf(authority), "") << text;
  }
}

TEST(WebUrlProperty, EveryByteSurvivesItsEscapeAndHalfEscapesChangeNothing) {
  for (uint32_t seed = 1; seed <= 5'000; ++seed) {
    std::mt19937 dice(seed);
    std::string plain, escaped;
    for (uint32_t at = 0; at < dice() % 20; ++at) {
      const char byte = static_cast<char>(dice());
      plain += byte;
      const bool is_plain = std::isalnum(static_cast<unsigned char>(byte)) && dice() % 2 == 0;
      char digits[4];
      std::snprintf(digits, sizeof digits, dice() % 2 == 0 ? "%%%02x" : "%%%02X",
                    static_cast<unsigned char>(byte));
      escaped += is_plain ? std::string(1, byte) : digits;
    }
    EXPECT_EQ(PercentDecode(escaped), plain) << escaped;
    for (const char* half : {"%", "%4", "%g0", "%0g", "%-1", "%+1", "% 1", "%0x"}) {
      EXPECT_EQ(PercentDecode(escaped + half), escaped + half);
    }
  }
}

TEST(WebUrlProperty, TracesGoBelowWhatIsNamedWithoutItsClosingSlashes) {
  for (uint32_t seed = 1; seed <= 20'000; ++seed) {
    std::mt19937 dice(seed);
    const std::string text = AnyText(dice);
    const auto url = ParseWebUrl(text);
    const auto traces = TracesUrl(text);
    const bool has_query = url.has_value() && url->target.find('?') != std::string::npos;
    ASSERT_EQ(traces.has_value(), url.has_value() && !has_query) << text;
    if (!traces.has_value()) continue;
    const size_t behind = traces->target.size() - std::string("/v1/traces").size();
    EXPECT_EQ(traces->target.substr(behind), "/v1/traces");
    EXPECT_TRUE(behind == 0 || traces->target[behind - 1] != '/') << text;
    EXPECT_EQ(traces->host, url->host);
  }
}

}  // namespace
}  // namespace macrame::agentd
