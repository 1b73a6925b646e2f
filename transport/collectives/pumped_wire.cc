#include "transport/collectives/pumped_wire.h"

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::transport {

using std::chrono::steady_clock;

absl::Status PumpedWire::Exchange(std::span<const Send> sends, std::span<const Receive> receives) {
  if (!broken_.ok()) return broken_;
  broken_ = Queue(sends, receives);
  if (!broken_.ok()) return broken_;
  exchanges_.fetch_add(1, std::memory_order_relaxed);
  auto last_move = steady_clock::now();
  while (true) {
    bool moved = false;
    broken_ = stopping() ? Stopped() : Pump(&moved);
    if (!broken_.ok()) return broken_;
    if (AllDone()) return absl::OkStatus();
    const auto now = steady_clock::now();
    if (moved) {
      last_move = now;
      continue;
    }
    if (now - last_move < spin_) continue;
    if (now - last_move >= timeout_) {
      broken_ = ReasonStatus(
          absl::StatusCode::kDeadlineExceeded, reasons::kPeerLost,
          absl::StrCat("rank ", rank(), " waited ", timeout_.count(), " ms for rank ", Waiting()));
      return broken_;
    }
    broken_ = Block();
    if (!broken_.ok()) return broken_;
  }
}

}  // namespace macrame::transport
