// What a trace and the timings hold, against plain counts of what happened.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/watch/step_recorder.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

ForwardStep OneAnswer() {
  ForwardStep step;
  step.segments.push_back({.slot = 1, .tokens = {1}, .logit_rows = LogitRows::kLast});
  return step;
}

v1::RankTimings TimingsOf(const StepRecorder& recorder) {
  v1::RankStatus status;
  recorder.FillTimings(status);
  return status.timings();
}

uint64_t CountIn(const v1::LogHistogram& histogram) { return LogHistogram::Of(histogram).count(); }

std::vector<v1::TraceSpan> SpansOf(const v1::RankTrace& trace, v1::TracePart part) {
  std::vector<v1::TraceSpan> spans;
  for (const v1::TraceSpan& span : trace.spans()) {
    if (span.part() == part) spans.push_back(span);
  }
  return spans;
}

// ---- TraceRing

TEST(TraceRing, WhatWasUnderWayWhenItBeganIsCutThere) {
  TraceRing ring;
  const auto begun = steady_clock::now();
  ASSERT_TRUE(ring.Start(begun, 42));
  ring.Add({v1::TRACE_PART_EMBED, begun - milliseconds(5), begun + milliseconds(3), 1});
  ring.Add({v1::TRACE_PART_LOGITS, begun + milliseconds(4), begun + milliseconds(6), 2});
  const v1::RankTrace trace = ring.Stop();
  ASSERT_EQ(trace.spans_size(), 2);
  EXPECT_EQ(trace.spans(0).begin_ns(), 0u);
  EXPECT_EQ(trace.spans(0).duration_ns(), 3'000'000u);
  EXPECT_EQ(trace.spans(1).begin_ns(), 4'000'000u);
  EXPECT_EQ(trace.spans(1).duration_ns(), 2'000'000u);
}

TEST(TraceRing, EachTraceHasItsOwnSpansAndItsOwnLosses) {
  TraceRing ring;
  const auto begun = steady_clock::now();
  EXPECT_EQ(ring.Stop().spans_size(), 0) << "none was taken";
  ASSERT_TRUE(ring.Start(begun, 1));
  for (size_t i = 0; i < kTraceSpansMax + 100; ++i) {
    ring.Add({v1::TRACE_PART_EMBED, begun + microseconds(i), begun + microseconds(i + 1), i});
  }
  EXPECT_EQ(ring.Stop().dropped(), 100u);
  ring.Add({v1::TRACE_PART_EMBED, begun, begun, 7});  // nobody listens
  const v1::RankTrace off = ring.Stop();
  EXPECT_EQ(off.spans_size(), 0);
  EXPECT_EQ(off.dropped(), 0u) << "those were another trace's";
  ASSERT_TRUE(ring.Start(begun + milliseconds(500), 2));
  ring.Add({v1::TRACE_PART_LOGITS, begun + milliseconds(501), begun + milliseconds(502), 9});
  const v1::RankTrace second = ring.Stop();
  ASSERT_EQ(second.spans_size(), 1);
  EXPECT_EQ(second.begun_unix_us(), 2u);
  EXPECT_EQ(second.dropped(), 0u);
  EXPECT_EQ(second.spans(0).begin_ns(), 1'000'000u);
}

