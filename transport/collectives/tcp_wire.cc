#include "transport/collectives/tcp_wire.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/reasons.h"
#include "transport/collectives/tcp_handshake.h"
#include "transport/stream_socket.h"

namespace macrame::transport {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Spinning pays while an answer of another core is on its way; a switch to another process and back
// costs about this much.
constexpr microseconds kSpinWithCores{60};
// A blocked wait looks up this often for a peer that died unheard or a call to stop.
constexpr milliseconds kBlockSlice{100};
constexpr int kSocketBufferBytes = 4 << 20;
#ifdef TCP_USER_TIMEOUT
// Data that stays unacknowledged for so long means that the peer's machine is gone.
constexpr int kUserTimeoutMs = 5000;
#endif
constexpr uint32_t kHeaderMark = 0x4d43524d;  // "MRCM"

#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
#else
constexpr int kSendFlags = MSG_DONTWAIT;  // SO_NOSIGPIPE is set instead
#endif

struct Header {
  uint32_t mark;
  uint32_t number;  // of the message on this connection
  uint64_t bytes;
};
static_assert(sizeof(Header) == 16);

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

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

// One message on its way, header first.
struct Progress {
  Header header{};
  size_t header_done = 0;
  std::byte* data = nullptr;  // of a send it is only read
  size_t bytes = 0;
  size_t done = 0;

  bool finished() const { return header_done == sizeof(Header) && done == bytes; }
  // What is left, for one system call; gives the number of pieces.
  int Pieces(iovec pieces[2]) {
    int count = 0;
    if (header_done < sizeof(Header)) {
      pieces[count++] = {reinterpret_cast<char*>(&header) + header_done,
                         sizeof(Header) - header_done};
    }
    if (done < bytes) pieces[count++] = {data + done, bytes - done};
    return count;
  }
  void Advance(size_t moved) {
    const size_t of_header = std::min(moved, sizeof(Header) - header_done);
    header_done += of_header;
    done += moved - of_header;
  }
};

struct Peer {
  StreamSocket socket;
  std::deque<Progress> sends, receives;
  uint32_t sent = 0, received = 0;  // messages so far
};

class TcpWire : public Wire {
 public:
  explicit TcpWire(const TcpWireOptions& options)
      : options_(options), spin_(SpinFor(options)), peers_(options.size) {}

  absl::Status Connect();

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::string_view backend() const override { return "ring"; }
  bool Reaches(int peer) const override { return peer != options_.rank; }
  absl::Status Exchange(std::span<const Send> sends, std::span<const Receive> receives) override;
  absl::Status CheckPeer(int peer) override;
  WireStats stats() const override {
    return {bytes_sent_.load(), bytes_received_.load(), exchanges_.load()};
  }
  void ShutDown() override {
    stopping_.store(true);
    for (const Peer& peer : peers_) peer.socket.ShutDown();
  }

 private:
  absl::Status Missing(const std::string& refused) const;
  absl::Status ConnectLower(steady_clock::time_point end);
  absl::Status AcceptHigher(const StreamSocket& listener, steady_clock::time_point end);
  void Adopt(int rank, StreamSocket socket);

  absl::Status Queue(std::span<const Send> sends, std::span<const Receive> receives);
  // Moves what can be moved without waiting; sets `moved`.
  absl::Status Pump(bool* moved);
  absl::Status PumpSend(int rank, Peer& peer, bool* moved);
  absl::Status PumpReceive(int rank, Peer& peer, bool* moved);
  absl::Status CheckHeader(int rank, Peer& peer, const Progress& progress) const;
  bool AllDone() const;
  absl::Status Block(milliseconds limit);
  absl::Status Lost(int rank, const std::string& why) const;
  std::string Waiting() const;

  const TcpWireOptions options_;
  const microseconds spin_;
  std::vector<Peer> peers_;
  absl::Status broken_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> bytes_sent_{0}, bytes_received_{0}, exchanges_{0};
};

absl::Status TcpWire::Lost(int rank, const std::string& why) const {
  if (stopping_.load()) return absl::CancelledError("the group was shut down");
  return ReasonStatus(
      absl::StatusCode::kUnavailable, "PEER_LOST",
      absl::StrCat("rank ", rank, " (", options_.addresses[rank], ") is gone: ", why));
}

absl::Status TcpWire::Missing(const std::string& refused) const {
  std::vector<std::string> missing;
  for (int rank = 0; rank < options_.size; ++rank) {
    if (rank != options_.rank && !peers_[rank].socket.open()) {
      missing.push_back(absl::StrCat(rank, " (", options_.addresses[rank], ")"));
    }
  }
  return ReasonStatus(absl::StatusCode::kUnavailable, "CONNECT_FAILED",
                      absl::StrCat("rank ", options_.rank, " is not connected to rank ",
                                   absl::StrJoin(missing, ", "), " after ",
                                   options_.connect_timeout.count(), " ms", refused));
}

absl::Status TcpWire::Connect() {
  if (static_cast<int>(options_.addresses.size()) != options_.size || options_.rank < 0 ||
      options_.rank >= options_.size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", options_.rank, " of ", options_.size,
                                                   " with ", options_.addresses.size(),
                                                   " addresses"));
  }
  if (options_.size == 1) return absl::OkStatus();
  StreamSocket listener(options_.listen_fd);
  if (options_.listen_fd < 0) {
    auto bound = StreamSocket::Listen(options_.addresses[options_.rank]);
    if (!bound.ok()) return bound.status();
    listener = *std::move(bound);
  }
  const auto end = steady_clock::now() + options_.connect_timeout;
  const absl::Status lower = ConnectLower(end);
  if (!lower.ok()) return lower;
  return AcceptHigher(listener, end);
}

