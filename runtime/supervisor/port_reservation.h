#pragma once

// A TCP port that nobody else on this machine gets: bound, not listening. The process that it is
// meant for inherits the socket, so that the port is never free in between.

#include <string>

#include "absl/status/statusor.h"

namespace macrame::runtime {

class PortReservation {
 public:
  // A free port of `ip` (textual IPv4 or IPv6). PORT_TAKEN with the system's word for it when the
  // address is not this node's.
  static absl::StatusOr<PortReservation> Bind(const std::string& ip);

  PortReservation() = default;
  ~PortReservation() { Release(); }
  PortReservation(PortReservation&& other) noexcept;
  PortReservation& operator=(PortReservation&& other) noexcept;

  // "ip:port", "[ip]:port" for IPv6; empty for a default-made one. Stays known after Release.
  const std::string& address() const { return address_; }
  // The socket, to be handed on; -1 for a default-made one and after Release.
  int fd() const { return fd_; }
  // From here on the port is free for anybody, unless somebody was handed the socket.
  void Release();

 private:
  int fd_ = -1;
  std::string address_;
};

}  // namespace macrame::runtime
