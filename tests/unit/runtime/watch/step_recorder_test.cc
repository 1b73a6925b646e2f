#include "runtime/watch/step_recorder.h"

#include <gtest/gtest.h>

#include <thread>

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

ForwardStep PromptAndTwoAnswers() {
  ForwardStep step;
  step.segments.push_back({.slot = 0, .begin = 0, .tokens = std::vector<int32_t>(100, 1)});
  step.segments.push_back({.slot = 1, .tokens = {1}, .logit_rows = LogitRows::kLast});
  step.segments.push_back({.slot = 2, .tokens = {1}, .logit_rows = LogitRows::kLast});
  return step;
}

ForwardStep OneAnswer() {
  ForwardStep step;
  step.segments.push_back({.slot = 1, .tokens = {1}, .logit_rows = LogitRows::kLast});
  return step;
}

void RunStep(StepRecorder& recorder, const ForwardStep& forward, milliseconds wait) {
  const StepScope step(&recorder, forward);
  for (uint32_t layer = 0; layer < 3; ++layer) {
    const PartScope part(&recorder, StepPart::kLayer, layer);
    recorder.BeginExchange();
    std::this_thread::sleep_for(wait);
    recorder.EndExchange();
  }
}

TEST(StepRecorder, StepsAndRequestsBecomeTimings) {
  StepRecorder recorder;
  v1::RankStatus status;
  recorder.FillTimings(status);
  EXPECT_FALSE(status.has_timings());

  recorder.OnRequest(7, RequestMoment::kArrived);
  std::this_thread::sleep_for(milliseconds(2));
  recorder.OnRequest(7, RequestMoment::kStarted);
  RunStep(recorder, PromptAndTwoAnswers(), milliseconds(1));
  RunStep(recorder, OneAnswer(), milliseconds(2));
  recorder.OnRequest(7, RequestMoment::kFirstToken);
  recorder.OnRequest(7, RequestMoment::kStarted);  // after a preemption: counted once
  recorder.OnRequest(7, RequestMoment::kEnded);
  { const PartScope sampling(&recorder, StepPart::kSampling); }
  RunStep(recorder, ForwardStep(), milliseconds(0));  // it closes slots, and is no step

  recorder.FillTimings(status);
  const v1::RankTimings& timings = status.timings();
  const auto queue = LogHistogram::Of(timings.queue_us());
  EXPECT_EQ(queue.count(), 1u);
  EXPECT_GE(queue.max(), 2000);
  EXPECT_EQ(LogHistogram::Of(timings.first_token_us()).count(), 1u);
  EXPECT_EQ(LogHistogram::Of(timings.prefill_step_us()).count(), 1u);
  EXPECT_EQ(LogHistogram::Of(timings.prefill_tokens()).max(), 100);
  EXPECT_EQ(LogHistogram::Of(timings.decode_step_us()).count(), 1u);
  EXPECT_EQ(LogHistogram::Of(timings.decode_tokens()).max(), 2);
  const auto waited = LogHistogram::Of(timings.collective_us());
  EXPECT_EQ(waited.count(), 2u);
  EXPECT_GE(waited.min(), 3000) << "three exchanges of a millisecond";
  EXPECT_GE(waited.max(), 6000);
  EXPECT_EQ(LogHistogram::Of(timings.sampling_us()).count(), 1u);

  recorder.ForgetTimings();
  v1::RankStatus fresh;
  recorder.FillTimings(fresh);
  EXPECT_FALSE(fresh.has_timings());
}

TEST(StepRecorder, AnAnswerWithDraftsBehindItsTokenIsNoPrompt) {
  StepRecorder recorder;
  ForwardStep forward;
  forward.segments.push_back({.slot = 1, .tokens = {1, 2, 3}, .logit_rows = LogitRows::kAll});
  RunStep(recorder, forward, milliseconds(0));
  v1::RankStatus status;
  recorder.FillTimings(status);
  EXPECT_EQ(LogHistogram::Of(status.timings().decode_step_us()).count(), 1u);
  EXPECT_EQ(LogHistogram::Of(status.timings().decode_tokens()).max(), 1);
  EXPECT_EQ(LogHistogram::Of(status.timings().prefill_step_us()).count(), 0u);
}

