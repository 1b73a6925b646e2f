#pragma once

// Which machines restarted while they held a rank. One restart is a warning; two within an hour
// keep a machine off RDMA, because a DMA access outside its mapping takes the whole kernel with it.
// Two over TCP have another cause, which each further rank would meet again: the machine is
// cordoned.
//
// Pure; the coordinator's. What it knows is replicated as v1::NodeCrashes, so that the next
// coordinator goes on with it.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "macrame/v1/link.pb.h"
#include "proto/ids.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

// A boot within this time of the loss of a rank's node counts as that loss's cause.
inline constexpr Duration kCrashWindow = std::chrono::minutes(30);
inline constexpr uint64_t kQuarantineWindowMs = 3600 * 1000;
inline constexpr int kQuarantineCrashes = 2;
inline constexpr int kCrashesKept = 16;
// A clock that is set moves the boot time that a kernel reports; a restart moves it further.
inline constexpr uint64_t kBootTimeSlackSeconds = 20;

class CrashLog {
 public:
  // A gang over `backend` lost the node of one of its ranks.
  void NoteLost(const NodeId& node, const std::string& backend, MonotonicTime now);
  // What a node says of its last start, whenever it says so. Gives the backend that its rank ran
  // over when this start is a crash that has not been counted.
  std::optional<std::string> NoteBoot(const NodeId& node, uint64_t boot_time_unix_seconds,
                                      MonotonicTime now);

 private:
  struct Loss {
    std::string backend;
    MonotonicTime at;
  };
  std::map<NodeId, Loss> lost_;
  std::map<NodeId, uint64_t> boots_;
};

// Adds one; the oldest go first.
void AddCrash(v1::NodeCrashes& crashes, const std::string& backend, uint64_t unix_ms);
// Twice within the hour before its last.
bool IsQuarantined(const v1::NodeCrashes& crashes);
// Twice within the hour before its last, both times without RDMA.
bool WantsCordon(const v1::NodeCrashes& crashes);
// "restarted twice while it held a rank, last over verbs"
v1::Reason CrashReason(const v1::NodeCrashes& crashes, const std::string& hostname);

}  // namespace macrame::agentd
