#include "transport/collectives/tcp_wire.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "proto/reasons.h"
#include "tests/unit/transport/collectives/loopback_ranks.h"
#include "tests/unit/transport/gang/recording_proxy.h"
#include "transport/collectives/group.h"
#include "transport/collectives/peer_link.h"

namespace macrame::transport {
namespace {

using std::chrono::steady_clock;

constexpr size_t kRecord = kWireRecordBytes;

double Seconds(steady_clock::time_point since) {
  return std::chrono::duration<double>(steady_clock::now() - since).count();
}

TEST(TcpWire, NamesTheRanksThatNeverCame) {
  LoopbackRanks ranks(3);
  TcpWireOptions options = ranks.Options(0);
  options.connect_timeout = std::chrono::milliseconds(200);
  const auto wire = ConnectTcpWire(options);
  ASSERT_FALSE(wire.ok());
  EXPECT_EQ(ReasonOf(wire.status()).code(), "CONNECT_FAILED");
  EXPECT_NE(wire.status().message().find("rank 1 (127.0.0.1:"), absl::string_view::npos);
  EXPECT_NE(wire.status().message().find("2 (127.0.0.1:"), absl::string_view::npos);
}

TEST(TcpWire, RanksThatDoNotFitTheirAddressesAreRefusedAtOnce) {
  TcpWireOptions options;
  options.addresses = {"127.0.0.1:0"};
  for (const auto& [rank, size] : {std::pair(0, 3), {-1, 1}, {1, 1}, {0, 0}, {0, -2}, {5, 4}}) {
    options.rank = rank;
    options.size = size;
    const auto wire = ConnectTcpWire(options);
    EXPECT_EQ(wire.status().code(), absl::StatusCode::kInvalidArgument) << rank << " of " << size;
  }
}

TEST(TcpWire, WhoDoesNotKnowTheSecretIsNotLetIn) {
  LoopbackRanks ranks(2);
  TcpWireOptions unknown_node = ranks.Options(1), own = ranks.Options(0);
  unknown_node.secret = std::string(32, 'x');
  unknown_node.connect_timeout = own.connect_timeout = std::chrono::milliseconds(600);
  std::thread thread([&] { EXPECT_FALSE(ConnectTcpWire(unknown_node).ok()); });
  const auto wire = ConnectTcpWire(own);
  thread.join();
  ASSERT_FALSE(wire.ok());
  EXPECT_NE(wire.status().message().find("does not know the gang's secret"),
            absl::string_view::npos)
      << wire.status();
}

TEST(TcpWire, SomeoneElsesConnectionDoesNotDisturb) {
  LoopbackRanks ranks(2);
  TcpWireOptions zero = ranks.Options(0), one = ranks.Options(1);
  const auto noise = StreamSocket::Connect(zero.addresses[0], std::chrono::seconds(5));
  ASSERT_TRUE(noise.ok());
  ASSERT_TRUE(noise->SendBytes(std::string(100, 'G')).ok());
  std::thread thread([&] { EXPECT_TRUE(ConnectTcpWire(one).ok()); });
  EXPECT_TRUE(ConnectTcpWire(zero).ok());
  thread.join();
}

TEST(TcpWire, SilentCallersHoldNobodyUp) {
  LoopbackRanks ranks(3);
  std::vector<StreamSocket> silent;
  for (int i = 0; i < 30; ++i) {
    auto caller = StreamSocket::Connect(ranks.address(i % 3), std::chrono::seconds(5));
    ASSERT_TRUE(caller.ok());
    silent.push_back(*std::move(caller));
  }
  const auto begun = steady_clock::now();
  ranks.Run([&](int, std::unique_ptr<Wire>) { EXPECT_LT(Seconds(begun), 2.0); });
}

// Two ranks whose messages pass by somebody else: what each gets, and what was seen.
struct Overheard {
  absl::Status status;
  bool arrived = false, seen = false;
};
Overheard PassBy(bool is_private, size_t size) {
  LoopbackRanks ranks(2);
  RecordingProxy proxy(ranks.address(0));
  TcpWireOptions zero = ranks.Options(0), one = ranks.Options(1);
  one.addresses[0] = proxy.address();
  zero.private_links = one.private_links = {is_private, is_private};
  // As hidden states are: long runs that are easy to know again.
  const std::string marker = "the hidden states of my salary";
  std::string sent(size, '.');
  for (size_t at = 0; at + marker.size() < size; at += 1000)
    sent.replace(at, marker.size(), marker);
  Overheard result;
  std::thread other([&] {
    auto wire = ConnectTcpWire(one);
    ASSERT_TRUE(wire.ok()) << wire.status();
    const Send send{0, std::as_bytes(std::span(sent))};
    EXPECT_TRUE((*wire)->Exchange({&send, 1}, {}).ok());
    std::byte done{};
    const Receive receive{0, {&done, 1}};
    EXPECT_TRUE((*wire)->Exchange({}, {&receive, 1}).ok());
  });
  auto wire = ConnectTcpWire(zero);
  if (wire.ok()) {
    std::string got(size, '\0');
    const Receive receive{1, std::as_writable_bytes(std::span(got))};
    result.status = (*wire)->Exchange({}, {&receive, 1});
    result.arrived = got == sent;
    const std::byte done{};
    const Send send{1, {&done, 1}};
    EXPECT_TRUE((*wire)->Exchange({&send, 1}, {}).ok());
  }
  other.join();
  EXPECT_GE(proxy.bytes(), size) << "it all passed there";
  result.seen = proxy.Saw(marker);
  return result;
}

TEST(TcpWire, WhoListensOnTheWaySeesNothingOfMessages) {
  for (const size_t size : {size_t{31}, size_t{4096}, kRecord, kRecord + 1, 5 * kRecord + 77}) {
    const Overheard sealed = PassBy(/*is_private=*/false, size);
    EXPECT_TRUE(sealed.status.ok() && sealed.arrived) << size << " " << sealed.status;
    EXPECT_FALSE(sealed.seen) << size;
    const Overheard open = PassBy(/*is_private=*/true, size);
    EXPECT_TRUE(open.status.ok() && open.arrived) << size << " " << open.status;
    EXPECT_TRUE(open.seen) << "on a private link nothing is spent on hiding it";
  }
}

TEST(TcpWire, ALinkThatOneSideAloneHoldsForPrivateIsSealed) {
  LoopbackRanks ranks(2);
  RecordingProxy proxy(ranks.address(0));
  TcpWireOptions zero = ranks.Options(0), one = ranks.Options(1);
  one.addresses[0] = proxy.address();
  one.private_links = {true, false};
  std::thread other([&] {
    auto wire = ConnectTcpWire(one);
    ASSERT_TRUE(wire.ok()) << wire.status();
    const auto group = MakeGroup(*std::move(wire), Topology::kMesh);
    std::string text = "the marker of a message";
    EXPECT_TRUE(group->SendTo(std::as_bytes(std::span(text)), 0).ok());
    EXPECT_TRUE(Meet(*group).ok());
  });
  auto wire = ConnectTcpWire(zero);
  ASSERT_TRUE(wire.ok()) << wire.status();
  const auto group = MakeGroup(*std::move(wire), Topology::kMesh);
  std::string got(23, ' ');
  EXPECT_TRUE(group->ReceiveFrom(std::as_writable_bytes(std::span(got)), 1).ok());
  EXPECT_TRUE(Meet(*group).ok());
  other.join();
  EXPECT_EQ(got, "the marker of a message");
  EXPECT_FALSE(proxy.Saw("marker"));
}

TEST(TcpWire, AMessageOfAnotherLengthIsFoundOut) {
  LoopbackRanks ranks(2);
  ranks.Run([](int rank, std::unique_ptr<Wire> wire) {
    std::vector<std::byte> bytes(rank == 0 ? 100 : 200);
    const Send send{1 - rank, bytes};
    const Receive receive{1 - rank, bytes};
    const absl::Status status =
        rank == 0 ? wire->Exchange({&send, 1}, {}) : wire->Exchange({}, {&receive, 1});
    if (rank == 1) {
      EXPECT_EQ(ReasonOf(status).code(), "COLLECTIVE_FAILED") << status;
      EXPECT_EQ(wire->Exchange({}, {}), status) << "a broken wire stays broken";
    }
  });
}

TEST(TcpWire, ShutDownEndsABlockedExchange) {
  LoopbackRanks ranks(2);
  ranks.Run([](int rank, std::unique_ptr<Wire> wire) {
    if (rank == 1) {
      // Gone when rank 0 has ended: its exchange, never answered, fails as well.
      std::byte byte{};
      const Receive receive{0, {&byte, 1}};
      EXPECT_FALSE(wire->Exchange({}, {&receive, 1}).ok());
      return;
    }
    std::thread stopper([&] { wire->ShutDown(); });
    std::byte byte{};
    const Receive receive{1, {&byte, 1}};
    EXPECT_EQ(wire->Exchange({}, {&receive, 1}).code(), absl::StatusCode::kCancelled);
    stopper.join();
  });
}

// A rank as a process of its own, so that it can be killed and stopped.
class RankProcess {
 public:
  RankProcess(const TcpWireOptions& options) : pid_(fork()) {
    if (pid_ != 0) return;
    auto wire = ConnectTcpWire(options);
    if (!wire.ok()) _exit(1);
    const auto group = MakeGroup(*std::move(wire), Topology::kMesh);
    while (Meet(*group).ok()) {
    }
    // It stays until it is killed: who leaves for another's death would be a second death.
    for (;;) pause();
  }
  ~RankProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void Signal(int signal) const { kill(pid_, signal); }

