#include "discovery/beacons/seed_address.h"

#include <gtest/gtest.h>

namespace macrame::discovery {
namespace {

std::string Parsed(const std::string& text) {
  const auto seed = ParseSeed(text, 8888);
  return seed.ok() ? seed->host + " " + std::to_string(seed->port) : "refused";
}

TEST(SeedAddress, FormsThatPeopleWrite) {
  EXPECT_EQ(Parsed("10.0.0.7"), "10.0.0.7 8888");
  EXPECT_EQ(Parsed("10.0.0.7:9000"), "10.0.0.7 9000");
  EXPECT_EQ(Parsed("mac-studio.lan:8888"), "mac-studio.lan 8888");
  EXPECT_EQ(Parsed("fd00::7"), "fd00::7 8888");
  EXPECT_EQ(Parsed("[fd00::7]:9000"), "fd00::7 9000");
  EXPECT_EQ(Parsed("[fe80::1%en0]"), "fe80::1%en0 8888");
}

// Only an IPv6 address has more than one colon, or brackets: all else would be looked up in vain.
TEST(SeedAddress, TooManyColonsAreNoName) {
  for (const char* text :
       {"10.0.0.7:8888:1", "mini.lan:8888:8889", "a:b:c", "::1::2", ":::", "[a]:1", "[10.0.0.7]:80",
        "[mini.lan]", "[[::1]]", "[::1]]", "fd00::7:xyz", "10.0.0.7:80,10.0.0.8:80"}) {
    EXPECT_EQ(Parsed(text), "refused") << text;
  }
  EXPECT_EQ(Parsed("fe80::1%en0"), "fe80::1%en0 8888");
  EXPECT_EQ(Parsed("::ffff:10.0.0.7"), "::ffff:10.0.0.7 8888");
  EXPECT_EQ(Parsed("[::1]:1"), "::1 1");
}

TEST(SeedAddress, TheLongestNameIsTakenAndALongerOneCutInTheMessage) {
  EXPECT_EQ(Parsed(std::string(253, 'a') + ":1"), std::string(253, 'a') + " 1");
  const auto refused = ParseSeed(std::string(5000, 'a'), 1);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_LT(refused.status().message().size(), 300u);
}

TEST(SeedAddress, NonsenseIsRefusedWithTheForms) {
  for (const char* text : {"", "host:", "host:0", "host:65536", "host:port", "[fd00::7", "[]:1",
                           "[fd00::7]x", "[fd00::7]:", "two words", ":8888", "a\nb"}) {
    EXPECT_EQ(Parsed(text), "refused") << text;
  }
  EXPECT_NE(std::string(ParseSeed("x:y", 1).status().message()).find("HOST:PORT"),
            std::string::npos);
}

}  // namespace
}  // namespace macrame::discovery
