#include "transport/socket_address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>

namespace macrame::transport {
namespace {

int PortOf(const SocketAddress& address) {
  if (address.family() == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(address.storage).sin_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_port);
}

TEST(SocketAddressTest, AddressesAreReadAndWrittenAlike) {
  for (const char* ip : {"0.0.0.0", "127.0.0.1", "10.77.0.254", "255.255.255.255", "::", "::1",
                         "fd00::7", "2001:db8::ff00:42:8329", "fe80::1"}) {
    for (const int port : {0, 1, 443, 65535}) {
      const auto address = ParseSocketAddress(ip, port);
      ASSERT_TRUE(address.has_value()) << ip;
      EXPECT_EQ(IpText(address->storage), ip);
      EXPECT_EQ(PortOf(*address), port);
      const bool is_v6 = std::string(ip).find(':') != std::string::npos;
      EXPECT_EQ(address->family(), is_v6 ? AF_INET6 : AF_INET);
      EXPECT_EQ(address->size, is_v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    }
  }
}

TEST(SocketAddressTest, NamesZonesPortsAndHalfAddressesAreNone) {
  for (const char* text :
       {"", "localhost", "10.0.0", "10.0.0.256", "10.0.0.1 ", " 10.0.0.1", "10.0.0.1:80", "[::1]",
        "::1%lo", "fe80::1%1", "1::2::3", "0x7f.0.0.1", "010.0.0.1.", "10.0.0.1\n", "*"}) {
    EXPECT_FALSE(ParseSocketAddress(text, 80).has_value()) << text;
  }
}

TEST(SocketAddressTest, AnAddressOfADualStackSocketIsTheOldOneInside) {
  const auto mapped = ParseSocketAddress("::ffff:192.0.2.33", 7);
  ASSERT_TRUE(mapped.has_value());
  EXPECT_EQ(mapped->family(), AF_INET6);
  EXPECT_EQ(IpText(mapped->storage), "192.0.2.33");
  // What merely ends like one stays what it is.
  const auto other = ParseSocketAddress("64:ff9b::c000:221", 7);
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(IpText(other->storage), "64:ff9b::c000:221");
}

TEST(SocketAddressTest, AnIp6NetworkIsCountedAsOneAddress) {
  const std::string name = CountedAddress("2001:db8:1:2::7");
  for (const char* ip :
       {"2001:db8:1:2::", "2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::7%3"}) {
    EXPECT_EQ(CountedAddress(ip), name) << ip;
  }
  EXPECT_NE(CountedAddress("2001:db8:1:3::7"), name);
  EXPECT_NE(CountedAddress("fd00::7"), CountedAddress("fd00:0:0:1::7"));
}

// fe80::/64 is every machine on the link, and ::/64 holds the loopback address.
TEST(SocketAddressTest, OtherAddressesAreCountedWhole) {
  for (const char* ip :
       {"10.0.0.7", "127.0.0.1", "::1", "fe80::7", "fe80::7%en0", "fe80::7%2", "", "localhost"}) {
    EXPECT_EQ(CountedAddress(ip), ip);
  }
  EXPECT_EQ(CountedAddress("::ffff:192.0.2.33"), "192.0.2.33");
}

TEST(SocketAddressTest, APortIsToldFromTheColonsOfAnAddress) {
  EXPECT_EQ(HostPort("10.0.0.7", 4711), "10.0.0.7:4711");
  EXPECT_EQ(HostPort("fd00::7", 4711), "[fd00::7]:4711");
  EXPECT_EQ(HostPort("mini-1.local", 80), "mini-1.local:80");
}

TEST(SocketAddressTest, TheSystemTakesAndGivesWhatIsParsed) {
  const auto asked = ParseSocketAddress("127.0.0.1", 0);
  ASSERT_TRUE(asked.has_value());
  const int fd = ::socket(asked->family(), SOCK_STREAM, 0);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::bind(fd, asked->get(), asked->size), 0);
  SocketAddress given;
  given.size = sizeof(given.storage);
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&given.storage), &given.size), 0);
  EXPECT_EQ(IpText(given.storage), "127.0.0.1");
  EXPECT_GT(PortOf(given), 0);
  ::close(fd);
}

TEST(SocketAddressTest, ADescriptorOfOnesOwnWaitsForNobodyAndIsNotInherited) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  MakeOwn(ends[0]);
  EXPECT_NE(::fcntl(ends[0], F_GETFD) & FD_CLOEXEC, 0);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), -1);
  EXPECT_TRUE(errno == EAGAIN || errno == EWOULDBLOCK);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(SocketAddressTest, RandomBytesAreNeverAnAddressThatReadsBackAsAnother) {
  std::mt19937 random(3);
  const std::string letters = "0123456789abcdef.:% ";
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint32_t left = random() % 20; left > 0; --left)
      text += letters[random() % letters.size()];
    const auto address = ParseSocketAddress(text, 1);
    if (!address) continue;
    const std::string told = IpText(address->storage);
    const auto again = ParseSocketAddress(told, 1);
    ASSERT_TRUE(again.has_value()) << text << " became " << told;
    EXPECT_EQ(IpText(again->storage), told);
  }
}

}  // namespace
}  // namespace macrame::transport
