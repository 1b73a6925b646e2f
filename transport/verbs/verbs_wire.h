#pragma once

// The wire over RDMA: one queue pair for each peer that the rank has a device to, with registered
// buffers that messages are copied through. Peers find each other over a side channel (the TCP
// wire), which stays open and tells of a peer's death while nothing else moves.
//
// Reliable connections (RC) by default. Unreliable ones (UC) are what Thunderbolt offers on Macs;
// with them a lost packet is found out by its number and breaks the group instead of the sum.
//
// Buffers: kSlotBytes a message piece, kSlots in flight to each peer; the receiver gives credits
// back, so that a sender never overruns it. Locked memory: about 2.7 MiB a peer.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/collectives/wire.h"

namespace macrame::transport {

enum class VerbsConnection { kReliable, kUnreliable };

struct VerbsWireOptions {
  // By rank: the device that leads there; empty: none, as to oneself and past the neighbours of a
  // ring.
  std::vector<std::string> devices;
  bool neighbours_only = false;  // a ring: the others need no device
  VerbsConnection connection = VerbsConnection::kReliable;
  std::chrono::milliseconds collective_timeout{30000};
  // How long to wait with the processor before blocking. Negative: as the TCP wire would on a
  // machine with more than one core, else not at all.
  std::chrono::microseconds spin{-1};
};

// Blocks until every peer that has a device answered over it. `side` connects the same ranks.
// Errors, each naming the rank and the device: VERBS_LIBRARY_MISSING, NO_VERBS_DEVICE, PORT_DOWN,
// NO_IPV4_GID, NO_PROTECTION_DOMAIN (also when memory can't be locked), CONNECT_FAILED; on a Mac
// always TRANSPORT_UNAVAILABLE. All is released whenever it fails.
absl::StatusOr<std::unique_ptr<Wire>> ConnectVerbsWire(const VerbsWireOptions& options,
                                                       std::unique_ptr<Wire> side);

}  // namespace macrame::transport
