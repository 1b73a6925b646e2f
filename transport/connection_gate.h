#pragma once

// Which new connections to a port that anyone reaches are let in, before they have proven
// anything. Pure; one owner thread.
//
// A connection that is let in has kHandshakeLimit to finish its handshake, or is closed by whoever
// serves it; so those let in during the last kHandshakeLimit are all that can be unproven. They are
// bounded in all and for each address. Addresses of members have an allowance of their own, which
// nobody else uses up: a flood keeps unknown callers out, and no member.

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
inline constexpr size_t kUnprovenPerMemberMax = 64;   // of a known address

class ConnectionGate {
 public:
  void SetKnown(std::set<std::string> addresses) { known_ = std::move(addresses); }
  // Whether one from this address is let in now; counted when it is.
  bool Admit(const std::string& address, MonotonicTime now);

 private:
  void Expire(MonotonicTime now);

  struct Admission {
    MonotonicTime at;
    std::string address;
    bool known = false;
  };
  std::set<std::string> known_;
  std::deque<Admission> recent_;  // oldest first
  std::map<std::string, size_t> by_address_;
  size_t unknown_ = 0;
};

}  // namespace macrame::transport
