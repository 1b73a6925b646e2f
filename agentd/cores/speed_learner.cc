#include "agentd/cores/speed_learner.h"

#include <cmath>

#include "planner/cost_model.h"
#include "planner/prediction.h"

namespace macrame::agentd {
namespace {

const v1::SpeedCorrection* Find(const v1::SpeedCorrections& corrections,
                                const std::string& backend) {
  for (const v1::SpeedCorrection& correction : corrections.corrections()) {
    if (correction.backend() == backend) return &correction;
  }
  return nullptr;
}

}  // namespace

void SpeedLearner::Begin(v1::SpeedCorrections written) {
  learnt_ = written;
  written_ = std::move(written);
  written_at_ = MonotonicTime();
}

void SpeedLearner::Observe(const std::vector<v1::GangRecord>& gangs,
                           const std::vector<v1::RankStatus>& ranks) {
  std::map<std::pair<std::string, uint64_t>, uint64_t> seen;
  for (const v1::GangRecord& gang : gangs) {
    const v1::Prediction& predicted = gang.plan().prediction();
    const auto key = std::pair(gang.deployment(), gang.epoch());
    const auto before = answers_seen_.find(key);
    const uint64_t counted = before == answers_seen_.end() ? 0 : before->second;
    seen[key] = counted;
    for (const v1::RankStatus& rank : ranks) {
      const bool is_entry = rank.rank() == 0 && rank.node_id() == gang.entry_node_id() &&
                            rank.deployment() == gang.deployment() && rank.epoch() == gang.epoch();
      if (!is_entry || rank.decode_answers() <= counted || rank.decode_step_us() <= 0) continue;
      seen[key] = rank.decode_answers();
      planner::Learn(&learnt_, gang.plan().backend(),
                     planner::kMicrosecondsPerSecond / rank.decode_step_us(),
                     predicted.tokens_per_second(), predicted.correction());
    }
  }
  answers_seen_ = std::move(seen);
}

bool SpeedLearner::TakeDue(MonotonicTime now, v1::SpeedCorrections* due) {
  if (written_at_ != MonotonicTime() && now - written_at_ < kSpeedsWriteInterval) return false;
  bool worth = false;
  for (const v1::SpeedCorrection& correction : learnt_.corrections()) {
    const v1::SpeedCorrection* before = Find(written_, correction.backend());
    // The first few samples are counted one by one: only then is a correction believed.
    const bool counts =
        before == nullptr || (before->samples() < planner::kCorrectionSamplesMin &&
                              correction.samples() >= planner::kCorrectionSamplesMin);
    worth = worth || counts ||
            std::abs(correction.measured_to_predicted() / before->measured_to_predicted() - 1) >
                kSpeedsWorthWriting;
  }
  if (!worth) return false;
  written_ = learnt_;
  written_at_ = now;
  *due = learnt_;
  return true;
}

}  // namespace macrame::agentd