TEST(StepRecorder, ItIsWaitingOnlyWithinAnExchange) {
  StepRecorder recorder;
  const ProgressBoard& board = recorder.board();
  EXPECT_EQ(board.activity(), RankActivity::kIdle);
  {
    const StepScope step(&recorder, OneAnswer());
    EXPECT_EQ(board.activity(), RankActivity::kComputing);
    const uint64_t before = board.marks();
    recorder.BeginExchange();
    EXPECT_EQ(board.activity(), RankActivity::kWaiting);
    recorder.EndExchange();
    EXPECT_EQ(board.activity(), RankActivity::kComputing);
    EXPECT_GT(board.marks(), before);
  }
  EXPECT_EQ(board.activity(), RankActivity::kIdle);
  EXPECT_EQ(board.steps(), 1u);
}

TEST(TraceRing, OnlyWhatHappensWhileItIsOnIsKeptAndLayersOfSomeSteps) {
  StepRecorder recorder;
  RunStep(recorder, OneAnswer(), milliseconds(0));
  ASSERT_TRUE(recorder.trace().Start(steady_clock::now(), 1000));
  EXPECT_FALSE(recorder.trace().Start(steady_clock::now(), 1000)) << "one at a time";
  for (uint64_t i = 0; i < kTracedStepsApart; ++i) {
    RunStep(recorder, PromptAndTwoAnswers(), milliseconds(0));
  }
  recorder.OnRequest(3, RequestMoment::kArrived);
  recorder.OnRequest(3, RequestMoment::kStarted);
  recorder.OnRequest(3, RequestMoment::kFirstToken);
  recorder.OnRequest(3, RequestMoment::kEnded);
  const v1::RankTrace trace = recorder.trace().Stop();
  RunStep(recorder, OneAnswer(), milliseconds(0));

  EXPECT_EQ(trace.begun_unix_us(), 1000u);
  EXPECT_EQ(trace.dropped(), 0u);
  std::map<uint32_t, int> count;
  uint64_t last_begin = 0;
  for (const v1::TraceSpan& span : trace.spans()) {
    ++count[span.part()];
    EXPECT_GE(span.begin_ns(), last_begin) << "in order";
    last_begin = span.begin_ns();
  }
  EXPECT_EQ(count[v1::TRACE_PART_STEP], static_cast<int>(kTracedStepsApart));
  EXPECT_EQ(count[v1::TRACE_PART_LAYER], 3);
  EXPECT_EQ(count[v1::TRACE_PART_COLLECTIVE], 3);
  EXPECT_EQ(count[v1::TRACE_PART_REQUEST_DECODE], 1);
  EXPECT_FALSE(recorder.trace().is_on());
  EXPECT_EQ(recorder.trace().Stop().spans_size(), 0);
}

TEST(TraceRing, IsBoundedAndSaysWhatItDropped) {
  TraceRing ring;
  const auto begun = steady_clock::now();
  ASSERT_TRUE(ring.Start(begun, 1));
  for (size_t i = 0; i < kTraceSpansMax + 5; ++i) {
    const auto at = begun + std::chrono::microseconds(i);
    ring.Add({v1::TRACE_PART_EMBED, at, at + std::chrono::microseconds(1), i});
  }
  const v1::RankTrace trace = ring.Stop();
  EXPECT_EQ(trace.spans_size(), static_cast<int>(kTraceSpansMax));
  EXPECT_EQ(trace.dropped(), 5u);
  EXPECT_EQ(trace.spans(0).number(), 5u) << "the earliest are dropped";
  EXPECT_EQ(trace.spans(0).begin_ns(), 5000u);
}

}  // namespace
}  // namespace macrame::runtime::engine
