#include "agentd/metrics/request_meter.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "agentd/metrics/metric_names.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

namespace m = metrics;
using std::chrono::milliseconds;

class RequestMeterTest : public ::testing::Test {
 protected:
  MonotonicTime At(int ms) const { return MonotonicTime() + milliseconds(ms); }
  RequestMeter Meter(const std::string& model = "tiny") {
    return {registry_, latencies_, model, At(0)};
  }
  double Value(const Metric& metric, const LabelValues& labels) {
    MetricSet set;
    registry_->CopyTo(set);
    const auto family = set.families().find(metric.name);
    if (family == set.families().end()) return -1;
    const auto value = family->second.values.find(labels);
    return value == family->second.values.end() ? -1 : value->second;
  }
  HistogramCounts Histogram(const Metric& metric) {
    MetricSet set;
    registry_->CopyTo(set);
    const auto family = set.families().find(metric.name);
    if (family == set.families().end()) return HistogramCounts();
    return family->second.histograms.at({"tiny"});
  }

  std::shared_ptr<MetricRegistry> registry_ = std::make_shared<MetricRegistry>();
  std::shared_ptr<LatencyHistory> latencies_ = std::make_shared<LatencyHistory>();
};

v1::GenerateChunk Tokens(int count, uint32_t prompt = 0, uint32_t cached = 0) {
  v1::GenerateChunk chunk;
  chunk.set_text("word");
  chunk.set_prompt_tokens(prompt);
  chunk.set_cached_tokens(cached);
  for (int i = 0; i < count; ++i) chunk.add_token_ids(i);
  return chunk;
}

v1::GenerateChunk Last(v1::FinishReason reason, uint32_t completion) {
  v1::GenerateChunk chunk;
  chunk.set_finish_reason(reason);
  chunk.set_completion_tokens(completion);
  chunk.set_prefill_ms(400);
  chunk.set_decode_ms(300);
  return chunk;
}

TEST_F(RequestMeterTest, AnAnswerIsCountedByVllmsNames) {
  RequestMeter meter = Meter();
  meter.OnChunk(Tokens(1, 100, 64), At(500));
  meter.OnChunk(Tokens(1), At(530));
  meter.OnChunk(Tokens(2), At(630));  // drafts were right: two at once
  meter.OnChunk(Last(v1::FINISH_REASON_LENGTH, 4), At(700));
  meter.OnDone(absl::OkStatus(), At(700));
  EXPECT_EQ(Value(m::kVllmPromptTokens, {"tiny"}), 100);
  EXPECT_EQ(Value(m::kVllmPrefixQueries, {"tiny"}), 100);
  EXPECT_EQ(Value(m::kVllmPrefixHits, {"tiny"}), 64);
  EXPECT_EQ(Value(m::kVllmGenerationTokens, {"tiny"}), 4);
  EXPECT_EQ(Value(m::kVllmRequestSuccess, {"tiny", "length"}), 1);
  EXPECT_DOUBLE_EQ(Histogram(m::kVllmFirstToken).sum, 0.5);
  EXPECT_EQ(Histogram(m::kVllmInterToken).count(), 3u);
  EXPECT_NEAR(Histogram(m::kVllmInterToken).sum, 0.13, 1e-9);
  EXPECT_EQ(Histogram(m::kVllmPerOutputToken).count(), 3u);
  EXPECT_DOUBLE_EQ(Histogram(m::kVllmEndToEnd).sum, 0.7);
  EXPECT_DOUBLE_EQ(Histogram(m::kVllmPrefillTime).sum, 0.4);
  EXPECT_DOUBLE_EQ(Histogram(m::kVllmDecodeTime).sum, 0.3);
  EXPECT_DOUBLE_EQ(Histogram(m::kVllmRequestGenerationTokens).sum, 4);
  const auto latencies = nlohmann::json::parse(*latencies_->Json(At(700)))["models"][0];
  EXPECT_EQ(latencies["model"], "tiny");
  EXPECT_EQ(latencies["first_token"][0][1], 1);
  EXPECT_NEAR(latencies["first_token"][0][2].get<double>(), 500, 25);
  EXPECT_EQ(latencies["inter_token"][0][1], 3);
  EXPECT_NEAR(latencies["inter_token"][0][2].get<double>(), 50, 2.5);
}

