#pragma once

// What this cluster's own speeds teach the planner: each answer that an entry rank timed is held
// against what was predicted for its gang, and the ratio is kept by backend. Pure; owner: the
// agent's owner thread, coordinator only.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "macrame/v1/agent.pb.h"
#include "macrame/v1/plan.pb.h"
#include "macrame/v1/rank.pb.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

// Corrections are written when one of them is new or moved by so much since the last write, and not
// more often than this: each write goes to every node's disk.
inline constexpr double kSpeedsWorthWriting = 0.02;
inline constexpr Duration kSpeedsWriteInterval = std::chrono::seconds(10);

class SpeedLearner {
 public:
  // Goes on from what is written. Answers that were timed before are counted once more at most.
  void Begin(v1::SpeedCorrections written);

  // Looks at the entry ranks of gangs in force. A gang whose plan predicts nothing teaches
  // nothing.
  void Observe(const std::vector<v1::GangRecord>& gangs, const std::vector<v1::RankStatus>& ranks);

  // What is to be written now, if anything; counts as written.
  bool TakeDue(MonotonicTime now, v1::SpeedCorrections* due);

 private:
  v1::SpeedCorrections learnt_;
  v1::SpeedCorrections written_;
  MonotonicTime written_at_;
  std::map<std::pair<std::string, uint64_t>, uint64_t> answers_seen_;  // by deployment and epoch
};

}  // namespace macrame::agentd
