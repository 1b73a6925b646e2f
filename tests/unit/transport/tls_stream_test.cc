// Two ends of a connection over the loopback interface, each on a thread of its own.

#include "transport/tls_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <string>
#include <thread>

#include "proto/reasons.h"
#include "transport/socket_address.h"
#include "transport/trust.h"
#include "transport/x509_parts.h"

namespace macrame::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kFrameMax = 16 * 1024;

// A listening end with a fresh certificate, and descriptors of both ends of a connection.
class TlsStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const ClusterSecret secret = CreateClusterSecret("home").value();
    const NodeCredentials node =
        MakeNodeCredentials(secret, NodeId("00000000000000000000000000000001")).value();
    server_.reset(SSL_CTX_new(TLS_server_method()));
    client_.reset(SSL_CTX_new(TLS_client_method()));
    Owned<X509> certificate = ParseCertificate(node.certificate_pem);
    Owned<EVP_PKEY> key = ParseKey(node.key_pem);
    ASSERT_EQ(SSL_CTX_use_certificate(server_.get(), certificate.get()), 1);
    ASSERT_EQ(SSL_CTX_use_PrivateKey(server_.get(), key.get()), 1);
    SSL_CTX_set_num_tickets(server_.get(), 0);
    for (SSL_CTX* context : {server_.get(), client_.get()}) {
      SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    }
    Join(at_server_, at_client_);
  }

  static void Join(int& accepted, int& connected) {
    SocketAddress address = ParseSocketAddress("127.0.0.1", 0).value();
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(::bind(listener, address.get(), address.size), 0);
    ASSERT_EQ(::listen(listener, 1), 0);
    ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address.storage), &address.size),
              0);
    connected = ::socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(::connect(connected, address.get(), address.size), 0);
    accepted = ::accept(listener, nullptr, nullptr);
    ASSERT_GE(accepted, 0);
    ::close(listener);
    MakeOwn(accepted);
    MakeOwn(connected);
  }

  static MonotonicTime In(Duration left) { return TlsNow() + left; }

  // Runs `serve` with the accepting end, shaken hands, beside `call` with the other.
  void Talk(const std::function<void(TlsStream&)>& serve,
            const std::function<void(TlsStream&)>& call) {
    std::thread server([&] {
      TlsStream stream(server_.get(), at_server_, In(seconds(20)), nullptr);
      const absl::Status accepted = stream.Accept();
      ASSERT_TRUE(accepted.ok()) << accepted;
      serve(stream);
    });
    {
      TlsStream stream(client_.get(), at_client_, In(seconds(20)), nullptr);
      const absl::Status connected = stream.Connect();
      EXPECT_TRUE(connected.ok()) << connected;
      if (connected.ok()) call(stream);
    }
    server.join();
  }

  OwnedContext server_, client_;
  int at_server_ = -1, at_client_ = -1;
};

TEST_F(TlsStreamTest, FramesOfAllSizesArriveInTheirOrder) {
  const std::vector<size_t> sizes = {0, 1, 2, 255, 256, 4095, kFrameMax - 1, kFrameMax};
  const auto content = [](size_t size) { return std::string(size, static_cast<char>(size % 251)); };
  Talk(
      [&](TlsStream& stream) {
        for (const size_t size : sizes) {
          const auto frame = stream.ReceiveFrame(kFrameMax);
          ASSERT_TRUE(frame.ok()) << frame.status();
          EXPECT_EQ(*frame, content(size));
        }
        EXPECT_TRUE(stream.SendFrame("done").ok());
      },
      [&](TlsStream& stream) {
        for (const size_t size : sizes) EXPECT_TRUE(stream.SendFrame(content(size)).ok());
        EXPECT_EQ(stream.ReceiveFrame(kFrameMax).value(), "done");
      });
}

