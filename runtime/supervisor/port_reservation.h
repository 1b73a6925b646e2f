#pragma once

// A TCP port that nobody else on this machine gets: bound, not listening, until it is let go for
// the process that it is meant for.

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
  // From here on the port is free for anybody.
  void Release();

 private:
  int fd_ = -1;
  std::string address_;
};

}  // namespace macrame::runtime
