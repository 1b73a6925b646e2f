#pragma once

// The loop of an exchange that every wire has in common: queue what is to be moved, move what can
// be moved without waiting, spin for a moment, then block in slices until all is through, a peer is
// lost or the time is up. What moves bytes is the wire's own. Internal to the wires.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "transport/collectives/wire.h"

namespace macrame::transport {

// A blocked wait looks up this often for a peer that died without a word or a call to stop.
inline constexpr std::chrono::milliseconds kBlockSlice{100};

class PumpedWire : public Wire {
 public:
  absl::Status Exchange(std::span<const Send> sends, std::span<const Receive> receives) final;
  WireStats stats() const final {
    return {bytes_sent_.load(), bytes_received_.load(), exchanges_.load()};
  }

 protected:
  // `spin`: how long a wait takes the processor before it blocks.
  PumpedWire(std::chrono::microseconds spin, std::chrono::milliseconds timeout)
      : spin_(spin), timeout_(timeout) {}

  bool stopping() const { return stopping_.load(std::memory_order_relaxed); }
  void NoteStopping() { stopping_.store(true); }
  absl::Status Stopped() const { return absl::CancelledError("the group was shut down"); }

  std::atomic<uint64_t> bytes_sent_{0}, bytes_received_{0};
  absl::Status broken_;  // what every later exchange is answered with

 private:
  virtual absl::Status Queue(std::span<const Send> sends, std::span<const Receive> receives) = 0;
  // Moves what can be moved without waiting; sets `moved`.
  virtual absl::Status Pump(bool* moved) = 0;
  virtual bool AllDone() const = 0;
  // Until something can be moved, at most kBlockSlice.
  virtual absl::Status Block() = 0;
  // The ranks that are waited for, for people.
  virtual std::string Waiting() const = 0;

  const std::chrono::microseconds spin_;
  const std::chrono::milliseconds timeout_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> exchanges_{0};
};

}  // namespace macrame::transport