TEST_F(TlsStreamTest, AFrameThatIsTooLongIsRefusedBeforeItCame) {
  Talk(
      [&](TlsStream& stream) {
        const auto frame = stream.ReceiveFrame(kFrameMax);
        EXPECT_EQ(frame.status().code(), absl::StatusCode::kInvalidArgument) << frame.status();
      },
      [&](TlsStream& stream) {
        EXPECT_TRUE(stream.SendFrame(std::string(kFrameMax + 1, 'x')).ok());
      });
}

TEST_F(TlsStreamTest, BothEndsAndNobodyElseExportTheSameKey) {
  std::string first, second, again;
  const auto note = [](std::string& out) {
    return [&out](TlsStream& stream) {
      out = stream.Exported(32);
      EXPECT_EQ(stream.Exported(32), out);
      stream.SendFrame("").IgnoreError();
      EXPECT_TRUE(stream.ReceiveFrame(1).ok());
    };
  };
  Talk(note(first), note(second));
  EXPECT_EQ(first, second);
  EXPECT_EQ(first.size(), 32u);
  Join(at_server_, at_client_);
  Talk(note(again), note(second));
  EXPECT_EQ(again, second);
  EXPECT_NE(again, first);
}

TEST_F(TlsStreamTest, WhatIsAwaitedIsLeftUnread) {
  Talk([&](TlsStream& stream) { EXPECT_TRUE(stream.SendFrame("hello").ok()); },
       [&](TlsStream& stream) {
         EXPECT_TRUE(stream.AwaitData().ok());
         EXPECT_TRUE(stream.AwaitData().ok());
         EXPECT_EQ(stream.ReceiveFrame(10).value(), "hello");
       });
}

TEST_F(TlsStreamTest, TheLastFrameArrivesThoughItsSenderIsGone) {
  Talk([&](TlsStream& stream) { EXPECT_TRUE(stream.SendFrame(std::string(5000, 'l')).ok()); },
       [&](TlsStream& stream) {
         EXPECT_EQ(stream.ReceiveFrame(kFrameMax).value().size(), 5000u);
         const auto more = stream.ReceiveFrame(kFrameMax);
         EXPECT_EQ(more.status().code(), absl::StatusCode::kUnavailable) << more.status();
         EXPECT_FALSE(more.status().message().empty());
       });
}

TEST_F(TlsStreamTest, WhoSaysNothingIsWaitedForUntilTheLimitAndNoLonger) {
  const MonotonicTime begun = TlsNow();
  TlsStream stream(server_.get(), at_server_, In(milliseconds(150)), nullptr);
  const absl::Status accepted = stream.Accept();
  EXPECT_EQ(accepted.code(), absl::StatusCode::kDeadlineExceeded) << accepted;
  EXPECT_GE(TlsNow() - begun, milliseconds(150));
  ::close(at_client_);
}

TEST_F(TlsStreamTest, TheLimitHoldsForAllThatDripsIn) {
  std::thread dripper([fd = at_client_] {
    // The beginning of a record of TLS, a byte at a time, for longer than the limit.
    for (int i = 0; i < 40; ++i) {
      const char byte = i == 0 ? 0x16 : i == 1 ? 0x03 : i == 2 ? 0x01 : i == 3 ? 0x02 : 0x00;
      if (::send(fd, &byte, 1, 0) != 1) break;
      ::poll(nullptr, 0, 20);
    }
    ::close(fd);
  });
  TlsStream stream(server_.get(), at_server_, In(milliseconds(300)), nullptr);
  const absl::Status accepted = stream.Accept();
  EXPECT_FALSE(accepted.ok());
  dripper.join();
}

TEST_F(TlsStreamTest, AListenerThatStopsEndsEveryWait) {
  std::atomic<bool> stopping = false;
  auto accepted = std::async(std::launch::async, [&] {
    TlsStream stream(server_.get(), at_server_, In(seconds(60)), &stopping);
    return stream.Accept();
  });
  EXPECT_EQ(accepted.wait_for(milliseconds(20)), std::future_status::timeout);
  stopping = true;
  ASSERT_EQ(accepted.wait_for(seconds(10)), std::future_status::ready);
  EXPECT_EQ(accepted.get().code(), absl::StatusCode::kDeadlineExceeded);
  ::close(at_client_);
}

