#include "transport/tcp_acceptor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <vector>

#include "proto/reasons.h"
#include "transport/connection_gate.h"
#include "transport/socket_address.h"
#include "transport/stream_socket.h"

namespace macrame::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

constexpr milliseconds kLimit{10'000};

// Takes connections as a server would, and keeps them.
class Server {
 public:
  TcpAcceptor::Take Take() {
    return [this](int listener, int fd) {
      const std::lock_guard lock(mutex_);
      taken_.emplace_back(fd);
      listener_ = listener;
      came_.notify_all();
    };
  }
  // Waits until so many have come.
  bool Await(size_t count) {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, kLimit, [&] { return taken_.size() >= count; });
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return taken_.size();
  }
  const StreamSocket& at(size_t i) { return taken_[i]; }
  int listener() const { return listener_; }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<StreamSocket> taken_;
  int listener_ = -1;
};

Opening JudgeHello(std::string_view bytes) {
  if (bytes.substr(0, 5) == "hello") return Opening::kTls13;
  return bytes == std::string_view("hello").substr(0, bytes.size()) ? Opening::kIncomplete
                                                                    : Opening::kOther;
}

class TcpAcceptorTest : public testing::Test {
 protected:
  void Listen() { acceptor_ = TcpAcceptor::Listen("127.0.0.1", 0).value(); }
  StreamSocket Call(const std::string& from = "") {
    auto caller = StreamSocket::Connect(Address(), kLimit, from);
    EXPECT_TRUE(caller.ok()) << caller.status();
    return caller.ok() ? *std::move(caller) : StreamSocket();
  }
  std::string Address() const { return "127.0.0.1:" + std::to_string(acceptor_->port()); }
  // All that is said until the other side hangs up.
  static std::string Farewell(const StreamSocket& caller) {
    std::string said;
    char byte = 0;
    while (caller.ReceiveBytesBefore(&byte, 1, steady_clock::now() + kLimit).ok()) said += byte;
    return said;
  }
  // Whether the other side has hung up, or does within the limit.
  static bool IsLeft(const StreamSocket& caller) {
    char byte = 0;
    return absl::IsUnavailable(caller.ReceiveBytesBefore(&byte, 1, steady_clock::now() + kLimit));
  }

  Server server_;
  std::unique_ptr<TcpAcceptor> acceptor_;
};

