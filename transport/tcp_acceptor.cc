#include "transport/tcp_acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "transport/connection_gate.h"
#include "transport/socket_address.h"

namespace macrame::transport {
namespace {

constexpr int kBacklog = 128;
// How long nobody is accepted when even the spare descriptor does not help.
constexpr int kOutOfDescriptorsPauseMs = 100;
// When a caller whose first bytes have come in part is looked at again.
constexpr int kIncompletePauseMs = 20;
constexpr int kListenAgainMs = 1000;

bool IsOutOfDescriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

int OpenSpare() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

absl::Status Taken(const std::string& ip, int port) {
  return ReasonStatus(
      absl::StatusCode::kUnavailable, reasons::kPortTaken,
      absl::StrCat("nothing can be served at ", ip, " port ", port, ": ", std::strerror(errno)));
}

// Bound, listening and non-blocking; -1 with errno.
int BoundListener(const std::string& ip, int port) {
  const std::optional<SocketAddress> address = ParseSocketAddress(ip, port);
  if (!address.has_value()) {
    errno = EADDRNOTAVAIL;
    return -1;
  }
  const int fd = ::socket(address->family(), SOCK_STREAM, 0);
  if (fd < 0) return -1;
  MakeOwn(fd);
  const int yes = 1, no = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (address->family() == AF_INET6) {
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  }
  if (::bind(fd, address->get(), address->size) == 0 && ::listen(fd, kBacklog) == 0) {
    return fd;
  }
  const int why = errno;
  ::close(fd);
  errno = why;
  return -1;
}

}  // namespace

struct TcpAcceptor::Parts {
  ~Parts();
  void Run();
  // False: the listening socket is of no use any more.
  bool AcceptAll();
  void ListenAgain();
  void LetIn(int fd, const std::string& address);
  // Looks at the first bytes of those that wait; the milliseconds until that is due again, -1: no
  // one waits.
  int JudgeWaiting();
  // Closes the caller that there is no descriptor for. False: it could not be had either.
  bool TurnAway();

  int listener = -1;
  std::string ip;
  int port = 0;
  int spare = -1;
  int wake[2] = {-1, -1};
  std::atomic<bool> stopping{false};
  Take take;
  Judge judge;
  std::string_view farewell;
  struct Waiting {
    int fd;
    std::chrono::steady_clock::time_point since;
    bool incomplete;  // some of its bytes are there, so that poll tells nothing of more
  };
  // True: it need not wait any more.
  bool JudgeOne(Waiting& one, bool expired);
  std::vector<Waiting> waiting;  // this thread's alone
  std::string seen;              // first bytes of one of them
  std::mutex mutex;
  ConnectionGate gate;  // under the mutex
  std::string trouble;  // under the mutex
  std::thread thread;
};

TcpAcceptor::Parts::~Parts() {
  stopping = true;
  if (wake[1] >= 0) {
    const char one = 1;
    (void)!::write(wake[1], &one, 1);
  }
  if (thread.joinable()) thread.join();
  for (const int fd : {listener, spare, wake[0], wake[1]}) {
    if (fd >= 0) ::close(fd);
  }
  for (const Waiting& one : waiting) ::close(one.fd);
}

void TcpAcceptor::Parts::Run() {
  std::vector<pollfd> watched;
  while (!stopping) {
    const int due_ms = JudgeWaiting();
    watched.assign({{listener, POLLIN, 0}, {wake[0], POLLIN, 0}});
    for (const Waiting& one : waiting) {
      if (!one.incomplete) watched.push_back({one.fd, POLLIN, 0});
    }
    const bool failed =
        ::poll(watched.data(), static_cast<nfds_t>(watched.size()), due_ms) < 0 && errno != EINTR;
    if (stopping) return;
    if (failed) {
      ::poll(nullptr, 0, kOutOfDescriptorsPauseMs);
      continue;
    }
    const bool broken = (watched[0].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
    if (broken || ((watched[0].revents & POLLIN) != 0 && !AcceptAll())) ListenAgain();
  }
}

void TcpAcceptor::Parts::ListenAgain() {
  ::close(listener);
  listener = -1;
  while (!stopping) {
    listener = BoundListener(ip, port);
    const std::string why = listener < 0 ? std::strerror(errno) : "";
    {
      std::lock_guard<std::mutex> lock(mutex);
      trouble = why;
    }
    if (listener >= 0) return;
    pollfd woken{wake[0], POLLIN, 0};
    ::poll(&woken, 1, kListenAgainMs);
  }
}

bool TcpAcceptor::Parts::AcceptAll() {
  while (!stopping) {
    sockaddr_storage from{};
    socklen_t size = sizeof(from);
    const int fd = ::accept(listener, reinterpret_cast<sockaddr*>(&from), &size);
    if (fd >= 0) {
      LetIn(fd, IpText(from));
    } else if (IsOutOfDescriptors(errno)) {
      if (!TurnAway()) ::poll(nullptr, 0, kOutOfDescriptorsPauseMs);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return true;
    } else if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK || errno == EOPNOTSUPP) {
      return false;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return true;  // of one connection alone: the network went, a protocol failed
    }
  }
  return true;
}

bool TcpAcceptor::Parts::TurnAway() {
  if (spare >= 0) ::close(spare);
  const int fd = ::accept(listener, nullptr, nullptr);
  if (fd >= 0) ::close(fd);
  spare = OpenSpare();
  return fd >= 0;
}

void TcpAcceptor::Parts::LetIn(int fd, const std::string& address) {
  bool admitted = false;
  {
    std::lock_guard<std::mutex> lock(mutex);
    admitted = gate.Admit(address,
                          std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now()));
  }
  if (!admitted) {
    ::close(fd);
    return;
  }
  MakeOwn(fd);
  const int yes = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  if (judge) {
    waiting.push_back({fd, std::chrono::steady_clock::now(), false});
  } else {
    take(listener, fd);
  }
}