 private:
  const pid_t pid_;
};

TEST(TcpWire, TheDeathOfAPeerIsSeenWithinASecondAndNamed) {
  LoopbackRanks ranks(3);
  const TcpWireOptions zero = ranks.Options(0), one = ranks.Options(1), two = ranks.Options(2);
  const RankProcess first(one), second(two);
  auto wire = ConnectTcpWire(zero);
  ASSERT_TRUE(wire.ok()) << wire.status();
  close(one.listen_fd);
  close(two.listen_fd);
  const auto group = MakeGroup(*std::move(wire), Topology::kMesh);
  ASSERT_TRUE(Meet(*group).ok());
  second.Signal(SIGKILL);
  const auto since = steady_clock::now();
  absl::Status status;
  while (status.ok()) status = Meet(*group);
  EXPECT_LT(Seconds(since), 1.0);
  EXPECT_EQ(ReasonOf(status).code(), "PEER_LOST") << status;
  EXPECT_NE(status.message().find("rank 2"), absl::string_view::npos) << status;
}

TEST(TcpWire, AStoppedPeerEndsTheWaitAtItsLimit) {
  LoopbackRanks ranks(2);
  TcpWireOptions zero = ranks.Options(0);
  const TcpWireOptions one = ranks.Options(1);
  zero.collective_timeout = std::chrono::milliseconds(500);
  const RankProcess peer(one);
  auto wire = ConnectTcpWire(zero);
  ASSERT_TRUE(wire.ok()) << wire.status();
  const auto group = MakeGroup(*std::move(wire), Topology::kMesh);
  ASSERT_TRUE(Meet(*group).ok());
  peer.Signal(SIGSTOP);
  absl::Status status;
  while (status.ok()) status = Meet(*group);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_NE(status.message().find("rank 1"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace macrame::transport