TEST_F(RequestMeterTest, TellsWhatWasComputedForWhoPaysForIt) {
  RequestMeter meter = Meter();
  EXPECT_EQ(meter.computed_prompt_tokens(), 0u);
  meter.OnChunk(Tokens(1, 100, 64), At(500));
  meter.OnChunk(Tokens(2), At(600));
  EXPECT_EQ(meter.computed_prompt_tokens(), 36u) << "what the prefix cache had cost nothing";
  EXPECT_EQ(meter.generated_tokens(), 3u);
  meter.OnChunk(Last(v1::FINISH_REASON_STOP, 5), At(700));
  meter.OnDone(absl::OkStatus(), At(700));
  EXPECT_EQ(meter.generated_tokens(), 5u) << "tokens without a text of their own, too";
  RequestMeter odd = Meter();
  odd.OnChunk(Tokens(1, 10, 64), At(500));
  EXPECT_EQ(odd.computed_prompt_tokens(), 0u);
}

TEST_F(RequestMeterTest, AClientThatLeavesIsAnAbortWithWhatItGot) {
  RequestMeter meter = Meter();
  meter.OnChunk(Tokens(3, 10), At(100));
  meter.OnDone(absl::CancelledError("gone"), At(200));
  EXPECT_EQ(Value(m::kVllmRequestSuccess, {"tiny", "abort"}), 1);
  EXPECT_EQ(Value(m::kVllmGenerationTokens, {"tiny"}), 3);
  EXPECT_EQ(Value(m::kRequestFailures, {"CANCELLED"}), -1);
}

TEST_F(RequestMeterTest, WhatFailedBeforeItBeganLeavesItsReasonAndNoModel) {
  RequestMeter meter = Meter("any-name-that-a-client-makes-up");
  meter.OnDone(ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotLoaded, "no such model"),
               At(1));
  EXPECT_EQ(Value(m::kRequestFailures, {reasons::kModelNotLoaded}), 1);
  MetricSet set;
  registry_->CopyTo(set);
  EXPECT_EQ(set.families().size(), 1u);
}

TEST_F(RequestMeterTest, AFailureWithinAnAnswerIsNoSuccess) {
  RequestMeter meter = Meter();
  meter.OnChunk(Tokens(1, 10), At(100));
  meter.OnDone(ReasonStatus(absl::StatusCode::kUnavailable, reasons::kGangLostNode, "lost"),
               At(300));
  EXPECT_EQ(Value(m::kRequestFailures, {reasons::kGangLostNode}), 1);
  EXPECT_EQ(Value(m::kVllmRequestSuccess, {"tiny", "abort"}), -1);
  EXPECT_EQ(Value(m::kVllmGenerationTokens, {"tiny"}), 1);
}

TEST_F(RequestMeterTest, AnEmbeddingHasAPromptAndNoTokens) {
  RequestMeter meter = Meter();
  v1::GenerateChunk chunk = Last(v1::FINISH_REASON_STOP, 0);
  chunk.set_prompt_tokens(7);
  chunk.add_embedding(1);
  meter.OnChunk(chunk, At(20));
  meter.OnDone(absl::OkStatus(), At(20));
  EXPECT_EQ(Value(m::kVllmPromptTokens, {"tiny"}), 7);
  EXPECT_EQ(Value(m::kVllmRequestSuccess, {"tiny", "stop"}), 1);
  EXPECT_EQ(Histogram(m::kVllmFirstToken).count(), 0u);
  EXPECT_EQ(Histogram(m::kVllmRequestGenerationTokens).count(), 0u);
}

}  // namespace
}  // namespace macrame::agentd
