#pragma once

// Who is heard on which interface, and whether they hear us: what tells a firewall that eats
// incoming beacons from one that eats outgoing ones. Pure.
//
// A peer says in its beacons whom it has heard lately; when we are never among them, it does not
// hear us. On a point-to-point link silence means only that nobody is at the other end.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "macrame/v1/common.pb.h"
#include "proto/ids.h"
#include "proto/monotonic_time.h"

namespace macrame::discovery {

inline constexpr size_t kHeardPerInterfaceMax = 64;
// A peer that was not heard for so long is no longer "heard".
inline constexpr Duration kHeardFor = std::chrono::seconds(15);
// A verdict needs so much time: two settled intervals.
inline constexpr Duration kHearingJudgedAfter = std::chrono::seconds(11);

enum class Hearing {
  kTooEarly,          // not listened long enough
  kHeardNobody,       // alone, or incoming beacons are dropped
  kHeardNotAnswered,  // peers are heard, none of them hears us
  kBothWays,
};

class HearingTable {
 public:
  explicit HearingTable(NodeId self) : self_(std::move(self)) {}

  void AddInterface(const std::string& interface_name, MonotonicTime now);
  void RemoveInterface(const std::string& interface_name);
  // A member's beacon came in by this interface; `lists_us` when its heard_node_ids name this node
  // or it was sent as an answer to us.
  void Heard(const std::string& interface_name, const NodeId& peer, bool lists_us,
             MonotonicTime now);

  // A machine's beacon that is no member's: beacons do come in, whoever sends them.
  void HeardOther(MonotonicTime now) { other_heard_ = now; }

  Hearing StateOf(const std::string& interface_name, MonotonicTime now) const;
  // One reason for each interface that is not kBothWays (HEARD_NOBODY, NOT_ANSWERED). Where other
  // machines than members are heard, they are listed as that: nobody is heard would be wrong.
  std::vector<v1::Reason> Problems(MonotonicTime now) const;
  // Peers heard lately on any interface, last heard first.
  std::vector<NodeId> HeardLately(MonotonicTime now) const;

 private:
  struct Peer {
    MonotonicTime heard;
    MonotonicTime first_heard;
    MonotonicTime listed_us;
    bool ever_listed_us = false;
  };
  struct PerInterface {
    MonotonicTime since;
    std::map<NodeId, Peer> peers;
  };

  NodeId self_;
  std::map<std::string, PerInterface> interfaces_;
  std::optional<MonotonicTime> other_heard_;
};

}  // namespace macrame::discovery
