#pragma once

// Counts how often the link at each Thunderbolt socket of this machine went and came again, for
// ThunderboltPort.drops_last_hour: a plug that is badly seated does so. Pure; one thread.
//
// A drop is a link that was seen to be there, then gone, and there again within kReturnsWithin of
// the probe that first saw it gone. Gone is a socket that says that nothing is connected, or an
// interface that is up and lost the carrier it had: the interface tells sooner than
// system_profiler. Nothing is concluded from unknown facts. No drops are:
// - a cable that is pulled and stays away, or is put into another socket;
// - a cable that leads to another computer when it comes again;
// - a Mac at the other end that restarts and is away for longer than kReturnsWithin.
//
// What is missed: a link that is back before a probe looks. The prober looks every 30 s and, when
// the system announces a change, at most once a second; while it still asks the slow commands it
// does not look. So several short drops in a few seconds may count as one or none. macOS keeps no
// history of a link that could be read without privileges.
// What is counted though it is no fault: a plug that a person pulls and puts back within
// kReturnsWithin, and a Mac at either end that sleeps or restarts and is back so soon.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "macrame/v1/link.pb.h"
#include "proto/monotonic_time.h"

namespace macrame::discovery {

class LinkFlaps {
 public:
  // As long as two probes at the prober's interval.
  static constexpr Duration kReturnsWithin = std::chrono::seconds(60);
  static constexpr Duration kRemembered = std::chrono::hours(1);
  static constexpr size_t kSocketsMax = 64;
  static constexpr size_t kDropsMax = 1000;  // of a socket: the oldest give way

  // Takes the facts of one probe, which began at `now`, and fills in the drops of each port.
  // A port with neither a socket's number nor a domain is left at 0.
  void Note(v1::LinkFacts& facts, MonotonicTime now);

 private:
  // The socket's number; the domain of its bus when that is 0.
  using Key = std::pair<uint32_t, std::string>;
  struct Socket {
    bool was_there = false;
    bool had_carrier = false;
    std::set<std::string> peers;  // domains of the computers that the link led to; empty: not known
    std::optional<MonotonicTime> gone_since;
    std::deque<MonotonicTime> drops;
    MonotonicTime seen_at{};
  };

  Socket* Find(const Key& key);
  static void Follow(const v1::LinkFacts& facts, const v1::ThunderboltPort& port, MonotonicTime now,
                     Socket& socket);

  std::map<Key, Socket> sockets_;
};

}  // namespace macrame::discovery
