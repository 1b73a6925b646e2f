#pragma once

// Listens on a TCP port and hands over the connections that a ConnectionGate lets in. A thread of
// its own: whatever its owner is busy with, and whatever a server does when descriptors run out,
// callers are accepted and those that are too many are closed. One descriptor is kept back, so that
// it goes on when the process has no other left.

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"

namespace macrame::transport {

class TcpAcceptor {
 public:
  // A connected socket, non-blocking and closed on exec; the callee owns it. Called on the
  // acceptor's thread.
  using Take = std::function<void(int listener_fd, int fd)>;

  // `ip` is an address, `port` 0 for any free one. UNAVAILABLE with PORT_TAKEN when another program
  // has it or the address is not this machine's. `take` is called from Begin on.
  static absl::StatusOr<std::unique_ptr<TcpAcceptor>> Listen(const std::string& ip, int port);
  ~TcpAcceptor();

  int port() const;
  void Begin(Take take);
  // Of members (ConnectionGate). Any thread.
  void SetKnown(std::set<std::string> addresses);

 private:
  struct Parts;
  explicit TcpAcceptor(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace macrame::transport
