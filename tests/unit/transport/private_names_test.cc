#include "transport/private_names.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace macrame::transport {
namespace {

std::string Text(uint32_t ip) {
  return absl::StrCat(ip >> 24, ".", ip >> 16 & 255, ".", ip >> 8 & 255, ".", ip & 255);
}

// The networks that nobody is given on the Internet, first and last address.
struct Range {
  uint32_t first, last;
};
constexpr Range kPrivate[] = {
    {0x0a000000, 0x0affffff},  // 10.0.0.0 to 10.255.255.255
    {0x64400000, 0x647fffff},  // 100.64.0.0 to 100.127.255.255
    {0x7f000000, 0x7fffffff},  // 127.0.0.0 to 127.255.255.255
    {0xa9fe0000, 0xa9feffff},  // 169.254.0.0 to 169.254.255.255
    {0xac100000, 0xac1fffff},  // 172.16.0.0 to 172.31.255.255
    {0xc0a80000, 0xc0a8ffff},  // 192.168.0.0 to 192.168.255.255
};

bool IsInARange(uint32_t ip) {
  for (const Range& range : kPrivate) {
    if (ip >= range.first && ip <= range.last) return true;
  }
  return false;
}

TEST(PrivateNames, EachNetworkBeginsAndEndsWhereTheStandardSays) {
  for (const Range& range : kPrivate) {
    EXPECT_TRUE(IsPrivateName(Text(range.first))) << Text(range.first);
    EXPECT_TRUE(IsPrivateName(Text(range.last))) << Text(range.last);
    EXPECT_FALSE(IsPrivateName(Text(range.first - 1))) << Text(range.first - 1);
    EXPECT_FALSE(IsPrivateName(Text(range.last + 1))) << Text(range.last + 1);
  }
}

TEST(PrivateNames, AnyAddressIsPrivateExactlyWithinThese) {
  std::mt19937 random(11);
  for (int round = 0; round < 20000; ++round) {
    uint32_t ip = random();
    // Half of them near a network's ends, where a mask that is a bit too long would show.
    if (round % 2 == 0) ip = (kPrivate[random() % std::size(kPrivate)].first ^ 1u << random() % 32);
    EXPECT_EQ(IsPrivateName(Text(ip)), IsInARange(ip)) << Text(ip);
    EXPECT_TRUE(IsAddress(Text(ip)));
  }
}

TEST(PrivateNames, AddressesOfSixteenBytes) {
  for (const char* ip : {"::1", "fe80::1", "febf::1", "fc00::", "fdff:ffff::1", "FD00::7"}) {
    EXPECT_TRUE(IsPrivateName(ip)) << ip;
    EXPECT_TRUE(IsAddress(ip)) << ip;
  }
  for (const char* ip :
       {"::", "::2", "2001:db8::1", "fec0::1", "fb00::1", "fe00::1", "ff02::1", "2600:1f18::1"}) {
    EXPECT_FALSE(IsPrivateName(ip)) << ip;
    EXPECT_TRUE(IsAddress(ip)) << ip;
  }
}

TEST(PrivateNames, NamesOfOneLabelAndOfNetworksOfOnesOwn) {
  for (const char* name :
       {"localhost", "mini-1", "a", "7up", "nas.local", "mini.rack.lan", "x.home", "db.internal",
        "tv.home.arpa", "box.localdomain", "xn--mller-kva.local"}) {
    EXPECT_TRUE(IsPrivateName(name)) << name;
    EXPECT_FALSE(IsAddress(name)) << name;
  }
  for (const char* name :
       {"example.com", "local.example.com", "home.arpa.example", "nas.locale", "mini.lan.com",
        "evil-local", "arpa", "notlocal.com", "a.home.arpa.de"}) {
    const bool one_label = std::string(name).find('.') == std::string::npos;
    EXPECT_EQ(IsPrivateName(name), one_label) << name;
  }
}

// Names compare without case (RFC 4343): a Mac calls itself "Mac-Studio.local", others shout.
TEST(PrivateNames, CapitalsAreTheSameName) {
  for (const char* name : {"Mac-Studio.local", "MINI.LOCAL", "nas.Lan", "tv.Home.Arpa", "MINI"}) {
    EXPECT_TRUE(IsPrivateName(name)) << name;
  }
  EXPECT_FALSE(IsPrivateName("LOCAL.COM"));
}

TEST(PrivateNames, WhatIsNoNameIsNone) {
  const std::string longest(63, 'a');
  const std::string too_long(64, 'a');
  std::string deep = "x";
  while (deep.size() <= 253) deep = "x." + deep;
  for (const std::string& name : std::vector<std::string>{"",
                                                          ".",
                                                          ".local",
                                                          "a..local",
                                                          "local.",
                                                          "mini.local.",
                                                          "-mini.local",
                                                          "mini-.local",
                                                          "mi_ni.local",
                                                          "mi ni.local",
                                                          "mini.local\n",
                                                          "*.local",
                                                          "m\xc3\xbcller.local",
                                                          std::string("mini\0.local", 11),
                                                          too_long,
                                                          too_long + ".local",
                                                          deep + ".local",
                                                          "mini.local,DNS:example.com",
                                                          "IP:10.0.0.1",
                                                          "[::1]",
                                                          "10.0.0.1:443",
                                                          "fe80::1%en0"}) {
    EXPECT_FALSE(IsPrivateName(name)) << name;
    EXPECT_FALSE(IsAddress(name)) << name;
  }
  EXPECT_TRUE(IsPrivateName(longest + ".local"));
}

TEST(PrivateNames, DigitsThatSomeTakeForAnAddressAreNoName) {
  for (const char* name : {"1", "2130706433", "127.1", "10.0.1", "08.8.8.8", "1.2.3.4.5",
                           "256.1.1.1", "8.8.8.8", "10.0.0.256"}) {
    EXPECT_FALSE(IsPrivateName(name)) << name;
  }
}

TEST(PrivateNames, NoPublicNameBecomesPrivateByWhatStandsBeforeIt) {
  std::mt19937 random(5);
  const std::vector<std::string> labels = {"local", "lan",         "home", "internal",
                                           "arpa",  "localdomain", "mini", "10",
                                           "a-b",   "127",         "fe80", "nas"};
  for (int round = 0; round < 5000; ++round) {
    std::string name;
    for (uint32_t left = 1 + random() % 4; left > 0; --left) {
      absl::StrAppend(&name, labels[random() % labels.size()], ".");
    }
    EXPECT_FALSE(IsPrivateName(name + "com")) << name;
    EXPECT_FALSE(IsPrivateName(name + "arpa") && !name.ends_with("home.")) << name;
    EXPECT_TRUE(IsPrivateName(name + "local")) << name;
    EXPECT_TRUE(IsPrivateName(name + "home.arpa")) << name;
  }
}

}  // namespace
}  // namespace macrame::transport
