#include "transport/collectives/tcp_wire.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/reasons.h"
#include "transport/collectives/peer_link.h"
#include "transport/collectives/pumped_wire.h"
#include "transport/gang/gang_connection.h"
#include "transport/gang/gang_listener.h"
#include "transport/stream_socket.h"

namespace macrame::transport {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Spinning pays while an answer of another core is on its way; a switch to another process and back
// costs about this much.
constexpr microseconds kSpinWithCores{60};
constexpr int kSocketBufferBytes = 4 << 20;
#ifdef TCP_USER_TIMEOUT
// Data that stays unacknowledged for so long means that the peer's machine is gone.
constexpr int kUserTimeoutMs = 5000;
#endif

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

// Before anything counts by ranks.
absl::Status CheckRanks(const TcpWireOptions& options) {
  if (options.rank >= 0 && options.rank < options.size &&
      options.addresses.size() == static_cast<size_t>(options.size)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("rank ", options.rank, " of ", options.size,
                                                 " with ", options.addresses.size(), " addresses"));
}

// More ranks than cores on this machine: waiting with the processor takes it from whom is waited
// for.
microseconds SpinFor(const TcpWireOptions& options) {
  if (options.spin.count() >= 0) return options.spin;
  const int own = options.rank;
  int here = 0;
  for (int rank = 0; rank < options.size; ++rank) {
    const std::string host = HostOf(options.addresses[rank]);
    here += rank == own || host == HostOf(options.addresses[own]) || host == "127.0.0.1" ||
            host == "[::1]";
  }
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return here <= cores ? kSpinWithCores : microseconds(0);
}

class TcpWire : public PumpedWire {
 public:
  explicit TcpWire(const TcpWireOptions& options)
      : PumpedWire(SpinFor(options), options.collective_timeout),
        options_(options),
        peers_(options.size) {}

  absl::Status Connect();

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  Backend backend() const override { return Backend::kRing; }
  bool Reaches(int peer) const override { return peer != options_.rank; }
  absl::Status CheckPeer(int peer) override;
  void ShutDown() override {
    NoteStopping();
    for (const PeerLink& peer : peers_) peer.socket().ShutDown();
  }

 private:
  absl::Status Missing(const std::string& refused) const;
  GangMember Own() const;
  bool IsPrivate(size_t rank) const;
  // What was found where a rank is missing goes to `refused`.
  absl::Status ConnectLower(steady_clock::time_point end, std::string& refused);
  void AcceptHigher(const StreamSocket& listener, steady_clock::time_point end,
                    std::string& refused);
  void Adopt(GangConnection connection);

  absl::Status Queue(std::span<const Send> sends, std::span<const Receive> receives) override;
  absl::Status Pump(bool* moved) override;
  absl::Status Failed(int rank, const absl::Status& why) const;
  bool AllDone() const override;
  absl::Status Block() override;
  absl::Status Lost(int rank, const std::string& why) const;
  std::string Waiting() const override;

  TcpWireOptions options_;
  std::vector<PeerLink> peers_;
};

absl::Status TcpWire::Lost(int rank, const std::string& why) const {
  if (stopping()) return Stopped();
  return ReasonStatus(
      absl::StatusCode::kUnavailable, reasons::kPeerLost,
      absl::StrCat("rank ", rank, " (", options_.addresses[rank], ") is gone: ", why));
}

absl::Status TcpWire::Missing(const std::string& refused) const {
  std::vector<std::string> missing;
  for (int rank = 0; rank < options_.size; ++rank) {
    if (rank != options_.rank && !peers_[rank].open()) {
      missing.push_back(absl::StrCat(rank, " (", options_.addresses[rank], ")"));
    }
  }
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kConnectFailed,
                      absl::StrCat("rank ", options_.rank, " is not connected to rank ",
                                   absl::StrJoin(missing, ", "), " after ",
                                   options_.connect_timeout.count(), " ms", refused));
}

absl::Status TcpWire::Connect() {
  if (options_.size == 1) return absl::OkStatus();
  auto bound = options_.listen_fd < 0 ? StreamSocket::Listen(options_.addresses[options_.rank])
                                      : StreamSocket::ListenAt(options_.listen_fd);
  if (!bound.ok()) return bound.status();
  const StreamSocket listener = *std::move(bound);
  const auto end = steady_clock::now() + options_.connect_timeout;
  // Both at once: who waits for a lower rank must not keep the higher ones waiting.
  std::string refused_by_lower, refused_callers;
  std::thread accepting([&] { AcceptHigher(listener, end, refused_callers); });
  const absl::Status lower = ConnectLower(end, refused_by_lower);
  accepting.join();
  options_.secret = {};
  if (!lower.ok()) return lower;
  for (int rank = 0; rank < options_.size; ++rank) {
    if (rank != options_.rank && !peers_[rank].open()) {
      return Missing(refused_by_lower + refused_callers);
    }
  }
  return absl::OkStatus();
}

GangMember TcpWire::Own() const {
  return {GangChannel::kGroup, static_cast<uint32_t>(options_.rank),
          static_cast<uint32_t>(options_.size), options_.epoch, options_.secret};
}

bool TcpWire::IsPrivate(size_t rank) const {
  return rank < options_.private_links.size() && options_.private_links[rank];
}

absl::Status TcpWire::ConnectLower(steady_clock::time_point end, std::string& refused) {
  for (uint32_t rank = 0; rank < static_cast<uint32_t>(options_.rank); ++rank) {
    auto connection = CallGang(Own(), {options_.addresses[rank], rank, IsPrivate(rank)}, end);
    if (absl::IsInvalidArgument(connection.status())) return connection.status();
    if (!connection.ok()) {
      refused = absl::StrCat("; last: ", connection.status().message());
      return absl::OkStatus();
    }
    Adopt(*std::move(connection));
  }
  return absl::OkStatus();
}

