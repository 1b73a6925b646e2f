// RFC 3542's names on macOS; before any system header.
#define __APPLE_USE_RFC_3542 1

#include "discovery/beacons/beacon_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "discovery/beacons/beacon_codec.h"
#include "discovery/beacons/beacon_service.h"

namespace macrame::discovery {
namespace {

using boost::asio::ip::udp;

// Room for one interface notice and what a kernel may add to it.
constexpr size_t kControlBytes = 256;

int SetOption(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof(value)) == 0 ? 0 : errno;
}

template <typename Info>
void AddInterfaceNotice(msghdr& message, int level, int type, const Info& info) {
  message.msg_controllen = CMSG_SPACE(sizeof(Info));
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = level;
  header->cmsg_type = type;
  header->cmsg_len = CMSG_LEN(sizeof(Info));
  std::memcpy(CMSG_DATA(header), &info, sizeof(info));
}

uint32_t InterfaceOf(msghdr& message) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_PKTINFO) {
      in_pktinfo info{};
      std::memcpy(&info, CMSG_DATA(header), sizeof(info));
      return static_cast<uint32_t>(info.ipi_ifindex);
    }
    if (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info{};
      std::memcpy(&info, CMSG_DATA(header), sizeof(info));
      return static_cast<uint32_t>(info.ipi6_ifindex);
    }
  }
  return 0;
}

void FillSource(const sockaddr_storage& source, Datagram& datagram) {
  char text[INET6_ADDRSTRLEN] = {};
  if (source.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(source);
    inet_ntop(AF_INET, &in.sin_addr, text, sizeof(text));
    datagram.source_port = ntohs(in.sin_port);
  } else {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(source);
    inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof(text));
    datagram.source_port = ntohs(in.sin6_port);
    if (datagram.interface_index == 0) datagram.interface_index = in.sin6_scope_id;
  }
  datagram.source_ip = text;
}

}  // namespace

std::shared_ptr<BeaconSocket> BeaconSocket::Open(boost::asio::io_context& io, bool is_v6,
                                                 uint16_t port, int& error) {
  std::shared_ptr<BeaconSocket> opened(new BeaconSocket(io, is_v6));
  error = opened->Configure(port);
  return error == 0 ? opened : nullptr;
}

int BeaconSocket::Configure(uint16_t port) {
  boost::system::error_code failed;
  const udp protocol = is_v6_ ? udp::v6() : udp::v4();
  socket_.open(protocol, failed);
  if (failed) return failed.value();
  socket_.non_blocking(true, failed);
  const int fd = socket_.native_handle();
  if (port != 0) {
    if (const int error = SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1)) return error;
    if (const int error = SetOption(fd, SOL_SOCKET, SO_REUSEPORT, 1)) return error;
  }
  if (is_v6_) {
    if (const int error = SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1)) return error;
    if (const int error = SetOption(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1)) return error;
    SetOption(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 1);
  } else {
    if (const int error = SetOption(fd, SOL_SOCKET, SO_BROADCAST, 1)) return error;
    if (const int error = SetOption(fd, IPPROTO_IP, IP_PKTINFO, 1)) return error;
  }
  socket_.bind(udp::endpoint(protocol, port), failed);
  return failed.value();
}

void BeaconSocket::StartReceiving(Receiver receiver) {
  receiver_ = std::move(receiver);
  Wait();
}

// Asio is told of every datagram by the system while it has the descriptor, whether anyone waits
// for one or not; so it is taken from it.
void BeaconSocket::SetKept(bool kept) {
  if (is_closed_ || kept == (kept_fd_ >= 0)) return;
  boost::system::error_code failed;
  if (kept) {
    const int fd = socket_.release(failed);
    if (!failed) kept_fd_ = fd;
    return;
  }
  socket_.assign(is_v6_ ? udp::v6() : udp::v4(), kept_fd_, failed);
  if (failed) return;
  kept_fd_ = -1;
  socket_.non_blocking(true, failed);
  ReceiveSome();
  if (!is_closed_) Wait();
}