absl::Status TcpWire::ConnectLower(steady_clock::time_point end) {
  const HandshakePlace place{options_.rank, options_.size, options_.secret};
  for (int rank = 0; rank < options_.rank; ++rank) {
    std::string refused;
    while (!peers_[rank].socket.open()) {
      const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
      if (left.count() <= 0) return Missing(refused);
      auto socket = StreamSocket::Connect(options_.addresses[rank], left);
      if (absl::IsInvalidArgument(socket.status())) return socket.status();
      if (!socket.ok()) return Missing(absl::StrCat("; last: ", socket.status().message()));
      const auto who = ShakeHands(*socket, place, /*is_listener=*/false);
      if (who.ok() && *who == rank) {
        Adopt(rank, *std::move(socket));
      } else {
        refused = absl::StrCat("; whoever listens there: ",
                               who.ok() ? absl::StrCat("is rank ", *who) : who.status().message());
        poll(nullptr, 0, 25);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status TcpWire::AcceptHigher(const StreamSocket& listener, steady_clock::time_point end) {
  const HandshakePlace place{options_.rank, options_.size, options_.secret};
  std::string refused;
  int left_to_come = options_.size - 1 - options_.rank;
  while (left_to_come > 0) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
    if (left.count() <= 0) return Missing(refused);
    auto socket = listener.Accept(left);
    if (!socket.ok()) return Missing(refused);
    const auto who = ShakeHands(*socket, place, /*is_listener=*/true);
    if (!who.ok() || *who <= options_.rank || *who >= options_.size) {
      refused = absl::StrCat("; one caller was refused: ",
                             who.ok() ? "a rank that does not call" : who.status().message());
      continue;
    }
    if (!peers_[*who].socket.open()) --left_to_come;
    Adopt(*who, *std::move(socket));
  }
  return absl::OkStatus();
}

void TcpWire::Adopt(int rank, StreamSocket socket) {
  const int fd = socket.fd();
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
  peers_[rank].socket = std::move(socket);
}

absl::Status TcpWire::Queue(std::span<const Send> sends, std::span<const Receive> receives) {
  for (const Send& send : sends) {
    if (send.peer < 0 || send.peer >= size() || send.peer == rank()) {
      return absl::InvalidArgumentError(absl::StrCat("a message to rank ", send.peer));
    }
    Peer& peer = peers_[send.peer];
    Progress progress;
    progress.header = {kHeaderMark, peer.sent++, send.bytes.size()};
    progress.data = const_cast<std::byte*>(send.bytes.data());
    progress.bytes = send.bytes.size();
    peer.sends.push_back(progress);
  }
  for (const Receive& receive : receives) {
    if (receive.peer < 0 || receive.peer >= size() || receive.peer == rank()) {
      return absl::InvalidArgumentError(absl::StrCat("a message from rank ", receive.peer));
    }
    Progress progress;
    progress.data = receive.bytes.data();
    progress.bytes = receive.bytes.size();
    peers_[receive.peer].receives.push_back(progress);
  }
  return absl::OkStatus();
}

absl::Status TcpWire::PumpSend(int rank, Peer& peer, bool* moved) {
  while (!peer.sends.empty()) {
    Progress& progress = peer.sends.front();
    iovec pieces[2];
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = static_cast<decltype(message.msg_iovlen)>(progress.Pieces(pieces));
    const ssize_t sent = sendmsg(peer.socket.fd(), &message, kSendFlags);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return absl::OkStatus();
      return Lost(rank, std::strerror(errno));
    }
    *moved = true;
    bytes_sent_.fetch_add(static_cast<uint64_t>(sent), std::memory_order_relaxed);
    progress.Advance(static_cast<size_t>(sent));
    if (!progress.finished()) return absl::OkStatus();
    peer.sends.pop_front();
  }
  return absl::OkStatus();
}

absl::Status TcpWire::CheckHeader(int rank, Peer& peer, const Progress& progress) const {
  const Header& header = progress.header;
  if (header.mark == kHeaderMark && header.number == peer.received &&
      header.bytes == progress.bytes) {
    return absl::OkStatus();
  }
  return ReasonStatus(
      absl::StatusCode::kDataLoss, "COLLECTIVE_FAILED",
      absl::StrCat("rank ", rank, " and rank ", options_.rank, " are out of step: message ",
                   header.number, " of ", header.bytes, " bytes came, ", peer.received, " of ",
                   progress.bytes, " was expected"));
}

absl::Status TcpWire::PumpReceive(int rank, Peer& peer, bool* moved) {
  while (!peer.receives.empty()) {
    Progress& progress = peer.receives.front();
    iovec pieces[2];
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = static_cast<decltype(message.msg_iovlen)>(progress.Pieces(pieces));
    const ssize_t got = recvmsg(peer.socket.fd(), &message, MSG_DONTWAIT);
    if (got == 0) return Lost(rank, "it closed the connection");
    if (got < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return absl::OkStatus();
      return Lost(rank, std::strerror(errno));
    }
    *moved = true;
    bytes_received_.fetch_add(static_cast<uint64_t>(got), std::memory_order_relaxed);
    const bool header_was_open = progress.header_done < sizeof(Header);
    progress.Advance(static_cast<size_t>(got));
    if (header_was_open && progress.header_done == sizeof(Header)) {
      const absl::Status in_step = CheckHeader(rank, peer, progress);
      if (!in_step.ok()) return in_step;
    }
    if (!progress.finished()) return absl::OkStatus();
    ++peer.received;
    peer.receives.pop_front();
  }
  return absl::OkStatus();
}

absl::Status TcpWire::Pump(bool* moved) {
  for (int rank = 0; rank < size(); ++rank) {
    Peer& peer = peers_[rank];
    if (!peer.sends.empty()) {
      const absl::Status status = PumpSend(rank, peer, moved);
      if (!status.ok()) return status;
    }
    if (!peer.receives.empty()) {
      const absl::Status status = PumpReceive(rank, peer, moved);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

bool TcpWire::AllDone() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return peer.sends.empty() && peer.receives.empty(); });
}

// Until something can be moved, at most `limit`. A peer that this exchange is through with may
// leave.
absl::Status TcpWire::Block(milliseconds limit) {
  std::vector<pollfd> waits;
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    const Peer& peer = peers_[rank];
    if (peer.sends.empty() && peer.receives.empty()) continue;
    short events = 0;
#ifdef POLLRDHUP
    events |= POLLRDHUP;
#endif
    if (!peer.sends.empty()) events |= POLLOUT;
    if (!peer.receives.empty()) events |= POLLIN;
    waits.push_back({peer.socket.fd(), events, 0});
    ranks.push_back(rank);
  }
  const int ready = poll(waits.data(), waits.size(), static_cast<int>(limit.count()));
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
  if (!peers_[peer].socket.open()) return absl::OkStatus();
  char byte = 0;
  const ssize_t left = recv(peers_[peer].socket.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (left == 0) return Lost(peer, "it closed the connection");
  if (left < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
    return Lost(peer, std::strerror(errno));
  }
  return absl::OkStatus();
}

std::string TcpWire::Waiting() const {
  std::vector<std::string> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (peers_[rank].sends.empty() && peers_[rank].receives.empty()) continue;
    ranks.push_back(absl::StrCat(rank, " (", options_.addresses[rank], ")"));
  }
  return absl::StrJoin(ranks, ", ");
}

absl::Status TcpWire::Exchange(std::span<const Send> sends, std::span<const Receive> receives) {
  if (!broken_.ok()) return broken_;
  broken_ = Queue(sends, receives);
  if (!broken_.ok()) return broken_;
  exchanges_.fetch_add(1, std::memory_order_relaxed);
  auto last_move = steady_clock::now();
  while (true) {
    bool moved = false;
    broken_ = stopping_.load(std::memory_order_relaxed)
                  ? absl::CancelledError("the group was shut down")
                  : Pump(&moved);
    if (!broken_.ok()) return broken_;
    if (AllDone()) return absl::OkStatus();
    const auto now = steady_clock::now();
    if (moved) {
      last_move = now;
      continue;
    }
    if (now - last_move < spin_) continue;
    if (now - last_move >= options_.collective_timeout) {
      broken_ = ReasonStatus(
          absl::StatusCode::kDeadlineExceeded, "PEER_LOST",
          absl::StrCat("rank ", options_.rank, " waited ", options_.collective_timeout.count(),
                       " ms for rank ", Waiting()));
      return broken_;
    }
    broken_ = Block(kBlockSlice);
    if (!broken_.ok()) return broken_;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Wire>> ConnectTcpWire(const TcpWireOptions& options) {
  auto wire = std::make_unique<TcpWire>(options);
  const absl::Status status = wire->Connect();
  if (!status.ok()) return status;
  return std::unique_ptr<Wire>(std::move(wire));
}

}  // namespace macrame::transport
