#pragma once

// The newest status of the cluster as JSON: made once, whatever number of pages shows it. Pure; one
// thread. Times are the caller's, of a clock that does not go back.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "macrame/v1/cluster.pb.h"

namespace macrame::agentd::dashboard {

struct Snapshot {
  std::string json;  // one line: an event's data
  std::string etag;  // with its quotes
  uint64_t revision = 0;
};

class SnapshotCache {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Whether the agent should be asked: the status is older than kHolds, and no question is under
  // way. Says so once a question; one that stays without an answer for kPatience is given up.
  bool ShouldAsk(Time now);
  // The answer. A status that shows nothing new keeps its revision; the time since a node was last
  // heard is nothing new by itself.
  void Take(const v1::ClusterStatus& status, Time now);

  bool IsFresh(Time now) const;
  // Null before the first answer.
  std::shared_ptr<const Snapshot> latest() const { return latest_; }

  static constexpr std::chrono::milliseconds kHolds{900};
  static constexpr std::chrono::milliseconds kPatience{5000};

 private:
  std::shared_ptr<const Snapshot> latest_;
  std::optional<Time> asked_at_;
  std::optional<Time> taken_at_;
  uint64_t told_hash_ = 0;  // of what counts as new
};

}  // namespace macrame::agentd::dashboard
