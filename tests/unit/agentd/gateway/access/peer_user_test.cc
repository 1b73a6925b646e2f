#include "agentd/gateway/access/peer_user.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>

namespace macrame::agentd {
namespace {

namespace net = boost::asio;
using net::ip::tcp;

tcp::endpoint At(const char* address, uint16_t port) {
  return {net::ip::make_address(address), port};
}

constexpr char kHead[] =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    "inode\n";

TEST(SocketTable, TheOtherEndsUserIsFound) {
  // Both ends of one connection from port 0xC000 to 0x1F40, and a listening socket.
  const std::string table =
      std::string(kHead) +
      "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999        0 "
      "31 1 0000000000000000 100 0 0 10 0\n"
      "   1: 0100007F:1F40 0100007F:C000 01 00000000:00000000 00:00000000 00000000   999        0 "
      "32 1 0000000000000000 20 4 30 10 -1\n"
      "   2: 0100007F:C000 0100007F:1F40 01 00000000:00000000 00:00000000 00000000  1000        0 "
      "33 1 0000000000000000 20 4 30 10 -1\n";
  EXPECT_EQ(UserInSocketTable(table, At("127.0.0.1", 0xC000), At("127.0.0.1", 0x1F40)), 1000u);
  EXPECT_EQ(UserInSocketTable(table, At("::ffff:127.0.0.1", 0xC000), At("127.0.0.1", 0x1F40)),
            1000u);
  EXPECT_EQ(UserInSocketTable(table, At("127.0.0.1", 0xC001), At("127.0.0.1", 0x1F40)),
            std::nullopt);
  EXPECT_EQ(UserInSocketTable(table, At("127.0.0.2", 0xC000), At("127.0.0.1", 0x1F40)),
            std::nullopt);
}

// Of what its process has closed the kernel says user 0: who closes at once is not root for that.
TEST(SocketTable, OnlyOpenConnectionsCount) {
  for (const char* state : {"04", "05", "06", "08", "0A", "0B"}) {
    const std::string table = std::string(kHead) + "   0: 0100007F:C000 0100007F:1F40 " + state +
                              " 00000000:00000000 00:00000000 00000000     0        0 0 1\n";
    EXPECT_EQ(UserInSocketTable(table, At("127.0.0.1", 0xC000), At("127.0.0.1", 0x1F40)),
              std::nullopt)
        << state;
  }
}

TEST(SocketTable, Ipv6AndMappedAddresses) {
  const std::string table =
      std::string(kHead) +
      "   0: 00000000000000000000000001000000:C000 00000000000000000000000001000000:1F40 01 "
      "00000000:00000000 00:00000000 00000000  1001        0 41 1\n"
      "   1: 0000000000000000FFFF00000100007F:C001 0000000000000000FFFF00000100007F:1F40 01 "
      "00000000:00000000 00:00000000 00000000  1002        0 42 1\n";
  EXPECT_EQ(UserInSocketTable(table, At("::1", 0xC000), At("::1", 0x1F40)), 1001u);
  EXPECT_EQ(UserInSocketTable(table, At("127.0.0.1", 0xC001), At("127.0.0.1", 0x1F40)), 1002u);
}

TEST(SocketTable, WhatIsNoTableTellsNothing) {
  for (const char* text : {"", "\n\n", "garbage", "0: 0100007F:C000 0100007F:1F40 01"}) {
    EXPECT_EQ(UserInSocketTable(text, At("127.0.0.1", 0xC000), At("127.0.0.1", 0x1F40)),
              std::nullopt);
  }
}

TEST(PeerUser, IsThisProcesssUserOfItsOwnConnections) {
  if (!TellsPeerUsers()) GTEST_SKIP() << "this system does not tell";
  net::io_context io;
  for (const char* loopback : {"127.0.0.1", "::1"}) {
    tcp::acceptor acceptor(io);
    boost::system::error_code error;
    const tcp::endpoint any = At(loopback, 0);
    acceptor.open(any.protocol());
    acceptor.bind(any, error);
    if (error) continue;  // no IPv6 here
    acceptor.listen();
    tcp::socket client(io);
    client.connect(acceptor.local_endpoint());
    tcp::socket server = acceptor.accept();
    EXPECT_EQ(UserOfPeer(server.remote_endpoint(), server.local_endpoint()), ::geteuid());
    client.close();
    EXPECT_EQ(UserOfPeer(At(loopback, 1), server.local_endpoint()), std::nullopt);
  }
}

TEST(PeerUser, TheAgentsUserRootAndTheGroupAreObeyed) {
  EXPECT_TRUE(IsObeyedUser(::geteuid(), ""));
  EXPECT_TRUE(IsObeyedUser(0, ""));
  EXPECT_FALSE(IsObeyedUser(65'534, ""));
  EXPECT_FALSE(IsObeyedUser(65'534, "root"));
  EXPECT_FALSE(IsObeyedUser(65'534, "no-such-group-here"));
  EXPECT_TRUE(IsObeyedUser(65'534, "nogroup") || ::access("/etc/debian_version", F_OK) != 0)
      << "by its first group";
}

}  // namespace
}  // namespace macrame::agentd
