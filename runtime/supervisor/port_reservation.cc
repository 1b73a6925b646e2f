#include "runtime/supervisor/port_reservation.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::runtime {
namespace {

absl::Status CannotBind(const std::string& ip, const std::string& why) {
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kPortTaken,
                      absl::StrCat("no port can be had on ", ip, ": ", why));
}

}  // namespace

absl::StatusOr<PortReservation> PortReservation::Bind(const std::string& ip) {
  sockaddr_storage storage{};
  socklen_t size = 0;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, ip.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    size = sizeof(*v4);
  } else if (inet_pton(AF_INET6, ip.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    size = sizeof(*v6);
  } else {
    return CannotBind(ip, "not an IP address");
  }
  PortReservation reservation;
  reservation.fd_ = socket(storage.ss_family, SOCK_STREAM, 0);
  if (reservation.fd_ < 0) return CannotBind(ip, std::strerror(errno));
  fcntl(reservation.fd_, F_SETFD, FD_CLOEXEC);
  if (bind(reservation.fd_, reinterpret_cast<sockaddr*>(&storage), size) != 0 ||
      getsockname(reservation.fd_, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return CannotBind(ip, std::strerror(errno));
  }
  const bool is_v4 = storage.ss_family == AF_INET;
  const int port = ntohs(is_v4 ? v4->sin_port : v6->sin6_port);
  reservation.address_ = is_v4 ? absl::StrCat(ip, ":", port) : absl::StrCat("[", ip, "]:", port);
  return reservation;
}

PortReservation::PortReservation(PortReservation&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), address_(std::move(other.address_)) {}

PortReservation& PortReservation::operator=(PortReservation&& other) noexcept {
  if (this == &other) return *this;
  Release();
  fd_ = std::exchange(other.fd_, -1);
  address_ = std::move(other.address_);
  return *this;
}

void PortReservation::Release() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace macrame::runtime
