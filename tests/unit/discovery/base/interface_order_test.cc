// Subnets, broadcasts and the order of addresses, over random ones.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "discovery/base/interfaces.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::discovery {
namespace {

namespace fs = std::filesystem;

std::string Text(const std::vector<uint8_t>& bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(bytes.size() == 4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof(text));
  return text;
}

bool Bit(const std::vector<uint8_t>& bytes, size_t at) {
  return (bytes[at / 8] >> (7 - at % 8) & 1) != 0;
}

TEST(InterfaceProperty, ASubnetIsWhatSharesItsFirstBits) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    const size_t size = random() % 2 == 0 ? 4 : 16;
    std::vector<uint8_t> a(size), b;
    for (uint8_t& byte : a) byte = static_cast<uint8_t>(random());
    b = a;
    const size_t flipped = random() % (8 * size);
    b[flipped / 8] ^= static_cast<uint8_t>(0x80 >> flipped % 8);
    const uint32_t length = random() % (8 * static_cast<uint32_t>(size) + 2);
    const bool holds = length >= 1 && length <= 8 * size && length <= flipped;
    EXPECT_EQ(InSameSubnet(Text(a), Text(b), length), holds)
        << Text(a) << " " << Text(b) << "/" << length;
    EXPECT_EQ(InSameSubnet(Text(b), Text(a), length), holds);
    EXPECT_EQ(InSameSubnet(Text(a), Text(a), length), length >= 1 && length <= 8 * size);
  }
}

TEST(InterfaceProperty, ABroadcastIsTheSubnetsLastAddress) {
  std::mt19937 random(2);
  for (int round = 0; round < 5000; ++round) {
    std::vector<uint8_t> ip(4);
    for (uint8_t& byte : ip) byte = static_cast<uint8_t>(random());
    const uint32_t length = random() % 34;
    const std::string broadcast = DirectedBroadcast(Text(ip), length);
    if (length == 0 || length > 30) {
      EXPECT_EQ(broadcast, "") << length;
      continue;
    }
    EXPECT_TRUE(InSameSubnet(Text(ip), broadcast, length));
    std::vector<uint8_t> bytes(4);
    ASSERT_EQ(::inet_pton(AF_INET, broadcast.c_str(), bytes.data()), 1);
    for (size_t bit = length; bit < 32; ++bit) EXPECT_TRUE(Bit(bytes, bit)) << broadcast;
  }
}

TEST(InterfaceProperty, TextThatIsNoAddressIsInNoSubnet) {
  for (const char* text : {"", "mini-1", "10.0.0", "10.0.0.1/24", "fe80::1%en0", "::g"}) {
    EXPECT_FALSE(InSameSubnet(text, text, 8)) << text;
    EXPECT_FALSE(InSameSubnet(text, "10.0.0.1", 8)) << text;
    EXPECT_EQ(DirectedBroadcast(text, 8), "") << text;
  }
}

v1::NodeAddress Address(const std::string& ip, v1::InterfaceKind kind, const std::string& name) {
  v1::NodeAddress address;
  address.set_ip(ip);
  address.set_interface_kind(kind);
  address.set_interface_name(name);
  return address;
}

TEST(InterfaceOrder, EveryNodeSortsTheSameAddressesAlike) {
  std::mt19937 random(3);
  const std::vector<std::string> ips = {"10.0.0.1", "10.0.0.10", "169.254.1.1", "fd00::1",
                                        "fd00::2",  "192.0.2.1", "9.9.9.9"};
  for (int round = 0; round < 500; ++round) {
    std::vector<v1::NodeAddress> addresses;
    for (uint32_t left = random() % 12; left > 0; --left) {
      addresses.push_back(Address(ips[random() % ips.size()],
                                  static_cast<v1::InterfaceKind>(random() % 7),
                                  absl::StrCat("en", random() % 3)));
    }
    std::vector<v1::NodeAddress> shuffled = addresses;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    SortAddresses(addresses);
    SortAddresses(shuffled);
    ASSERT_EQ(addresses.size(), shuffled.size());
    for (size_t i = 0; i < addresses.size(); ++i) {
      EXPECT_EQ(addresses[i].SerializeAsString(), shuffled[i].SerializeAsString());
    }
  }
}

TEST(InterfaceOrder, ACableComesFirstAndABridgeLast) {
  std::vector<v1::NodeAddress> addresses = {
      Address("10.9.0.1", v1::INTERFACE_KIND_BRIDGE, "bridge0"),
      Address("100.64.0.1", v1::INTERFACE_KIND_VPN, "utun3"),
      Address("127.0.0.1", v1::INTERFACE_KIND_LOOPBACK, "lo0"),
      Address("10.5.0.1", v1::INTERFACE_KIND_UNSPECIFIED, "x0"),
      Address("10.4.0.1", v1::INTERFACE_KIND_WIFI, "en1"),
      Address("fd00::3", v1::INTERFACE_KIND_ETHERNET, "en0"),
      Address("10.3.0.1", v1::INTERFACE_KIND_ETHERNET, "en0"),
      Address("169.254.3.3", v1::INTERFACE_KIND_THUNDERBOLT, "en2"),
      Address("198.18.0.1", v1::INTERFACE_KIND_THUNDERBOLT, "en2")};
  SortAddresses(addresses);
  std::vector<std::string> sorted,
      expected = {"198.18.0.1", "169.254.3.3", "10.3.0.1",   "fd00::3", "10.4.0.1",
                  "10.5.0.1",   "127.0.0.1",   "100.64.0.1", "10.9.0.1"};
  for (const v1::NodeAddress& address : addresses) sorted.push_back(address.ip());
  EXPECT_EQ(sorted, expected);
}

