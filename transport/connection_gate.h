#pragma once

// Which new connections to a port that anyone reaches are let in, before they have proven
// anything. Pure; one owner thread.
//
// A connection that is let in has kHandshakeLimit to finish its handshake, or is closed by whoever
// serves it; so those let in during the last kHandshakeLimit are all that can be unproven. They are
// bounded in all and for each address (CountedAddress). A part of all places is for the first ones
// of an address: a few addresses that ask often keep nobody out who comes from another. Addresses
// of members count whole, and have an allowance of their own, which nobody else uses up.

#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "proto/monotonic_time.h"

namespace macrame::transport {

inline constexpr Duration kHandshakeLimit = std::chrono::seconds(5);
// Of which its first bytes may take so much.
inline constexpr Duration kFirstBytesLimit = std::chrono::milliseconds(2500);
inline constexpr size_t kUnprovenMax = 64;            // of addresses that are not known
inline constexpr size_t kUnprovenPerAddressMax = 16;  // of one of these
inline constexpr size_t kUnprovenFirst = 2;           // of an address, which are its first ones
inline constexpr size_t kReservedShare = 4;  // of all places, one in so many is for first ones
inline constexpr size_t kUnprovenPerMemberMax = 64;  // of a known address

class ConnectionGate {
 public:
  // Where the server itself bounds those that it serves, more may come.
  void SetUnprovenMax(size_t unproven_max) { unproven_max_ = unproven_max; }
  void SetKnown(std::set<std::string> addresses) { known_ = std::move(addresses); }
  // Whether one from this address is let in now; counted when it is.
  bool Admit(const std::string& address, MonotonicTime now);

 private:
  void Expire(MonotonicTime now);

  struct Admission {
    MonotonicTime at;
    std::string counted_as;
    bool known = false;
  };
  std::set<std::string> known_;
  std::deque<Admission> recent_;              // oldest first
  std::map<std::string, size_t> by_address_;  // as they are counted
  size_t unknown_ = 0;
  size_t unproven_max_ = kUnprovenMax;
};

}  // namespace macrame::transport
