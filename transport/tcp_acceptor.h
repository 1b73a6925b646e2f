#pragma once

// Listens on a TCP port and hands over the connections that a ConnectionGate lets in. A thread of
// its own: whatever its owner is busy with, and whatever a server does when descriptors run out,
// callers are accepted and those that are too many are closed. One descriptor is kept back, so that
// it goes on when the process has no other left. Where first bytes are judged, a caller is handed
// over with them unread, once they are what they should be, within kFirstBytesLimit. A listening
// socket that fails is made anew at the same address and port, once a second until it can be.

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "transport/client_hello.h"

namespace macrame::transport {

class TcpAcceptor {
 public:
  // What the first bytes of a connection are to it: see transport/client_hello.h.
  using Judge = std::function<Opening(std::string_view bytes)>;
  // A connected socket, non-blocking and closed on exec; the callee owns it. Called on the
  // acceptor's thread.
  using Take = std::function<void(int listener_fd, int fd)>;

  // `ip` is an address, `port` 0 for any free one. UNAVAILABLE with PORT_TAKEN when another program
  // has it or the address is not this machine's. `take` is called from Begin on.
  static absl::StatusOr<std::unique_ptr<TcpAcceptor>> Listen(const std::string& ip, int port);
  ~TcpAcceptor();

  int port() const;
  // Why nobody can connect now; empty: they can. Any thread.
  std::string Trouble() const;
  // Without a judge every caller is taken at once; those that it turns away get `farewell`.
  void Begin(Take take, Judge judge = nullptr, std::string_view farewell = {});
  // As ConnectionGate has it. Before Begin.
  void SetUnprovenMax(size_t unproven_max);
  // Of members (ConnectionGate). Any thread.
  void SetKnown(std::set<std::string> addresses);

 private:
  struct Parts;
  explicit TcpAcceptor(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace macrame::transport
