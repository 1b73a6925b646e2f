#pragma once

// The wire over TCP: one connection between each two ranks, each proven by the gang's secret and
// sealed (transport/gang), unless both sides hold their link for private. Small messages are waited
// for with the processor (where there are cores to spare), longer waits block. peer_link.h says how
// messages go over a connection.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/collectives/wire.h"
#include "transport/gang/secret_bytes.h"

namespace macrame::transport {

struct TcpWireOptions {
  int rank = 0;
  int size = 1;
  // By rank: ip:port at which this rank reaches each other one. Its own entry is where it listens.
  std::vector<std::string> addresses;
  int listen_fd = -1;  // a socket that is bound already, taken over; -1: bind the own address
  SecretBytes secret;  // who does not know it is not let in
  uint64_t epoch = 0;
  // By rank: links on which nobody else can listen. Messages to and from these ranks go as they
  // are, if they say the same of this one; elsewhere they are encrypted. Shorter: the rest is not.
  std::vector<bool> private_links{};
  std::chrono::milliseconds connect_timeout{30000};
  // An exchange in which a peer neither ends nor moves for this long fails.
  std::chrono::milliseconds collective_timeout{30000};
  // How long to wait with the processor before blocking. Negative: chosen by how many of the ranks
  // run on this machine (their addresses equal this rank's) and how many cores it has.
  std::chrono::microseconds spin{-1};
};

// Blocks until every rank is connected. CONNECT_FAILED names the ranks that are missing.
absl::StatusOr<std::unique_ptr<Wire>> ConnectTcpWire(const TcpWireOptions& options);

}  // namespace macrame::transport
