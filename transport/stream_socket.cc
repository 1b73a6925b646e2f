#include "transport/stream_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A peer whose machine vanished is noticed after about kKeepAliveSeconds * (1 + kKeepAliveProbes).
constexpr int kKeepAliveSeconds = 2;
constexpr int kKeepAliveProbes = 3;
constexpr milliseconds kConnectRetry(25);
constexpr milliseconds kSendLimit(5000);
constexpr int kListenBacklog = 128;
constexpr int kPortMax = 65535;

#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_NOSIGNAL;
#else
constexpr int kSendFlags = 0;  // SO_NOSIGPIPE is set instead
#endif

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> Resolve(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("'", address, "' is not ip:port"));
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  // getaddrinfo takes "", "-1" and 70000 for ports, and means others by them.
  const std::string port = address.substr(colon + 1);
  int number = -1;
  const bool digits = port.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(port, &number) || number > kPortMax) {
    return absl::InvalidArgumentError(absl::StrCat("'", address, "' has no port below 65536"));
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", address, "' is not ip:port: ", gai_strerror(error)));
  }
  return AddressList(found, &freeaddrinfo);
}

std::string IpOf(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&address)->sin_addr, text,
              sizeof(text));
  } else if (address.ss_family == AF_INET6) {
    const in6_addr& ip = reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr;
    const bool is_v4 = IN6_IS_ADDR_V4MAPPED(&ip);
    constexpr size_t kPrefixBytes = 12;
    inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? ip.s6_addr + kPrefixBytes : ip.s6_addr, text,
              sizeof(text));
  }
  return text;
}

void SetOption(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

void Configure(int fd) {
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef __APPLE__
  SetOption(fd, IPPROTO_TCP, TCP_KEEPALIVE, kKeepAliveSeconds);
  SetOption(fd, SOL_SOCKET, SO_NOSIGPIPE, 1);
#else
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveSeconds);
#endif
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  timeval limit{};
  limit.tv_sec = kSendLimit.count() / 1000;
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

absl::Status SystemError(const char* what) {
  const int error = errno;
  if (error == EAGAIN || error == EWOULDBLOCK) {
    return absl::DeadlineExceededError(absl::StrCat(what, ": no answer within the limit"));
  }
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
}

}  // namespace

StreamSocket& StreamSocket::operator=(StreamSocket&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

absl::StatusOr<StreamSocket> StreamSocket::Listen(const std::string& address) {
  auto resolved = Resolve(address);
  if (!resolved.ok()) return resolved.status();
  const addrinfo& info = **resolved;
  StreamSocket listener(socket(info.ai_family, SOCK_STREAM, 0));
  if (!listener.open()) return SystemError("socket");
  fcntl(listener.fd_, F_SETFD, FD_CLOEXEC);
  SetOption(listener.fd_, SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(listener.fd_, info.ai_addr, info.ai_addrlen) != 0 ||
      listen(listener.fd_, kListenBacklog) != 0) {
    const int error = errno;
    return ReasonStatus(absl::StatusCode::kUnavailable,
                        error == EADDRINUSE ? reasons::kPortTaken : reasons::kConnectFailed,
                        absl::StrCat("listening at ", address, ": ", std::strerror(error)));
  }
  return listener;
}

absl::StatusOr<StreamSocket> StreamSocket::ListenAt(int bound_fd) {
  StreamSocket listener(bound_fd);
  if (listen(bound_fd, kListenBacklog) != 0) return SystemError("listening at the reserved port");
  fcntl(bound_fd, F_SETFD, FD_CLOEXEC);
  return listener;
}

absl::StatusOr<StreamSocket> StreamSocket::Connect(const std::string& address, milliseconds limit,
                                                   const std::string& source_ip) {
  auto resolved = Resolve(address);
  if (!resolved.ok()) return resolved.status();
  const addrinfo& info = **resolved;
  absl::StatusOr<AddressList> source = AddressList(nullptr, &freeaddrinfo);
  if (!source_ip.empty()) source = Resolve(source_ip + ":0");
  if (!source.ok()) return source.status();
  const auto end = steady_clock::now() + limit;
  int last_error = ETIMEDOUT;
  while (true) {
    StreamSocket attempt(socket(info.ai_family, SOCK_STREAM, 0));
    if (!attempt.open()) return SystemError("socket");
    fcntl(attempt.fd_, F_SETFL, O_NONBLOCK);
    if (*source != nullptr && bind(attempt.fd_, (*source)->ai_addr, (*source)->ai_addrlen) != 0) {
      return SystemError(source_ip.c_str());
    }
    int result = connect(attempt.fd_, info.ai_addr, info.ai_addrlen);
    if (result != 0 && errno == EINPROGRESS) {
      const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
      pollfd wait{attempt.fd_, POLLOUT, 0};
      socklen_t size = sizeof(last_error);
      if (poll(&wait, 1, static_cast<int>(std::max<int64_t>(0, left.count()))) > 0) {
        getsockopt(attempt.fd_, SOL_SOCKET, SO_ERROR, &last_error, &size);
        result = last_error == 0 ? 0 : -1;
      }
    } else if (result != 0) {
      last_error = errno;
    }
    if (result == 0) {
      fcntl(attempt.fd_, F_SETFL, 0);
      Configure(attempt.fd_);
      return attempt;
    }
    if (steady_clock::now() + kConnectRetry >= end) {
      return absl::DeadlineExceededError(absl::StrCat("no connection to ", address, " within ",
                                                      limit.count(),
                                                      " ms; last: ", std::strerror(last_error)));
    }
    poll(nullptr, 0, static_cast<int>(kConnectRetry.count()));
  }
}

absl::StatusOr<StreamSocket> StreamSocket::Accept(milliseconds limit) const {
  pollfd wait{fd_, POLLIN, 0};
  const int ready = poll(&wait, 1, static_cast<int>(std::max<int64_t>(0, limit.count())));
  if (ready == 0) return absl::DeadlineExceededError("nobody connected");
  if (ready < 0) return SystemError("poll");
  StreamSocket accepted(accept(fd_, nullptr, nullptr));
  if (!accepted.open()) return SystemError("accept");
  Configure(accepted.fd_);
  return accepted;
}

absl::Status StreamSocket::SendBytes(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), kSendFlags);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return SystemError("send");
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

