#pragma once

// A batch scheduler over a gang whose steps take what a table says: for the tests of its rules.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "runtime/serving/batch_scheduler.h"

namespace macrame::runtime::engine {

inline constexpr Duration kStepBase = std::chrono::milliseconds(5);
inline constexpr Duration kDecodeToken = std::chrono::milliseconds(1);
inline constexpr Duration kPrefillToken = std::chrono::microseconds(500);

inline std::vector<int32_t> Prompt(size_t count, int32_t seed) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = seed * 100000 + static_cast<int32_t>(i);
  return tokens;
}

inline BatchTraits Traits() {
  BatchTraits traits;
  traits.blocks_total = 2048;
  traits.context_length = 32768;
  traits.sequences_max = 8;
  traits.queued_requests_max = 8;
  return traits;
}

inline RequestSpec Spec(RequestId id, std::vector<int32_t> prompt, uint32_t max_new_tokens = 4) {
  RequestSpec spec;
  spec.id = id;
  spec.key = "k";
  spec.prompt = std::move(prompt);
  spec.max_new_tokens = max_new_tokens;
  return spec;
}

inline Duration Took(const ForwardStep& step) {
  Duration took = kStepBase;
  for (const Segment& segment : step.segments) {
    const auto count = static_cast<int64_t>(segment.tokens.size());
    const bool is_answer = count == 1 || segment.logit_rows == LogitRows::kAll;
    took += count * (is_answer ? kDecodeToken : kPrefillToken);
  }
  return took;
}

class ScheduledGang {
 public:
  explicit ScheduledGang(const BatchTraits& traits) : core(traits) {}

  void Add(RequestSpec spec) {
    const RequestId id = spec.id;
    arrived[id] = now;
    const absl::StatusOr<Effects> effects = core.Add(std::move(spec), now);
    ASSERT_TRUE(effects.ok()) << effects.status();
    Take(*effects);
  }
  // Orders a step without ending it.
  bool Order() {
    NextStep next = core.Next(now);
    Take(next.effects);
    core.CheckInvariants();
    if (!next.ordered.has_value()) return false;
    flying.push_back(std::move(*next.ordered));
    return true;
  }
  void Done() {
    const OrderedStep step = std::move(flying.front());
    flying.erase(flying.begin());
    const Duration took = Took(step.step);
    slowest = std::max(slowest, took);
    now += took;
    std::vector<RowResult> results;
    for (const RowOwner& owner : step.rows) {
      if (!first_token.contains(owner.id)) first_token[owner.id] = now - arrived[owner.id];
      results.push_back({static_cast<int32_t>(owner.id), stopping.contains(owner.id)});
    }
    Take(core.OnStepDone(step.number, results, took, now));
    core.CheckInvariants();
  }
  // One step, from order to end; what was ordered.
  ForwardStep Step() {
    if (!Order()) return {};
    ForwardStep step = flying.back().step;
    Done();
    return step;
  }
  void RunUntilEnded(RequestId id) {
    for (int i = 0; i < 20000 && !ended.contains(id); ++i) {
      ASSERT_FALSE(Step().segments.empty()) << "nothing runs, and " << id << " has not ended";
    }
    ASSERT_TRUE(ended.contains(id));
  }
  // Makes the cost of steps known, as it is after any use.
  void WarmUp() {
    for (RequestId id = 900001; id <= 900004; ++id) {
      Add(Spec(id, Prompt(2000, static_cast<int32_t>(id % 100)), 8));
    }
    for (RequestId id = 900001; id <= 900004; ++id) RunUntilEnded(id);
    slowest = {};
  }
  void Take(const Effects& effects) {
    for (const auto& one : effects.started) {
      started[one.id] = one;
      start_order.push_back(one.id);
    }
    for (const RequestId id : effects.preempted) preempted.push_back(id);
    for (const auto& one : effects.ended) ended[one.id] = one;
  }

  BatchScheduler core;
  MonotonicTime now{};
  std::vector<OrderedStep> flying;
  std::map<RequestId, MonotonicTime> arrived;
  std::map<RequestId, Duration> first_token;
  std::map<RequestId, Effects::Started> started;
  std::vector<RequestId> start_order;
  std::vector<RequestId> preempted;
  std::map<RequestId, Effects::Ended> ended;
  std::set<RequestId> stopping;  // whose next token ends the answer
  Duration slowest{};
};

}  // namespace macrame::runtime::engine