int TcpAcceptor::Parts::JudgeWaiting() {
  const auto now = std::chrono::steady_clock::now();
  int due_ms = -1;
  std::erase_if(waiting, [&](Waiting& one) {
    const auto left = kFirstBytesLimit - (now - one.since);
    if (JudgeOne(one, left <= Duration::zero())) return true;
    const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    const int wait_ms = one.incomplete ? kIncompletePauseMs : static_cast<int>(left_ms);
    due_ms = due_ms < 0 ? wait_ms : std::min(due_ms, wait_ms);
    return false;
  });
  return due_ms;
}

bool TcpAcceptor::Parts::JudgeOne(Waiting& one, bool expired) {
  seen.resize(kOpeningBytesMax);
  const int fd = one.fd;
  const ssize_t got = ::recv(fd, seen.data(), seen.size(), MSG_PEEK | MSG_DONTWAIT);
  const bool nothing_yet = got < 0 && (errno == EAGAIN || errno == EINTR);
  one.incomplete = got > 0;
  if (one.incomplete) {
    const Opening opening = judge(std::string_view(seen.data(), static_cast<size_t>(got)));
    if (opening == Opening::kTls13) {
      take(listener, fd);
      return true;
    }
    if (opening == Opening::kIncomplete && !expired) return false;
    (void)!::send(fd, farewell.data(), farewell.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } else if (nothing_yet && !expired) {
    return false;
  }
  ::close(fd);
  return true;
}

absl::StatusOr<std::unique_ptr<TcpAcceptor>> TcpAcceptor::Listen(const std::string& ip, int port) {
  auto parts = std::make_unique<Parts>();
  parts->ip = ip;
  parts->listener = BoundListener(ip, port);
  if (parts->listener < 0) return Taken(ip, port);
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (::getsockname(parts->listener, reinterpret_cast<sockaddr*>(&bound), &size) != 0 ||
      ::pipe(parts->wake) != 0) {
    return Taken(ip, port);
  }
  for (const int fd : parts->wake) MakeOwn(fd);
  parts->port =
      ntohs(bound.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(bound).sin_port
                                       : reinterpret_cast<sockaddr_in6&>(bound).sin6_port);
  parts->spare = OpenSpare();
  return std::unique_ptr<TcpAcceptor>(new TcpAcceptor(std::move(parts)));
}

TcpAcceptor::TcpAcceptor(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
TcpAcceptor::~TcpAcceptor() = default;

int TcpAcceptor::port() const { return parts_->port; }

std::string TcpAcceptor::Trouble() const {
  std::lock_guard<std::mutex> lock(parts_->mutex);
  return parts_->trouble;
}

void TcpAcceptor::Begin(Take take, Judge judge, std::string_view farewell) {
  parts_->take = std::move(take);
  parts_->judge = std::move(judge);
  parts_->farewell = farewell;
  parts_->thread = std::thread([parts = parts_.get()] { parts->Run(); });
}

void TcpAcceptor::SetUnprovenMax(size_t unproven_max) {
  std::lock_guard<std::mutex> lock(parts_->mutex);
  parts_->gate.SetUnprovenMax(unproven_max);
}

void TcpAcceptor::SetKnown(std::set<std::string> addresses) {
  std::lock_guard<std::mutex> lock(parts_->mutex);
  parts_->gate.SetKnown(std::move(addresses));
}

}  // namespace macrame::transport
