#pragma once

// Which machines restarted while they held a rank. One restart is a warning; two within an hour
// keep a machine off RDMA, because a DMA access outside its mapping takes the whole kernel with it.
// Two over TCP have another cause, which each further rank would meet again: the machine is
// cordoned.
//
// A restart shows in the boot time that a node tells after it was lost. A Mac also tells of kernel
// panics itself, some minutes later: that says why, and of crashes that nobody was there to see, as
// those of the coordinator's own machine.
//
// Pure; the coordinator's. What it knows is replicated as v1::NodeCrashes, so that the next
// coordinator goes on with it.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "macrame/v1/link.pb.h"
#include "proto/ids.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

// A boot within this time of the loss of a rank's node counts as that loss's cause.
inline constexpr Duration kCrashWindow = std::chrono::minutes(30);
inline constexpr uint64_t kQuarantineWindowMs = 3600 * 1000;
inline constexpr int kQuarantineCrashes = 2;
inline constexpr int kCrashesKept = 16;
// A panic of which no crash is known counts as one while it is younger than this, and not of the
// future, by the coordinator's clock.
inline constexpr uint64_t kUnseenPanicMs = kQuarantineWindowMs;
inline constexpr uint64_t kPanicAheadMs = 5 * 60 * 1000;
// A panic and a crash this far apart may be the same: a machine takes its time to come back, and
// its clock may differ. To take two for one is the lesser error.
inline constexpr uint64_t kPanicMatchMs = 2 * 3600 * 1000;
// Of what a node tells: the newest so many, and so much of each text.
inline constexpr size_t kPanicsTakenMax = 8;
inline constexpr size_t kPanicBytesMax = 400;
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
// What its own panic reports tell, of which each is of one crash: one that is known gets what the
// kernel said; one that nobody saw is added, over `backend`, in the order of time. The same reports
// change nothing once they were taken.
struct PanicsTaken {
  bool changed = false;
  bool has_new = false;  // a crash was added
};
PanicsTaken TakePanics(const std::vector<v1::PanicReport>& told, const std::string& backend,
                       uint64_t now_unix_ms, v1::NodeCrashes& crashes);
// Twice within the hour before its last.
bool IsQuarantined(const v1::NodeCrashes& crashes);
// Twice within the hour before its last, both times without RDMA. Where it is not known what ran,
// a panic that names RDMA or a DMA mapping (DART) counts as one over RDMA.
bool WantsCordon(const v1::NodeCrashes& crashes);
// "ada restarted 2 times while it held a rank, last over ring: panic(cpu 2 caller …"
v1::Reason CrashReason(const v1::NodeCrashes& crashes, const std::string& hostname);

}  // namespace macrame::agentd
