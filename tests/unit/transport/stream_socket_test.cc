#include "transport/stream_socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

constexpr milliseconds kLimit{10'000};

std::string AddressOf(const StreamSocket& listener) {
  return absl::StrCat("127.0.0.1:", listener.LocalPort());
}

struct Ends {
  Ends() {
    caller = StreamSocket::Connect(AddressOf(listener), kLimit).value();
    answerer = listener.Accept(kLimit).value();
  }
  StreamSocket listener = StreamSocket::Listen("127.0.0.1:0").value();
  StreamSocket caller, answerer;
};

TEST(StreamSocket, WhatIsNoAddressIsRefusedAndSaid) {
  for (const std::string address :
       {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1:65536", "127.0.0.1:70000",
        "127.0.0.1:99999999999999999999", "127.0.0.1:80x", "127.0.0.1: 80", "127.0.0.1:+80",
        "localhost:80", "[::1:80", ":80x", "256.0.0.1:80"}) {
    const auto listener = StreamSocket::Listen(address);
    EXPECT_TRUE(absl::IsInvalidArgument(listener.status())) << address << listener.status();
    const auto connection = StreamSocket::Connect(address, milliseconds(1));
    ASSERT_TRUE(absl::IsInvalidArgument(connection.status())) << address << connection.status();
    EXPECT_THAT(std::string(connection.status().message()), HasSubstr("'" + address + "'"));
  }
}

TEST(StreamSocket, APortThatIsTakenIsNamed) {
  const auto first = StreamSocket::Listen("127.0.0.1:0").value();
  const auto second = StreamSocket::Listen(AddressOf(first));
  EXPECT_EQ(ReasonOf(second.status()).code(), reasons::kPortTaken) << second.status();
  EXPECT_THAT(ReasonOf(second.status()).message(), HasSubstr(AddressOf(first)));
  const auto foreign = StreamSocket::Listen("192.0.2.77:0");
  EXPECT_EQ(ReasonOf(foreign.status()).code(), reasons::kConnectFailed) << "not this machine's";
  EXPECT_THAT(ReasonOf(foreign.status()).message(), HasSubstr("192.0.2.77:0"));
}

TEST(StreamSocket, NobodyThereIsSaidWithWhatTheSystemSaid) {
  const std::string address = AddressOf(StreamSocket::Listen("127.0.0.1:0").value());
  const auto begun = steady_clock::now();
  const auto connection = StreamSocket::Connect(address, milliseconds(100));
  EXPECT_TRUE(absl::IsDeadlineExceeded(connection.status()));
  EXPECT_THAT(std::string(connection.status().message()), HasSubstr(address));
  EXPECT_THAT(std::string(connection.status().message()), HasSubstr("Connection refused"));
  EXPECT_LT(steady_clock::now() - begun, std::chrono::seconds(3));
}

// Both start at the same time: who calls is the first as often as not.
TEST(StreamSocket, ACallerWaitsForWhoComesLater) {
  const int bound = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(bound, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  StreamSocket port(bound);
  const std::string where = AddressOf(port);
  EXPECT_FALSE(StreamSocket::Connect(where, milliseconds(1)).ok()) << "nobody listens yet";
  std::thread caller([&] { EXPECT_TRUE(StreamSocket::Connect(where, kLimit).ok()); });
  const auto listener = StreamSocket::ListenAt(port.Release());
  ASSERT_TRUE(listener.ok());
  EXPECT_TRUE(listener->Accept(kLimit).ok());
  caller.join();
}

TEST(StreamSocket, LeavesFromTheAddressThatItIsGiven) {
  const auto listener = StreamSocket::Listen("127.0.0.1:0").value();
  const auto caller = StreamSocket::Connect(AddressOf(listener), kLimit, "127.0.0.9");
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_EQ(caller->LocalIp(), "127.0.0.9");
  EXPECT_EQ(listener.Accept(kLimit)->PeerIp(), "127.0.0.9");
  const auto foreign = StreamSocket::Connect(AddressOf(listener), kLimit, "192.0.2.77");
  EXPECT_THAT(std::string(foreign.status().message()), HasSubstr("192.0.2.77"));
}

TEST(StreamSocket, NobodyCallsUntilTheLimit) {
  const auto listener = StreamSocket::Listen("127.0.0.1:0").value();
  EXPECT_TRUE(absl::IsDeadlineExceeded(listener.Accept(milliseconds(0)).status()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(listener.Accept(milliseconds(-5)).status()));
}

TEST(StreamSocket, FramesComeWholeUpToTheLargest) {
  const Ends ends;
  std::thread sender([&] {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{65535}, kFrameBytesMax}) {
      EXPECT_TRUE(ends.caller.SendFrame(std::string(size, 'f')).ok());
    }
  });
  for (const size_t size : {size_t{0}, size_t{1}, size_t{65535}, kFrameBytesMax}) {
    EXPECT_EQ(ends.answerer.ReceiveFrame().value(), std::string(size, 'f'));
  }
  sender.join();
  EXPECT_TRUE(absl::IsInvalidArgument(ends.caller.SendFrame(std::string(kFrameBytesMax + 1, 'f'))));
}

TEST(StreamSocket, AFrameThatIsTooLongIsNotWaitedFor) {
  const Ends ends;
  for (const std::string& length : {std::string("\x01\x00\x01\x00", 4), std::string(4, '\xff')}) {
    ASSERT_TRUE(ends.caller.SendBytes(length).ok());
    EXPECT_TRUE(absl::IsDataLoss(ends.answerer.ReceiveFrame().status()));
  }
}

TEST(StreamSocket, AFrameThatIsCutIsNone) {
  Ends ends;
  ASSERT_TRUE(ends.caller.SendBytes(std::string("\x08\x00\x00\x00half", 8)).ok());
  ends.caller.Close();
  EXPECT_TRUE(absl::IsUnavailable(ends.answerer.ReceiveFrame().status()));
}

TEST(StreamSocket, AReceiveLimitEndsAWait) {
  const Ends ends;
  ends.answerer.SetReceiveLimit(milliseconds(50));
  char byte = 0;
  EXPECT_TRUE(absl::IsDeadlineExceeded(ends.answerer.ReceiveBytes(&byte, 1)));
  // And what came in time is there.
  ASSERT_TRUE(ends.caller.SendBytes("x").ok());
  EXPECT_TRUE(ends.answerer.ReceiveBytes(&byte, 1).ok());
}

TEST(StreamSocket, ALimitInAllHoldsHoweverItDripsIn) {
  const Ends ends;
  std::thread dripping([&] {
    // Until it is not listened to any more.
    while (ends.caller.SendBytes("d").ok()) {
      std::this_thread::yield();
      char bye = 0;
      if (recv(ends.caller.fd(), &bye, 1, MSG_DONTWAIT) == 0) return;
    }
  });
  std::string out(512 << 20, ' ');
  const auto begun = steady_clock::now();
  const absl::Status status =
      ends.answerer.ReceiveBytesBefore(out.data(), out.size(), begun + milliseconds(100));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_LT(steady_clock::now() - begun, std::chrono::seconds(3));
  ends.answerer.ShutDown();
  dripping.join();
}

TEST(StreamSocket, WhatCameBeforeTheEndIsTaken) {
  Ends ends;
  char bytes[3];
  ASSERT_TRUE(ends.caller.SendBytes("abcd").ok());
  const auto end = steady_clock::now() + kLimit;
  EXPECT_TRUE(ends.answerer.ReceiveBytesBefore(bytes, 3, end).ok());
  EXPECT_EQ(std::string(bytes, 3), "abc");
  ends.caller.Close();
  EXPECT_TRUE(absl::IsUnavailable(ends.answerer.ReceiveBytesBefore(bytes, 2, end)))
      << "one came, then the end";
}

TEST(StreamSocket, ShutDownWakesWhoWaits) {
  const Ends ends;
  std::thread waiting([&] {
    char byte = 0;
    EXPECT_TRUE(absl::IsUnavailable(ends.answerer.ReceiveBytes(&byte, 1)));
  });
  ends.answerer.ShutDown();
  waiting.join();
  EXPECT_TRUE(ends.answerer.open()) << "its number is nobody else's yet";
}

// Without care the first would end the process.
TEST(StreamSocket, SendingToSomeoneWhoLeftIsAnError) {
  Ends ends;
  ends.answerer.Close();
  absl::Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) status = ends.caller.SendBytes("anybody there?");
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST(StreamSocket, IsNotInheritedByProgramsThatAreStarted) {
  const Ends ends;
  for (const StreamSocket* socket : {&ends.caller, &ends.answerer, &ends.listener}) {
    EXPECT_NE(fcntl(socket->fd(), F_GETFD) & FD_CLOEXEC, 0);
  }
}

TEST(StreamSocket, OwnsItsDescriptorOnce) {
  Ends ends;
  const int fd = ends.caller.fd();
  StreamSocket moved = std::move(ends.caller);
  EXPECT_FALSE(ends.caller.open());
  EXPECT_EQ(moved.fd(), fd);
  StreamSocket& same = moved;
  moved = std::move(same);
  EXPECT_TRUE(moved.open()) << "moved to itself";
  moved = std::move(ends.answerer);
  EXPECT_EQ(fcntl(fd, F_GETFD), -1) << "what it had is closed";
  moved.Close();
  moved.Close();
  EXPECT_FALSE(moved.open());
  EXPECT_EQ(moved.PeerIp(), "");
  EXPECT_EQ(moved.LocalIp(), "");
}

}  // namespace
}  // namespace macrame::transport