TEST(NodeAddressesTest, EachIsSaidWithItsInterfaceAndNothingOfOnesThatAreDown) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    std::vector<Interface> interfaces;
    size_t usable = 0;
    const bool with_loopback = random() % 2 == 0;
    for (uint32_t i = 0; i < random() % 6; ++i) {
      Interface& one = interfaces.emplace_back();
      one.name = absl::StrCat("en", i);
      one.is_up = random() % 2 == 0;
      one.is_loopback = random() % 4 == 0;
      for (uint32_t k = random() % 4; k > 0; --k) {
        const bool local_v6 = random() % 3 == 0;
        one.addresses.push_back(local_v6 ? InterfaceAddress{absl::StrCat("fe80::", k), true, 64, ""}
                                         : InterfaceAddress{absl::StrCat("10.0.", i, ".", k), false,
                                                            24, absl::StrCat("10.0.", i, ".255")});
        usable += one.is_up && (!one.is_loopback || with_loopback) && !local_v6;
      }
    }
    const std::vector<v1::NodeAddress> addresses = NodeAddresses(interfaces, with_loopback);
    EXPECT_EQ(addresses.size(), usable);
    for (const v1::NodeAddress& address : addresses) {
      EXPECT_TRUE(address.ip().starts_with("10.0." + address.interface_name().substr(2) + "."));
      EXPECT_EQ(address.prefix_length(), 24u);
    }
  }
}

// A folder that stands for a Linux machine's /sys.
class SysfsKinds : public ::testing::Test {
 protected:
  SysfsKinds() : root_(FreshFolder()) { fs::create_directories(root_ + "/sys/class/net"); }

  void Write(const std::string& path, const std::string& text) {
    const fs::path file = fs::path(root_ + "/sys/class/net") / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  v1::InterfaceKind Kind(const std::string& name) { return KindFromSysfs(root_, name); }

  const std::string root_;
};

TEST_F(SysfsKinds, WhatTheKernelSaysCountsNotTheName) {
  Write("eth0/type", "772\n");
  EXPECT_EQ(Kind("eth0"), v1::INTERFACE_KIND_LOOPBACK);
  Write("eth1/phy80211/index", "0\n");
  Write("eth1/type", "1\n");
  EXPECT_EQ(Kind("eth1"), v1::INTERFACE_KIND_WIFI);
  Write("eth2/type", "65534\n");
  EXPECT_EQ(Kind("eth2"), v1::INTERFACE_KIND_VPN);
  Write("eth3/type", "512\n");
  EXPECT_EQ(Kind("eth3"), v1::INTERFACE_KIND_VPN);
  Write("wlan0/type", "1\n");
  EXPECT_EQ(Kind("wlan0"), v1::INTERFACE_KIND_ETHERNET);
  Write("mesh/uevent", "INTERFACE=mesh\nDEVTYPE=wlan\n");
  EXPECT_EQ(Kind("mesh"), v1::INTERFACE_KIND_WIFI);
  Write("virt/uevent", "DEVTYPE=bridge\nINTERFACE=virt\n");
  EXPECT_EQ(Kind("virt"), v1::INTERFACE_KIND_BRIDGE);
  Write("office/uevent", "INTERFACE=office\nDEVTYPE=wireguard\n");
  EXPECT_EQ(Kind("office"), v1::INTERFACE_KIND_VPN);
}

TEST_F(SysfsKinds, ADriverMakesACableOfAnyName) {
  Write("enx1/type", "1\n");
  fs::create_directories(root_ + "/sys/bus/thunderbolt/drivers/thunderbolt-net");
  fs::create_directories(root_ + "/sys/class/net/enx1/device");
  fs::create_symlink(root_ + "/sys/bus/thunderbolt/drivers/thunderbolt-net",
                     root_ + "/sys/class/net/enx1/device/driver");
  EXPECT_EQ(Kind("enx1"), v1::INTERFACE_KIND_THUNDERBOLT);
}

TEST_F(SysfsKinds, NoNameLeavesTheFolder) {
  Write("eth0/type", "1\n");
  for (const char* name : {"", "../net/eth0", "/eth0", "eth0/", "./eth0", "eth1"}) {
    EXPECT_EQ(Kind(name), v1::INTERFACE_KIND_UNSPECIFIED) << name;
  }
  Write("eth2/type", "not a number\n");
  EXPECT_EQ(Kind("eth2"), v1::INTERFACE_KIND_ETHERNET);
}

TEST(KindFromNameTest, ANumberMustFollowAndNothingElse) {
  for (const char* name : {"lo1x", "utunnel", "wgx", "bridgey", "dockers", "thunderboltx", "ethx",
                           "apple0", "tapx1", "0lo", " lo", "LO0"}) {
    EXPECT_EQ(KindFromName(name), v1::INTERFACE_KIND_UNSPECIFIED) << name;
  }
  EXPECT_EQ(KindFromName("br-3f2a"), v1::INTERFACE_KIND_BRIDGE);
  EXPECT_EQ(KindFromName("wlp2s0"), v1::INTERFACE_KIND_WIFI);
  EXPECT_EQ(KindFromName("veth12ab"), v1::INTERFACE_KIND_ETHERNET);
  EXPECT_EQ(KindFromName(""), v1::INTERFACE_KIND_UNSPECIFIED);
}

}  // namespace
}  // namespace macrame::discovery