// Several threads write; none of what they wrote is lost without being counted.
TEST(TraceRing, NothingIsLostUncountedWhoeverWrites) {
  TraceRing ring;
  constexpr size_t kThreads = 4, kEach = 12'000;  // more than it holds
  const auto begun = steady_clock::now();
  ASSERT_TRUE(ring.Start(begun, 1));
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&ring, begun, thread] {
      for (size_t i = 0; i < kEach; ++i) {
        const uint64_t number = thread * kEach + i;
        ring.Add(
            {v1::TRACE_PART_LAYER, begun + microseconds(i), begun + microseconds(i + 1), number});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const v1::RankTrace trace = ring.Stop();
  EXPECT_EQ(static_cast<size_t>(trace.spans_size()) + trace.dropped(), kThreads * kEach);
  std::set<uint64_t> numbers;
  uint64_t last = 0;
  for (const v1::TraceSpan& span : trace.spans()) {
    EXPECT_TRUE(numbers.insert(span.number()).second) << span.number();
    EXPECT_LT(span.number(), kThreads * kEach);
    EXPECT_EQ(span.duration_ns(), 1000u) << "whole, not of two threads";
    EXPECT_GE(span.begin_ns(), last);
    last = span.begin_ns();
  }
}

// ---- what a recorder traces

TEST(StepRecorder, APartThatBeganOutsideOfTheTraceIsNotInIt) {
  StepRecorder recorder;
  // A trace that ended within a step leaves nothing behind for the next one.
  for (uint64_t step = 1; step < kTracedStepsApart; ++step) {
    const StepScope scope(&recorder, OneAnswer());
  }
  ASSERT_TRUE(recorder.trace().Start(steady_clock::now(), 1));
  recorder.BeginStep(OneAnswer());  // the one in eight whose layers are traced
  recorder.BeginPart(StepPart::kLayer, 0);
  recorder.EndPart(StepPart::kLayer);
  EXPECT_EQ(SpansOf(recorder.trace().Stop(), v1::TRACE_PART_LAYER).size(), 1u);
  recorder.BeginPart(StepPart::kLayer, 1);
  ASSERT_TRUE(recorder.trace().Start(steady_clock::now(), 2));
  recorder.EndPart(StepPart::kLayer);
  recorder.BeginPart(StepPart::kLayer, 2);
  recorder.EndPart(StepPart::kLayer);
  recorder.EndStep();
  const auto layers = SpansOf(recorder.trace().Stop(), v1::TRACE_PART_LAYER);
  ASSERT_EQ(layers.size(), 1u) << "of layer 1 nobody knows when it began";
  EXPECT_EQ(layers[0].number(), 2u);
}

TEST(StepRecorder, PartsOfAStepLieWithinIt) {
  StepRecorder recorder;
  ASSERT_TRUE(recorder.trace().Start(steady_clock::now(), 1));
  for (uint64_t step = 0; step < 3 * kTracedStepsApart; ++step) {
    const StepScope scope(&recorder, OneAnswer());
    { const PartScope part(&recorder, StepPart::kEmbed); }
    for (uint32_t layer = 0; layer < 4; ++layer) {
      const PartScope part(&recorder, StepPart::kLayer, layer);
      recorder.BeginExchange();
      recorder.EndExchange();
    }
    { const PartScope part(&recorder, StepPart::kLogits); }
  }
  const v1::RankTrace trace = recorder.trace().Stop();
  std::map<uint64_t, v1::TraceSpan> steps;
  for (const v1::TraceSpan& step : SpansOf(trace, v1::TRACE_PART_STEP)) {
    steps[step.begin_ns()] = step;
    EXPECT_EQ(step.decode_tokens(), 1u);
    EXPECT_EQ(step.prefill_tokens(), 0u);
  }
  ASSERT_EQ(steps.size(), 3 * kTracedStepsApart);
  for (const v1::TraceSpan& span : trace.spans()) {
    auto step = steps.upper_bound(span.begin_ns());
    ASSERT_NE(step, steps.begin()) << v1::TracePart_Name(span.part());
    --step;
    EXPECT_LE(span.begin_ns() + span.duration_ns(),
              step->second.begin_ns() + step->second.duration_ns());
  }
  EXPECT_EQ(SpansOf(trace, v1::TRACE_PART_EMBED).size(), 3 * kTracedStepsApart);
  EXPECT_EQ(SpansOf(trace, v1::TRACE_PART_LAYER).size(), 3u * 4);
  EXPECT_EQ(SpansOf(trace, v1::TRACE_PART_COLLECTIVE).size(), 3u * 4);
}

// A request's time falls into its waiting, its prompt and its answer, without a gap.
TEST(StepRecorder, ARequestsSpansFollowEachOther) {
  struct Case {
    std::vector<RequestMoment> moments;
    size_t spans;
  };
  using M = RequestMoment;
  for (const Case& each :
       {Case{{M::kArrived, M::kEnded}, 1}, Case{{M::kArrived, M::kStarted, M::kEnded}, 2},
        Case{{M::kArrived, M::kStarted, M::kFirstToken, M::kEnded}, 3},
        Case{{M::kArrived, M::kStarted, M::kStarted, M::kFirstToken, M::kFirstToken, M::kEnded}, 3},
        Case{{M::kStarted, M::kFirstToken, M::kEnded}, 0}}) {
    StepRecorder recorder;
    ASSERT_TRUE(recorder.trace().Start(steady_clock::now(), 1));
    for (const RequestMoment moment : each.moments) recorder.OnRequest(77, moment);
    recorder.OnRequest(77, M::kEnded);  // a second end is nobody's
    const v1::RankTrace trace = recorder.trace().Stop();
    ASSERT_EQ(trace.spans_size(), static_cast<int>(each.spans));
    std::vector<v1::TraceSpan> spans(trace.spans().begin(), trace.spans().end());
    std::sort(spans.begin(), spans.end(),
              [](const auto& a, const auto& b) { return a.part() < b.part(); });
    for (size_t i = 0; i < spans.size(); ++i) {
      EXPECT_EQ(spans[i].part(), v1::TRACE_PART_REQUEST_QUEUED + static_cast<int>(i));
      EXPECT_EQ(spans[i].number(), 77u);
      if (i == 0) continue;
      EXPECT_EQ(spans[i].begin_ns(), spans[i - 1].begin_ns() + spans[i - 1].duration_ns());
    }
  }
}

// ---- timings

// Tells a recorder what happens and counts it plainly.
class Counted {
 public:
  struct Counts {
    uint64_t queued = 0, answered = 0, prefill_steps = 0, decode_steps = 0, with_answers = 0,
             sampled = 0, with_waits = 0;
  };

  void OnRequest(uint64_t id, RequestMoment moment) {
    recorder_.OnRequest(id, moment);
    if (moment == RequestMoment::kArrived) requests_[id] = {};
    const auto known = requests_.find(id);
    if (known == requests_.end()) return;
    if (moment == RequestMoment::kStarted) {
      counts_.queued += std::exchange(known->second.started, true) ? 0 : 1;
    } else if (moment == RequestMoment::kFirstToken) {
      counts_.answered += std::exchange(known->second.answered, true) ? 0 : 1;
    } else if (moment == RequestMoment::kEnded) {
      requests_.erase(known);
    }
  }
  bool Knows(uint64_t id) const { return requests_.contains(id); }
  void Sample() {
    const PartScope part(&recorder_, StepPart::kSampling);
    ++counts_.sampled;
  }
  void RunStep(std::mt19937_64& random) {
    ForwardStep step;
    bool has_prompt = false, has_answer = false;
    for (uint32_t slot = 0, slots = random() % 4; slot < slots; ++slot) {
      Segment segment;
      segment.slot = slot;
      const uint64_t kind = random() % 4;  // an answer, one with drafts, a prompt's middle, its end
      segment.tokens.assign(kind == 0 ? 1 : 2 + random() % 5, 1);
      segment.logit_rows = kind == 1   ? LogitRows::kAll
                           : kind == 2 ? LogitRows::kNone
                                       : LogitRows::kLast;
      (kind < 2 ? has_answer : has_prompt) = true;
      step.segments.push_back(std::move(segment));
    }
    const StepScope scope(&recorder_, step);
    const bool waits = random() % 2 == 0;
    if (waits) {
      recorder_.BeginExchange();
      std::this_thread::sleep_for(microseconds(1));
      recorder_.EndExchange();
    }
    counts_.prefill_steps += has_prompt ? 1 : 0;
    counts_.decode_steps += has_answer && !has_prompt ? 1 : 0;
    counts_.with_answers += has_answer ? 1 : 0;
    counts_.with_waits += waits && (has_prompt || has_answer) ? 1 : 0;
  }
  const Counts& counts() const { return counts_; }
  const StepRecorder& recorder() const { return recorder_; }

 private:
  struct Request {
    bool started = false, answered = false;
  };
  StepRecorder recorder_;
  std::map<uint64_t, Request> requests_;
  Counts counts_;
};

TEST(StepRecorder, CountsAreThoseOfWhatHappenedInAnyOrder) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    Counted counted;
    for (int event = 0; event < 300; ++event) {
      const uint64_t id = random() % 6, what = random() % 6;
      if (what == 5) {
        counted.RunStep(random);
      } else if (what == 4) {
        counted.Sample();
      } else if (what > 0 || !counted.Knows(id)) {
        counted.OnRequest(id, static_cast<RequestMoment>(what + 1));
      }
    }
    const v1::RankTimings timings = TimingsOf(counted.recorder());
    const Counted::Counts& counts = counted.counts();
    EXPECT_EQ(CountIn(timings.queue_us()), counts.queued) << "seed " << seed;
    EXPECT_EQ(CountIn(timings.first_token_us()), counts.answered) << "seed " << seed;
    EXPECT_EQ(CountIn(timings.prefill_step_us()), counts.prefill_steps) << "seed " << seed;
    EXPECT_EQ(CountIn(timings.prefill_tokens()), counts.prefill_steps) << "seed " << seed;
    EXPECT_EQ(CountIn(timings.decode_step_us()), counts.decode_steps) << "seed " << seed;
    EXPECT_EQ(CountIn(timings.decode_tokens()), counts.with_answers) << "seed " << seed;
    EXPECT_EQ(CountIn(timings.collective_us()), counts.with_waits) << "seed " << seed;
    EXPECT_EQ(CountIn(timings.sampling_us()), counts.sampled) << "seed " << seed;
  }
}