TEST_F(TlsStreamTest, WhatIsNoTlsIsRefusedInWords) {
  for (const std::string& text : {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
                                  std::string(64, '\0'), std::string("\x16\x03\x01\xff\xff", 5)}) {
    int accepted = -1, connected = -1;
    Join(accepted, connected);
    ASSERT_EQ(::send(connected, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    TlsStream stream(server_.get(), accepted, In(seconds(20)), nullptr);
    const absl::Status status = stream.Accept();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_FALSE(status.message().empty());
    ::close(connected);
  }
  ::close(at_server_);
  ::close(at_client_);
}

TEST_F(TlsStreamTest, AnOlderVersionIsNotSpoken) {
  SSL_CTX_set_min_proto_version(client_.get(), TLS1_2_VERSION);
  SSL_CTX_set_max_proto_version(client_.get(), TLS1_2_VERSION);
  auto accepted = std::async(std::launch::async, [&] {
    TlsStream stream(server_.get(), at_server_, In(seconds(20)), nullptr);
    return stream.Accept();
  });
  TlsStream stream(client_.get(), at_client_, In(seconds(20)), nullptr);
  EXPECT_EQ(stream.Connect().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(accepted.get().code(), absl::StatusCode::kUnavailable);
}

// clusterctl does not ignore SIGPIPE, since what it prints may go into a pipe.
TEST_F(TlsStreamTest, WritingToSomeoneWhoIsGoneIsAnErrorAndNotTheEndOfTheProcess) {
  std::promise<void> gone;
  Talk(
      [&](TlsStream& stream) {
        const linger at_once{1, 0};
        ::setsockopt(at_server_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        // A reset says that nobody reads any more.
        SSL_set_quiet_shutdown(stream.ssl(), 1);
        ::shutdown(at_server_, SHUT_RDWR);
        gone.set_value();
      },
      [&](TlsStream& stream) {
        gone.get_future().wait();
        absl::Status sent;
        for (int i = 0; i < 1000 && sent.ok(); ++i) sent = stream.SendFrame("is anybody there?");
        EXPECT_EQ(sent.code(), absl::StatusCode::kUnavailable) << sent;
        // What ends a connection that has broken writes once more.
      });
}

TEST(TlsDates, OnlyDatesAreSaidToBeTheClocks) {
  for (const long why : {X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED}) {
    const absl::Status status = CheckDates(why, "mini-1 at 10.0.0.7");
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ReasonOf(status).code(), reasons::kClockWrong);
    EXPECT_NE(std::string(status.message()).find("mini-1 at 10.0.0.7"), std::string::npos);
    EXPECT_EQ(status.message().find("expired") != absl::string_view::npos,
              why == X509_V_ERR_CERT_HAS_EXPIRED);
  }
  EXPECT_TRUE(CheckDates(X509_V_OK, "x").ok());
  EXPECT_TRUE(CheckDates(X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, "x").ok());
}

TEST(WaitForFd, ReadyLateAndStoppedAreToldApart) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_FALSE(WaitForFd(ends[0], POLLIN, TlsNow() - milliseconds(1), nullptr));
  EXPECT_FALSE(WaitForFd(ends[0], POLLIN, TlsNow() + milliseconds(30), nullptr));
  EXPECT_TRUE(WaitForFd(ends[1], POLLOUT, TlsNow() + seconds(5), nullptr));
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  EXPECT_TRUE(WaitForFd(ends[0], POLLIN, TlsNow() + seconds(5), nullptr));
  const std::atomic<bool> stopping = true;
  EXPECT_FALSE(WaitForFd(ends[0], POLLIN, TlsNow() + seconds(5), &stopping));
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace macrame::transport
