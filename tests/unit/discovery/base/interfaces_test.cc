#include "discovery/base/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>
#include <tuple>

#include "tests/unit/discovery/mutation.h"

namespace macrame::discovery {
namespace {

const std::string kCaptures = "tests/captures/";

std::string Read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(Interfaces, ThisMachineHasLoopback) {
  const auto interfaces = ListInterfaces(KindFromName);
  ASSERT_TRUE(interfaces.ok()) << interfaces.status().message();
  bool found = false;
  for (const Interface& interface : *interfaces) {
    if (!interface.is_loopback) continue;
    found = true;
    EXPECT_EQ(interface.kind, v1::INTERFACE_KIND_LOOPBACK);
    EXPECT_GT(interface.index, 0u);
    for (const auto& address : interface.addresses) {
      if (address.ip != "127.0.0.1") continue;
      EXPECT_EQ(address.prefix_length, 8u);
      EXPECT_EQ(address.broadcast, "127.255.255.255");
    }
  }
  EXPECT_TRUE(found);
}

TEST(Interfaces, DirectedBroadcast) {
  EXPECT_EQ(DirectedBroadcast("192.168.1.77", 24), "192.168.1.255");
  EXPECT_EQ(DirectedBroadcast("10.1.2.3", 8), "10.255.255.255");
  EXPECT_EQ(DirectedBroadcast("198.18.0.5", 30), "198.18.0.7");
  EXPECT_EQ(DirectedBroadcast("10.0.0.1", 31), "");
  EXPECT_EQ(DirectedBroadcast("10.0.0.1", 32), "");
  EXPECT_EQ(DirectedBroadcast("fe80::1", 24), "");
}

TEST(Interfaces, Subnets) {
  EXPECT_TRUE(InSameSubnet("10.0.0.1", "10.0.0.200", 24));
  EXPECT_FALSE(InSameSubnet("10.0.0.1", "10.0.1.1", 24));
  EXPECT_TRUE(InSameSubnet("198.18.0.1", "198.18.0.2", 30));
  EXPECT_FALSE(InSameSubnet("198.18.0.1", "198.18.0.5", 30));
  EXPECT_TRUE(InSameSubnet("fd00::1", "fd00::2:1", 64));
  EXPECT_FALSE(InSameSubnet("fd00::1", "10.0.0.1", 8));
  EXPECT_FALSE(InSameSubnet("10.0.0.1", "10.0.0.1", 0));
  EXPECT_FALSE(InSameSubnet("10.0.0.1", "10.0.0.1", 33));
}

TEST(Interfaces, KindsFromSysfs) {
  const std::string root = kCaptures + "linux-workstation";
  EXPECT_EQ(KindFromSysfs(root, "lo"), v1::INTERFACE_KIND_LOOPBACK);
  EXPECT_EQ(KindFromSysfs(root, "eno1"), v1::INTERFACE_KIND_ETHERNET);
  EXPECT_EQ(KindFromSysfs(root, "wlp2s0"), v1::INTERFACE_KIND_WIFI);
  EXPECT_EQ(KindFromSysfs(root, "br0"), v1::INTERFACE_KIND_BRIDGE);
  EXPECT_EQ(KindFromSysfs(root, "wg0"), v1::INTERFACE_KIND_VPN);
  EXPECT_EQ(KindFromSysfs(root, "tap7"), v1::INTERFACE_KIND_VPN);
  EXPECT_EQ(KindFromSysfs(root, "thunderbolt0"), v1::INTERFACE_KIND_THUNDERBOLT);
  EXPECT_EQ(KindFromSysfs(root, "nosuch0"), v1::INTERFACE_KIND_UNSPECIFIED);
  EXPECT_EQ(KindFromSysfs(root, "../net/lo"), v1::INTERFACE_KIND_UNSPECIFIED);
}

TEST(Interfaces, KindsFromNetworksetup) {
  const auto studio =
      ParseHardwarePorts(Read(kCaptures + "studio-m3-ultra-512/hardware-ports.txt"));
  EXPECT_EQ(studio.at("en0"), v1::INTERFACE_KIND_ETHERNET);
  EXPECT_EQ(studio.at("en1"), v1::INTERFACE_KIND_WIFI);
  EXPECT_EQ(studio.at("en5"), v1::INTERFACE_KIND_THUNDERBOLT);
  EXPECT_EQ(studio.at("en8"), v1::INTERFACE_KIND_ETHERNET);
  EXPECT_EQ(studio.at("bridge0"), v1::INTERFACE_KIND_BRIDGE);
  const auto air =
      ParseHardwarePorts(Read(kCaptures + "macbook-air-m4-on-battery/hardware-ports.txt"));
  EXPECT_EQ(air.at("en0"), v1::INTERFACE_KIND_WIFI);
  EXPECT_EQ(air.at("en2"), v1::INTERFACE_KIND_THUNDERBOLT);
  EXPECT_EQ(air.at("en6"), v1::INTERFACE_KIND_ETHERNET);
  EXPECT_TRUE(ParseHardwarePorts("").empty());
}

// Names are in the system's language or people's own; what a Mac calls bridge0 is not.
TEST(Interfaces, KindsFromNetworksetupInOtherLanguages) {
  const std::tuple<const char*, const char*, v1::InterfaceKind> ports[] = {
      {"WLAN", "en1", v1::INTERFACE_KIND_WIFI},
      {"USB 10/100/1000 LAN", "en7", v1::INTERFACE_KIND_ETHERNET},
      {"Thunderbolt-Bridge", "bridge0", v1::INTERFACE_KIND_BRIDGE},
      {"Pont Thunderbolt", "bridge0", v1::INTERFACE_KIND_BRIDGE},
      {"Thunderbolt ブリッジ", "bridge0", v1::INTERFACE_KIND_BRIDGE},
      {"雷雳网桥", "bridge0", v1::INTERFACE_KIND_BRIDGE},
      {"Ethernet", "bridge1", v1::INTERFACE_KIND_BRIDGE},
      {"Thunderbolt 2", "en3", v1::INTERFACE_KIND_THUNDERBOLT},
      {"Thunderbolt-Ethernet-Steckplatz 1", "en5", v1::INTERFACE_KIND_ETHERNET},
      {"Thunderbolt Ethernet Slot 1", "en5", v1::INTERFACE_KIND_ETHERNET}};
  for (const auto& [port, device, kind] : ports) {
    const auto kinds = ParseHardwarePorts("Hardware Port: " + std::string(port) +
                                          "\nDevice: " + std::string(device) + "\n");
    ASSERT_TRUE(kinds.contains(device)) << port;
    EXPECT_EQ(kinds.at(device), kind) << port;
  }
  EXPECT_TRUE(ParseHardwarePorts("Hardware Port: 雷雳 2\nDevice: en3\n").empty())
      << "what is not known is not guessed";
  EXPECT_TRUE(ParseHardwarePorts("Hardware Port: iPhone USB\nDevice: en9\n").empty())
      << "no network that joins machines";
}

TEST(Interfaces, HardwarePortsSurviveTruncationAndDamage) {
  const std::string text = Read(kCaptures + "studio-m3-ultra-512/hardware-ports.txt");
  const auto whole = ParseHardwarePorts(text);
  for (size_t n = 0; n <= text.size(); ++n) {
    // A cut may hide a device, never turn it into another kind.
    for (const auto& [device, kind] : ParseHardwarePorts(text.substr(0, n))) {
      ASSERT_TRUE(whole.contains(device)) << n;
      ASSERT_EQ(whole.at(device), kind) << n;
    }
  }
  std::mt19937_64 random(3);
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_LE(ParseHardwarePorts(tests::Mutate(text, random)).size(), kInterfacesMax);
  }
}

TEST(Interfaces, KindsFromNames) {
  EXPECT_EQ(KindFromName("lo0"), v1::INTERFACE_KIND_LOOPBACK);
  EXPECT_EQ(KindFromName("utun3"), v1::INTERFACE_KIND_VPN);
  EXPECT_EQ(KindFromName("bridge100"), v1::INTERFACE_KIND_BRIDGE);
  EXPECT_EQ(KindFromName("br-3f2a"), v1::INTERFACE_KIND_BRIDGE);
  EXPECT_EQ(KindFromName("wlp3s0"), v1::INTERFACE_KIND_WIFI);
  EXPECT_EQ(KindFromName("eth0"), v1::INTERFACE_KIND_ETHERNET);
  // On a Mac this may be anything.
  EXPECT_EQ(KindFromName("en5"), v1::INTERFACE_KIND_UNSPECIFIED);
}

TEST(Interfaces, NodeAddressesAreThoseThatOthersCanUse) {
  const auto make = [](const char* name, v1::InterfaceKind kind, bool is_up,
                       std::vector<InterfaceAddress> addresses) {
    Interface interface;
    interface.name = name;
    interface.kind = kind;
    interface.is_up = is_up;
    interface.is_loopback = kind == v1::INTERFACE_KIND_LOOPBACK;
    interface.addresses = std::move(addresses);
    return interface;
  };
  const auto lo = make("lo", v1::INTERFACE_KIND_LOOPBACK, true,
                       {{"127.0.0.1", false, 8, "127.255.255.255"}, {"::1", true, 128, ""}});
  const auto wifi = make("en1", v1::INTERFACE_KIND_WIFI, true,
                         {{"10.0.0.2", false, 24, "10.0.0.255"}, {"fe80::2", true, 64, ""}});
  const auto thunderbolt = make(
      "en2", v1::INTERFACE_KIND_THUNDERBOLT, true,
      {{"fd00::3", true, 64, ""}, {"169.254.9.9", false, 16, ""}, {"198.18.0.1", false, 30, ""}});
  const auto down = make("en3", v1::INTERFACE_KIND_ETHERNET, false, {{"10.5.0.2", false, 24, ""}});
  const std::vector<Interface> all = {lo, wifi, thunderbolt, down};
  std::vector<std::string> ips;
  for (const auto& address : NodeAddresses(all, false)) ips.push_back(address.ip());
  EXPECT_THAT(ips, ::testing::ElementsAre("198.18.0.1", "fd00::3", "169.254.9.9", "10.0.0.2"));
  EXPECT_EQ(NodeAddresses(all, true).size(), 6u);
}

}  // namespace
}  // namespace macrame::discovery