TEST(StepRecorder, TheLastWaitIsTheLastStepsAlone) {
  StepRecorder recorder;
  {
    const StepScope step(&recorder, OneAnswer());
    for (int i = 0; i < 2; ++i) {
      std::thread wire([&] {
        recorder.BeginExchange();
        std::this_thread::sleep_for(milliseconds(2));
        recorder.EndExchange();
      });
      wire.join();
    }
  }
  EXPECT_GE(recorder.last_wait(), milliseconds(4)) << "of both exchanges";
  { const StepScope step(&recorder, OneAnswer()); }
  EXPECT_EQ(recorder.last_wait(), Duration(0));
  recorder.BeginExchange();  // between steps: it is no step's
  std::this_thread::sleep_for(milliseconds(1));
  recorder.EndExchange();
  { const StepScope step(&recorder, OneAnswer()); }
  EXPECT_EQ(recorder.last_wait(), Duration(0));
}

// A status is made on another thread than steps are run on.
TEST(StepRecorder, TimingsMayBeReadWhileStepsAreRun) {
  StepRecorder recorder;
  constexpr uint64_t kSteps = 4000;
  std::thread engine([&] {
    for (uint64_t i = 0; i < kSteps; ++i) {
      const StepScope step(&recorder, OneAnswer());
    }
  });
  uint64_t last = 0;
  while (last < kSteps) {
    const uint64_t count = CountIn(TimingsOf(recorder).decode_step_us());
    ASSERT_GE(count, last) << "steps are not forgotten";
    ASSERT_LE(count, kSteps);
    last = count;
    std::this_thread::yield();
  }
  engine.join();
  recorder.ForgetTimings();
  EXPECT_EQ(CountIn(TimingsOf(recorder).decode_step_us()), 0u);
}

TEST(StepRecorder, WhatTheNextStepShouldTakeIsOnTheBoard) {
  StepRecorder recorder;
  EXPECT_EQ(recorder.board().expected(), Duration(0));
  recorder.ExpectStep(milliseconds(35));
  EXPECT_EQ(recorder.board().expected(), milliseconds(35));
  recorder.ExpectStep(Duration(0));
  EXPECT_EQ(recorder.board().expected(), Duration(0)) << "too little is known again";
}

}  // namespace
}  // namespace macrame::runtime::engine