void TcpWire::AcceptHigher(const StreamSocket& listener, steady_clock::time_point end,
                           std::string& refused) {
  GangListener::Options options;
  for (const std::string& address : options_.addresses) {
    options.member_ips.push_back(HostOf(address));
  }
  options.is_private = [this](uint32_t rank) { return IsPrivate(rank); };
  GangListener callers(listener, Own(), std::move(options));
  for (int left_to_come = options_.size - 1 - options_.rank; left_to_come > 0;) {
    auto connection = callers.Accept(end);
    if (!connection.ok()) break;
    // Lower ranks are called, and don't call.
    if (connection->rank <= static_cast<uint32_t>(options_.rank)) continue;
    if (!peers_[connection->rank].open()) --left_to_come;
    Adopt(*std::move(connection));
  }
  refused = callers.Refused();
}

void TcpWire::Adopt(GangConnection connection) {
  const int fd = connection.socket.fd();
  fcntl(fd, F_SETFL, O_NONBLOCK);
  const int buffer = kSocketBufferBytes;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
#ifdef TCP_USER_TIMEOUT
  const int limit = kUserTimeoutMs;
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof(limit));
  // Also while nothing is sent: a side channel only listens.
  const int on = 1, seconds = 1;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
#endif
  const size_t rank = connection.rank;
  peers_[rank].Adopt(std::move(connection));
}

absl::Status TcpWire::Queue(std::span<const Send> sends, std::span<const Receive> receives) {
  for (const Send& send : sends) {
    if (send.peer < 0 || send.peer >= size() || send.peer == rank()) {
      return absl::InvalidArgumentError(absl::StrCat("a message to rank ", send.peer));
    }
    peers_[send.peer].QueueSend(send.bytes);
  }
  for (const Receive& receive : receives) {
    if (receive.peer < 0 || receive.peer >= size() || receive.peer == rank()) {
      return absl::InvalidArgumentError(absl::StrCat("a message from rank ", receive.peer));
    }
    peers_[receive.peer].QueueReceive(receive.bytes);
  }
  return absl::OkStatus();
}

absl::Status TcpWire::Failed(int rank, const absl::Status& why) const {
  if (!absl::IsDataLoss(why) || stopping()) return Lost(rank, std::string(why.message()));
  return ReasonStatus(absl::StatusCode::kDataLoss, reasons::kCollectiveFailed,
                      absl::StrCat("rank ", options_.rank, " can't go on with rank ", rank, " (",
                                   options_.addresses[rank], "): ", why.message()));
}

absl::Status TcpWire::Pump(bool* moved) {
  for (int rank = 0; rank < size(); ++rank) {
    PeerLink& peer = peers_[rank];
    if (peer.has_sends()) {
      const auto sent = peer.PumpSend();
      if (!sent.ok()) return Failed(rank, sent.status());
      *moved = *moved || *sent > 0;
      bytes_sent_.fetch_add(*sent, std::memory_order_relaxed);
    }
    if (peer.has_receives()) {
      const auto received = peer.PumpReceive();
      if (!received.ok()) return Failed(rank, received.status());
      *moved = *moved || *received > 0;
      bytes_received_.fetch_add(*received, std::memory_order_relaxed);
    }
  }
  return absl::OkStatus();
}

bool TcpWire::AllDone() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const PeerLink& peer) {
    return !peer.has_sends() && !peer.has_receives();
  });
}

// A peer that this exchange is through with may leave.
absl::Status TcpWire::Block() {
  std::vector<pollfd> waits;
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    const PeerLink& peer = peers_[rank];
    if (!peer.has_sends() && !peer.has_receives()) continue;
    short events = 0;
#ifdef POLLRDHUP
    events |= POLLRDHUP;
#endif
    if (peer.has_sends()) events |= POLLOUT;
    if (peer.has_receives()) events |= POLLIN;
    waits.push_back({peer.socket().fd(), events, 0});
    ranks.push_back(rank);
  }
  const int ready = poll(waits.data(), waits.size(), static_cast<int>(kBlockSlice.count()));
  if (ready <= 0) return absl::OkStatus();
  for (size_t i = 0; i < waits.size(); ++i) {
    // What it sent before it went is read first; the end shows itself after.
    if ((waits[i].revents & POLLIN) != 0) continue;
    short gone = POLLERR | POLLHUP;
#ifdef POLLRDHUP
    gone |= POLLRDHUP;
#endif
    if ((waits[i].revents & gone) == 0) continue;
    char byte = 0;
    const ssize_t left = recv(waits[i].fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (left <= 0) return Lost(ranks[i], "its connection ended");
  }
  return absl::OkStatus();
}

absl::Status TcpWire::CheckPeer(int peer) {
  if (!peers_[peer].open()) return absl::OkStatus();
  char byte = 0;
  const ssize_t left = recv(peers_[peer].socket().fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (left == 0) return Lost(peer, "it closed the connection");
  if (left < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
    return Lost(peer, std::strerror(errno));
  }
  return absl::OkStatus();
}

std::string TcpWire::Waiting() const {
  std::vector<std::string> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (!peers_[rank].has_sends() && !peers_[rank].has_receives()) continue;
    ranks.push_back(absl::StrCat(rank, " (", options_.addresses[rank], ")"));
  }
  return absl::StrJoin(ranks, ", ");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Wire>> ConnectTcpWire(const TcpWireOptions& options) {
  const absl::Status good = CheckRanks(options);
  if (!good.ok()) return good;
  auto wire = std::make_unique<TcpWire>(options);
  const absl::Status status = wire->Connect();
  if (!status.ok()) return status;
  return std::unique_ptr<Wire>(std::move(wire));
}

}  // namespace macrame::transport
