#pragma once

// Whether one more connection may come, and which one leaves for it. Pure.
//
// A connection that waits (for a request, or for the rest of one) costs its client nothing, so it
// holds no place against others: the one that has waited longest leaves. So does one that gets what
// anybody may ask for (the page's files, a refusal): its client may never read it. One whose answer
// is on its way, for a key or for a program of this machine, stays. An address has a part of all
// places only, and the last ones are kept for addresses that have none yet.

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace macrame::agentd {

struct ConnectionView {
  std::string address;      // as it is counted (transport::CountedAddress)
  bool is_waiting = false;  // no answer is on its way that keeps its place
  std::chrono::steady_clock::time_point since;
};

struct ConnectionLimits {
  size_t all_max = 0;
  // Not for this machine's own address: whatever runs in front of the gateway here is one address.
  size_t per_address_max = 0;
  size_t reserved = 0;  // of all_max
};

struct RoomDecision {
  bool taken = false;
  std::optional<size_t> leaves;  // which connection is closed
  bool address_is_full = false;  // why it is not taken: its own address, not everybody
};

RoomDecision Admit(const std::vector<ConnectionView>& connections, const ConnectionLimits& limits,
                   const std::string& address, bool is_loopback);

}  // namespace macrame::agentd
