#pragma once

// The wire over TCP: one connection between each two ranks, each proven by the gang's secret. Small
// messages are waited for with the processor (where there are cores to spare), longer waits block.
//
// Each message carries a header of 16 bytes with its number and length, so that ranks that got out
// of step are found out instead of adding the wrong numbers.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/collectives/wire.h"

namespace macrame::transport {

struct TcpWireOptions {
  int rank = 0;
  int size = 1;
  // By rank: ip:port at which this rank reaches each other one. Its own entry is where it listens.
  std::vector<std::string> addresses;
  int listen_fd = -1;  // a socket that listens already, taken over; -1: bind the own address
  std::string secret;  // who does not know it is not let in
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
