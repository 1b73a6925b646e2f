#include "transport/connection_gate.h"

#include "transport/socket_address.h"

namespace macrame::transport {

void ConnectionGate::Expire(MonotonicTime now) {
  while (!recent_.empty() && now - recent_.front().at >= kHandshakeLimit) {
    const Admission& old = recent_.front();
    const auto count = by_address_.find(old.counted_as);
    if (--count->second == 0) by_address_.erase(count);
    if (!old.known) --unknown_;
    recent_.pop_front();
  }
}

bool ConnectionGate::Admit(const std::string& address, MonotonicTime now) {
  Expire(now);
  const bool known = known_.contains(address);
  const std::string counted_as = known ? address : CountedAddress(address);
  const auto found = by_address_.find(counted_as);
  const size_t own = found == by_address_.end() ? 0 : found->second;
  if (own >= (known ? kUnprovenPerMemberMax : kUnprovenPerAddressMax)) return false;
  const bool is_first = own < kUnprovenFirst;
  const size_t places = is_first ? unproven_max_ : unproven_max_ - unproven_max_ / kReservedShare;
  if (!known && unknown_ >= places) return false;
  ++by_address_[counted_as];
  if (!known) ++unknown_;
  recent_.push_back({now, counted_as, known});
  return true;
}

}  // namespace macrame::transport