absl::Status StreamSocket::ReceiveBytes(char* out, size_t count) const {
  while (count > 0) {
    const ssize_t received = recv(fd_, out, count, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0) return SystemError("receive");
    if (received == 0) return absl::UnavailableError("the connection was closed");
    out += received;
    count -= static_cast<size_t>(received);
  }
  return absl::OkStatus();
}

absl::Status StreamSocket::ReceiveBytesBefore(char* out, size_t count,
                                              steady_clock::time_point end) const {
  while (count > 0) {
    const auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now());
    pollfd wait{fd_, POLLIN, 0};
    const int ready = left.count() > 0 ? poll(&wait, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return absl::DeadlineExceededError("its answer took too long");
    if (ready < 0) return SystemError("receive");
    const ssize_t received = recv(fd_, out, count, MSG_DONTWAIT);
    if (received < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) continue;
    if (received < 0) return SystemError("receive");
    if (received == 0) return absl::UnavailableError("the connection was closed");
    out += received;
    count -= static_cast<size_t>(received);
  }
  return absl::OkStatus();
}

absl::Status StreamSocket::SendFrame(std::string_view payload) const {
  if (payload.size() > kFrameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a frame of ", payload.size(), " bytes"));
  }
  std::string frame;
  frame.reserve(4 + payload.size());
  for (int i = 0; i < 4; ++i) frame.push_back(static_cast<char>(payload.size() >> (8 * i) & 0xff));
  frame.append(payload);
  return SendBytes(frame);
}

absl::StatusOr<std::string> StreamSocket::ReceiveFrame() const {
  unsigned char length[4];
  absl::Status status = ReceiveBytes(reinterpret_cast<char*>(length), sizeof(length));
  if (!status.ok()) return status;
  size_t size = 0;
  for (int i = 0; i < 4; ++i) size |= size_t{length[i]} << (8 * i);
  if (size > kFrameBytesMax) {
    return absl::DataLossError(absl::StrCat("a frame of ", size, " bytes"));
  }
  std::string payload(size, '\0');
  status = ReceiveBytes(payload.data(), size);
  if (!status.ok()) return status;
  return payload;
}

void StreamSocket::SetReceiveLimit(milliseconds limit) const {
  timeval value{};
  value.tv_sec = static_cast<decltype(value.tv_sec)>(limit.count() / 1000);
  value.tv_usec = static_cast<decltype(value.tv_usec)>(limit.count() % 1000 * 1000);
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &value, sizeof(value));
}

void StreamSocket::ShutDown() const {
  if (fd_ >= 0) shutdown(fd_, SHUT_RDWR);
}

void StreamSocket::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

int StreamSocket::LocalPort() const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
}

std::string StreamSocket::PeerIp() const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getpeername(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  return IpOf(address);
}

std::string StreamSocket::LocalIp() const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  return IpOf(address);
}

}  // namespace macrame::transport
