#include "runtime/supervisor/port_reservation.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/reasons.h"

namespace macrame::runtime {
namespace {

TEST(PortReservation, EachIsAnotherPort) {
  auto first = PortReservation::Bind("127.0.0.1");
  auto second = PortReservation::Bind("127.0.0.1");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->address(), second->address());
  PortReservation moved = *std::move(first);
  EXPECT_EQ(moved.address().rfind("127.0.0.1:", 0), 0u);
  moved.Release();
  EXPECT_FALSE(moved.address().empty()) << "the address stays known";
}

// Whether somebody else can have the port of "127.0.0.1:PORT".
bool IsFree(const std::string& address) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  place.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&place), sizeof(place)) == 0;
  if (!bound) {
    EXPECT_EQ(errno, EADDRINUSE);
  }
  close(fd);
  return bound;
}

PortReservation Bound() {
  auto bound = PortReservation::Bind("127.0.0.1");
  EXPECT_TRUE(bound.ok()) << bound.status();
  return *std::move(bound);
}

TEST(PortReservation, ThePortIsKeptFromOthersUntilItIsReleased) {
  PortReservation kept = Bound();
  EXPECT_FALSE(IsFree(kept.address()));
  PortReservation moved = std::move(kept);
  EXPECT_FALSE(IsFree(moved.address())) << "a move gives nothing up";
  moved.Release();
  EXPECT_EQ(moved.fd(), -1);
  EXPECT_TRUE(IsFree(moved.address()));
  moved.Release();
  std::string address;
  {
    const PortReservation scoped = Bound();
    address = scoped.address();
    EXPECT_FALSE(IsFree(address));
  }
  EXPECT_TRUE(IsFree(address)) << "its end releases it";
}

TEST(PortReservation, AssigningReleasesWhatWasHeldBefore) {
  PortReservation held = Bound();
  const std::string before = held.address();
  PortReservation other = Bound();
  const std::string after = other.address();
  held = std::move(other);
  EXPECT_TRUE(IsFree(before));
  EXPECT_EQ(held.address(), after);
  EXPECT_FALSE(IsFree(after));
  PortReservation& itself = held;
  held = std::move(itself);
  EXPECT_FALSE(IsFree(after)) << "to itself";
  held = PortReservation();
  EXPECT_TRUE(IsFree(after));
  EXPECT_EQ(held.address(), "");
  EXPECT_EQ(held.fd(), -1);
}

// The rank that gets the socket goes on having the port when the agent lets it go.
TEST(PortReservation, WhoWasHandedTheSocketHasThePort) {
  PortReservation held = Bound();
  const int copy = dup(held.fd());
  ASSERT_GE(copy, 0);
  held.Release();
  EXPECT_FALSE(IsFree(held.address()));
  EXPECT_EQ(listen(copy, 1), 0) << "bound, not listening";
  close(copy);
}

TEST(PortReservation, AProcessThatIsStartedMeanwhileDoesNotInheritIt) {
  const PortReservation held = Bound();
  EXPECT_NE(fcntl(held.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(PortReservation, ManyAtOnceAreAllDifferent) {
  std::vector<PortReservation> held;
  std::set<std::string> addresses;
  for (int i = 0; i < 64; ++i) {
    held.push_back(Bound());
    EXPECT_TRUE(addresses.insert(held.back().address()).second) << held.back().address();
  }
}

TEST(PortReservation, AnAddressOfTheOtherFamilyIsWrittenInBrackets) {
  auto bound = PortReservation::Bind("::1");
  if (!bound.ok()) GTEST_SKIP() << "no IPv6 here: " << bound.status();
  EXPECT_THAT(bound->address(), testing::MatchesRegex("\\[::1\\]:[1-9][0-9]*"));
}

TEST(PortReservation, WhatCannotBeHadIsNamedWithItsCode) {
  for (const std::string ip : {"localhost", "", "192.0.2.1", "127.0.0.1:80", "256.0.0.1", "127.1",
                               "127.0.0.1\n", "::1%lo", "[::1]"}) {
    const auto bound = PortReservation::Bind(ip);
    EXPECT_EQ(ReasonOf(bound.status()).code(), "PORT_TAKEN") << ip;
    EXPECT_THAT(ReasonOf(bound.status()).message(), testing::HasSubstr("on " + ip + ": ")) << ip;
  }
}

TEST(PortReservation, WrongAddressesAreErrors) {
  EXPECT_FALSE(PortReservation::Bind("localhost").ok());
  EXPECT_FALSE(PortReservation::Bind("").ok());
  EXPECT_FALSE(PortReservation::Bind("192.0.2.1").ok());
}

}  // namespace
}  // namespace macrame::runtime
