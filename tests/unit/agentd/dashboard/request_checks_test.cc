#include "agentd/dashboard/request_checks.h"

#include <gtest/gtest.h>

namespace macrame::agentd::dashboard {
namespace {

TEST(RequestChecks, BrowsersSayWhosePageAsks) {
  EXPECT_FALSE(IsFromAnotherSite("same-origin", "", "localhost:8000"));
  EXPECT_FALSE(IsFromAnotherSite("none", "", "localhost:8000"));
  EXPECT_TRUE(IsFromAnotherSite("cross-site", "", "localhost:8000"));
  // Another port of this machine is another page.
  EXPECT_TRUE(IsFromAnotherSite("same-site", "", "localhost:8000"));
  EXPECT_TRUE(IsFromAnotherSite("Cross-Site", "http://localhost:8000", "localhost:8000"));
}

TEST(RequestChecks, OldBrowsersSayTheirOrigin) {
  EXPECT_FALSE(IsFromAnotherSite("", "http://localhost:8000", "localhost:8000"));
  EXPECT_FALSE(IsFromAnotherSite("", "https://Node.local", "node.local"));
  EXPECT_TRUE(IsFromAnotherSite("", "http://localhost:9000", "localhost:8000"));
  EXPECT_TRUE(IsFromAnotherSite("", "http://evil.example", "localhost:8000"));
  EXPECT_TRUE(IsFromAnotherSite("", "null", "localhost:8000"));
}

TEST(RequestChecks, ProgramsPass) { EXPECT_FALSE(IsFromAnotherSite("", "", "10.0.0.5:8000")); }

TEST(RequestChecks, EtagsAreFoundInTheirList) {
  EXPECT_TRUE(EtagMatches("\"a\"", "\"a\""));
  EXPECT_TRUE(EtagMatches("\"b\" , W/\"a\"", "\"a\""));
  EXPECT_TRUE(EtagMatches("*", "\"a\""));
  EXPECT_FALSE(EtagMatches("", "\"a\""));
  EXPECT_FALSE(EtagMatches("a", "\"a\""));
  EXPECT_FALSE(EtagMatches("\"ab\"", "\"a\""));
}

}  // namespace
}  // namespace macrame::agentd::dashboard
