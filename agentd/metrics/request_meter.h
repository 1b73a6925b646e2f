#pragma once

// Counts one request for text or an embedding into a registry: tokens, times, how it ended; and how
// long its tokens took into the history that the dashboard shows. Pure; one thread at a time.

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "agentd/metrics/latency_history.h"
#include "agentd/metrics/metric_registry.h"
#include "macrame/v1/rank.pb.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

class RequestMeter {
 public:
  // `model`: as the request names it. Handed on at `now`.
  RequestMeter(std::shared_ptr<MetricRegistry> registry, std::shared_ptr<LatencyHistory> latencies,
               std::string model, MonotonicTime now);

  void OnChunk(const v1::GenerateChunk& chunk, MonotonicTime now);
  // The answer comes once more from its first chunk on. What was counted of it is not counted
  // again: its prompt, and as many tokens as came.
  void OnBeginAgain();
  // Once. A request that failed before its first token leaves a count of its reason's code, and no
  // series of its model: names of models that don't exist are no labels.
  void OnDone(const absl::Status& status, MonotonicTime now);

  // So far: of the prompt, without what was found in the prefix cache; of the answer.
  uint64_t computed_prompt_tokens() const { return computed_prompt_tokens_; }
  uint64_t generated_tokens() const;

 private:
  void TakeTokens(uint64_t tokens, MonotonicTime now);

  const std::shared_ptr<MetricRegistry> registry_;
  const std::shared_ptr<LatencyHistory> latencies_;
  const LabelValues model_;
  const MonotonicTime begun_;
  MonotonicTime last_token_;
  uint64_t tokens_ = 0;
  uint64_t repeated_ = 0;  // tokens that come again
  uint64_t prompt_tokens_ = 0;
  uint64_t computed_prompt_tokens_ = 0;
  bool has_prompt_ = false;
  v1::GenerateChunk last_;  // counts and finish reason of the last chunk
};

}  // namespace macrame::agentd
