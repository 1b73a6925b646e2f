#pragma once

// What moves bytes between the ranks of one group: the part that differs between TCP and verbs.
// Collectives (transport/collectives/group.h) are written once, over this.
//
// A wire belongs to one thread at a time. Every call ends: done, at its deadline, or when a peer is
// lost; after an error the wire is broken and every later call gives the same error.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "proto/backends.h"

namespace macrame::transport {

// Bytes for one peer, or from it. Transfers between two ranks arrive in the order in which they
// were given; lengths of both sides must agree.
struct Send {
  int peer;
  std::span<const std::byte> bytes;
};
struct Receive {
  int peer;
  std::span<std::byte> bytes;
};

struct WireStats {
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t exchanges = 0;
};

class Wire {
 public:
  virtual ~Wire() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Backend backend() const = 0;
  // Whether this rank has a way of its own to `peer`. A mesh has all; a ring both neighbours.
  virtual bool Reaches(int peer) const = 0;

  // All of it at the same time; returns when all sends are handed over (their memory is free again)
  // and all receives are there. Errors: DEADLINE_EXCEEDED or UNAVAILABLE with reason PEER_LOST,
  // which names the rank; seen within a second of the peer's death.
  virtual absl::Status Exchange(std::span<const Send> sends, std::span<const Receive> receives) = 0;

  // Whether a peer is still there, without waiting: PEER_LOST when it is known to be gone.
  virtual absl::Status CheckPeer(int peer) = 0;

  virtual WireStats stats() const = 0;
  // Any thread: ends a blocked Exchange with CANCELLED.
  virtual void ShutDown() = 0;
};

}  // namespace macrame::transport
