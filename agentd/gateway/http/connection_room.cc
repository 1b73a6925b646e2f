#include "agentd/gateway/http/connection_room.h"

#include <algorithm>

namespace macrame::agentd {
namespace {

// The one that has waited longest; of `address` alone where that is given.
std::optional<size_t> LongestWaiting(const std::vector<ConnectionView>& connections,
                                     const std::string* address) {
  std::optional<size_t> longest;
  for (size_t i = 0; i < connections.size(); ++i) {
    const ConnectionView& one = connections[i];
    if (!one.is_waiting || (address != nullptr && one.address != *address)) continue;
    if (!longest.has_value() || one.since < connections[*longest].since) longest = i;
  }
  return longest;
}

}  // namespace

RoomDecision Admit(const std::vector<ConnectionView>& connections, const ConnectionLimits& limits,
                   const std::string& address, bool is_loopback) {
  const auto own = static_cast<size_t>(
      std::count_if(connections.begin(), connections.end(),
                    [&](const ConnectionView& one) { return one.address == address; }));
  RoomDecision decision;
  decision.address_is_full = !is_loopback && own >= limits.per_address_max;
  if (decision.address_is_full) {
    decision.leaves = LongestWaiting(connections, &address);
    decision.taken = decision.leaves.has_value();
    return decision;
  }
  const size_t kept = own > 0 && !is_loopback ? std::min(limits.reserved, limits.all_max) : 0;
  decision.taken = connections.size() < limits.all_max - kept;
  if (decision.taken) return decision;
  // Who has some already gives one of them back first.
  if (own > 0) decision.leaves = LongestWaiting(connections, &address);
  if (!decision.leaves.has_value()) decision.leaves = LongestWaiting(connections, nullptr);
  decision.taken = decision.leaves.has_value();
  return decision;
}

}  // namespace macrame::agentd