TEST_F(TcpAcceptorTest, HandsOverConnectionsThatAreItsOwn) {
  Listen();
  acceptor_->Begin(server_.Take());
  const StreamSocket caller = Call();
  ASSERT_TRUE(server_.Await(1));
  const int fd = server_.at(0).fd();
  EXPECT_NE(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_TRUE(caller.SendBytes("hi").ok());
  char bytes[2];
  EXPECT_TRUE(server_.at(0).ReceiveBytesBefore(bytes, 2, steady_clock::now() + kLimit).ok());
  EXPECT_EQ(acceptor_->Trouble(), "");
}

TEST_F(TcpAcceptorTest, APortOrAddressThatCannotBeHadIsNamed) {
  Listen();
  for (const auto& [ip, port] : {std::pair<std::string, int>("127.0.0.1", acceptor_->port()),
                                 {"192.0.2.77", 0},
                                 {"localhost", 0},
                                 {"", 0}}) {
    const auto second = TcpAcceptor::Listen(ip, port);
    ASSERT_FALSE(second.ok()) << ip;
    const v1::Reason reason = ReasonOf(second.status());
    EXPECT_EQ(reason.code(), reasons::kPortTaken);
    EXPECT_THAT(reason.message(), HasSubstr(ip + " port " + std::to_string(port)));
    EXPECT_FALSE(reason.remedy().empty());
  }
}

TEST_F(TcpAcceptorTest, FirstBytesAreJudgedAndLeftToBeRead) {
  Listen();
  acceptor_->Begin(server_.Take(), JudgeHello, "go away");
  const StreamSocket good = Call(), slow = Call(), bad = Call(), silent = Call();
  ASSERT_TRUE(good.SendBytes("hello world").ok());
  ASSERT_TRUE(slow.SendBytes("hel").ok());
  ASSERT_TRUE(bad.SendBytes("GET / HTTP/1.1\r\n").ok());
  EXPECT_EQ(Farewell(bad), "go away");
  ASSERT_TRUE(server_.Await(1));
  char bytes[11];
  ASSERT_TRUE(server_.at(0).ReceiveBytesBefore(bytes, 11, steady_clock::now() + kLimit).ok());
  EXPECT_EQ(std::string(bytes, 11), "hello world");
  EXPECT_EQ(server_.count(), 1u) << "the others have not said enough";
  ASSERT_TRUE(slow.SendBytes("lo").ok());
  EXPECT_TRUE(server_.Await(2)) << "the rest came in time";
}

TEST_F(TcpAcceptorTest, WhoSaysTooLittleIsLetGoInTime) {
  Listen();
  acceptor_->Begin(server_.Take(), JudgeHello, "too slow");
  const auto begun = steady_clock::now();
  const StreamSocket silent = Call(), halting = Call();
  ASSERT_TRUE(halting.SendBytes("hel").ok());
  EXPECT_EQ(Farewell(halting), "too slow");
  EXPECT_EQ(Farewell(silent), "") << "nobody is answered who did not speak";
  const auto took = steady_clock::now() - begun;
  EXPECT_GE(took, kFirstBytesLimit - milliseconds(100));
  EXPECT_LT(took, kFirstBytesLimit + milliseconds(3000));
  EXPECT_EQ(server_.count(), 0u);
}

// Of one address that nobody knows only so many are let in; members have places of their own.
TEST_F(TcpAcceptorTest, AFloodFromElsewhereKeepsNoMemberOut) {
  Listen();
  acceptor_->SetKnown({"127.0.0.7"});
  acceptor_->Begin(server_.Take());
  std::vector<StreamSocket> flood;
  for (size_t i = 0; i < kUnprovenPerAddressMax; ++i) flood.push_back(Call("127.0.0.8"));
  ASSERT_TRUE(server_.Await(kUnprovenPerAddressMax));
  EXPECT_TRUE(IsLeft(Call("127.0.0.8"))) << "one too many";
  std::vector<StreamSocket> members;
  for (size_t i = 0; i < kUnprovenPerAddressMax + 4; ++i) members.push_back(Call("127.0.0.7"));
  EXPECT_TRUE(server_.Await(2 * kUnprovenPerAddressMax + 4));
}

TEST_F(TcpAcceptorTest, AListeningSocketThatFailsIsMadeAnewAtTheSamePort) {
  Listen();
  acceptor_->Begin(server_.Take());
  const StreamSocket first = Call();
  ASSERT_TRUE(server_.Await(1));
  ASSERT_EQ(shutdown(server_.listener(), SHUT_RDWR), 0);
  const StreamSocket second = Call();
  EXPECT_TRUE(server_.Await(2));
  EXPECT_EQ(acceptor_->Trouble(), "");
}

TEST_F(TcpAcceptorTest, LeavesNobodyWaitingWhenItEnds) {
  Listen();
  acceptor_->Begin(server_.Take(), JudgeHello);
  const StreamSocket silent = Call(), halting = Call();
  ASSERT_TRUE(halting.SendBytes("he").ok());
  acceptor_.reset();
  EXPECT_TRUE(IsLeft(silent));
  EXPECT_TRUE(IsLeft(halting));
}

// Without descriptors callers are turned away at once, and served when there are some again.
TEST_F(TcpAcceptorTest, GoesOnWhenDescriptorsRunOut) {
  Listen();
  acceptor_->Begin(server_.Take());
  std::vector<StreamSocket> callers;
  for (int i = 0; i < 3; ++i) callers.emplace_back(socket(AF_INET, SOCK_STREAM, 0));
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t was = limit.rlim_cur;
  limit.rlim_cur = 200;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<StreamSocket> filling;
  for (int fd = open("/dev/null", O_RDONLY); fd >= 0; fd = open("/dev/null", O_RDONLY)) {
    filling.emplace_back(fd);
  }
  const auto address = ParseSocketAddress("127.0.0.1", acceptor_->port());
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(connect(callers[i].fd(), address->get(), address->size), 0);
    EXPECT_TRUE(IsLeft(callers[i])) << i;
  }
  EXPECT_EQ(server_.count(), 0u);
  filling.clear();
  limit.rlim_cur = was;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_EQ(connect(callers[2].fd(), address->get(), address->size), 0);
  EXPECT_TRUE(server_.Await(1));
}

TEST(SocketAddress, ReadsBothFamiliesAndNothingElse) {
  const auto v4 = ParseSocketAddress("192.0.2.7", 4711), v6 = ParseSocketAddress("fd00::7", 1);
  ASSERT_TRUE(v4 && v6);
  EXPECT_EQ(v4->family(), AF_INET);
  EXPECT_EQ(IpText(v4->storage), "192.0.2.7");
  EXPECT_EQ(v6->family(), AF_INET6);
  EXPECT_EQ(IpText(v6->storage), "fd00::7");
  EXPECT_EQ(IpText(ParseSocketAddress("::ffff:192.0.2.9", 1)->storage), "192.0.2.9")
      << "as a dual-stack socket shows it";
  for (const char* text : {"", "localhost", "192.0.2", "192.0.2.7:80", "fd00::7%en0", "[::1]"}) {
    EXPECT_FALSE(ParseSocketAddress(text, 1)) << text;
  }
}

}  // namespace
}  // namespace macrame::transport