void BeaconSocket::ReceiveKept() {
  // As much as the system keeps in its buffer.
  for (int i = 0; i < 4 && kept_fd_ >= 0 && ReceiveSome(); ++i) {
  }
}

void BeaconSocket::Close() {
  boost::system::error_code ignored;
  is_closed_ = true;  // the receiver itself may be running
  if (kept_fd_ >= 0) close(std::exchange(kept_fd_, -1));
  socket_.close(ignored);
}

void BeaconSocket::Wait() {
  // One that was queued when the socket was taken away says nothing of the one that came back.
  socket_.async_wait(udp::socket::wait_read, [self = shared_from_this(), wait = ++waits_](
                                                 const boost::system::error_code& failed) {
    if (failed || self->is_closed_ || self->kept_fd_ >= 0 || wait != self->waits_) return;
    self->ReceiveSome();
    if (!self->is_closed_ && self->kept_fd_ < 0 && wait == self->waits_) self->Wait();
  });
}

// Bounded, so that a flood does not keep the owner thread from its other work. Whether more may lie
// there.
bool BeaconSocket::ReceiveSome() {
  for (size_t i = 0; i < kDatagramsPerTurnMax; ++i) {
    if (!ReceiveOne()) return false;
  }
  return true;
}

bool BeaconSocket::ReceiveOne() {
  std::array<char, 2 * kBeaconBytesMax> buffer;  // more than fits is seen to be too long
  alignas(cmsghdr) std::array<char, kControlBytes> control;
  sockaddr_storage source{};
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_name = &source;
  message.msg_namelen = sizeof(source);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = recvmsg(fd(), &message, 0);
  // An error here is an ICMP answer to something we sent; it concerns no datagram of this call.
  if (got < 0) return errno != EAGAIN && errno != EWOULDBLOCK && errno != EBADF;
  Datagram datagram;
  datagram.bytes = std::string_view(buffer.data(), static_cast<size_t>(got));
  datagram.interface_index = InterfaceOf(message);
  FillSource(source, datagram);
  receiver_(datagram);
  return !is_closed_;
}

int BeaconSocket::Send(std::string_view bytes, const std::string& ip, uint16_t port,
                       uint32_t interface_index) {
  sockaddr_storage target{};
  alignas(cmsghdr) std::array<char, kControlBytes> control{};
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_name = &target;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (interface_index != 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  if (is_v6_) {
    auto& in = reinterpret_cast<sockaddr_in6&>(target);
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    if (inet_pton(AF_INET6, ip.c_str(), &in.sin6_addr) != 1) return EINVAL;
    in.sin6_scope_id = interface_index;
    message.msg_namelen = sizeof(in);
    in6_pktinfo info{};
    info.ipi6_ifindex = interface_index;
    if (interface_index != 0) AddInterfaceNotice(message, IPPROTO_IPV6, IPV6_PKTINFO, info);
  } else {
    auto& in = reinterpret_cast<sockaddr_in&>(target);
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    if (inet_pton(AF_INET, ip.c_str(), &in.sin_addr) != 1) return EINVAL;
    message.msg_namelen = sizeof(in);
    in_pktinfo info{};
    info.ipi_ifindex = static_cast<decltype(info.ipi_ifindex)>(interface_index);
    if (interface_index != 0) AddInterfaceNotice(message, IPPROTO_IP, IP_PKTINFO, info);
  }
  return sendmsg(fd(), &message, 0) < 0 ? errno : 0;
}

int BeaconSocket::JoinGroup(const std::string& group, uint32_t interface_index) {
  ipv6_mreq request{};
  if (inet_pton(AF_INET6, group.c_str(), &request.ipv6mr_multiaddr) != 1) return EINVAL;
  request.ipv6mr_interface = interface_index;
  if (setsockopt(fd(), IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof(request)) == 0) {
    return 0;
  }
  return errno == EADDRINUSE ? 0 : errno;
}

}  // namespace macrame::discovery
