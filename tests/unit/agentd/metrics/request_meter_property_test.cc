// Requests of all shapes through a meter: what it counts is what the chunks said, over many seeds.

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "agentd/metrics/metric_names.h"
#include "agentd/metrics/request_meter.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

namespace m = metrics;
using std::chrono::milliseconds;

struct Counted {
  std::shared_ptr<MetricRegistry> registry = std::make_shared<MetricRegistry>();
  std::shared_ptr<LatencyHistory> latencies = std::make_shared<LatencyHistory>();

  double Value(const Metric& metric, const LabelValues& labels) const {
    MetricSet set;
    registry->CopyTo(set);
    const auto family = set.families().find(metric.name);
    if (family == set.families().end()) return 0;
    const auto value = family->second.values.find(labels);
    return value == family->second.values.end() ? 0 : value->second;
  }
  HistogramCounts Histogram(const Metric& metric, const std::string& model) const {
    MetricSet set;
    registry->CopyTo(set);
    const auto family = set.families().find(metric.name);
    if (family == set.families().end()) return HistogramCounts(metric.bounds.size());
    const auto found = family->second.histograms.find({model});
    return found == family->second.histograms.end() ? HistogramCounts(metric.bounds.size())
                                                    : found->second;
  }
  size_t Series(const std::string& model) const {
    MetricSet set;
    registry->CopyTo(set);
    size_t series = 0;
    for (const auto& [name, family] : set.families()) {
      for (const auto& [labels, value] : family.values) series += labels[0] == model ? 1 : 0;
      for (const auto& [labels, value] : family.histograms) series += labels[0] == model ? 1 : 0;
    }
    return series;
  }
};

// One request, as the model of the test remembers it.
struct Told {
  uint64_t prompt = 0;
  uint64_t cached = 0;
  uint64_t tokens = 0;
  int first_ms = 0;  // of the first token, the last
  int last_ms = 0;
  int ended_ms = 0;
};

class MeteredRequest {
 public:
  MeteredRequest(uint64_t seed, Counted* counted)
      : random_(seed), meter_(counted->registry, counted->latencies, "tiny", At(0)) {}

  void Play() {
    if (Below(3) > 0) WaitInQueue();
    told_.prompt = 1 + Below(5000);
    told_.cached = Below(told_.prompt + 1);
    const int chunks = 1 + static_cast<int>(Below(30));
    for (int i = 0; i < chunks; ++i) {
      now_ms_ += static_cast<int>(Below(80));
      meter_.OnChunk(NextChunk(), At(now_ms_));
    }
  }
  void End(const absl::Status& status, v1::FinishReason reason) {
    now_ms_ += static_cast<int>(Below(20));
    if (status.ok()) {
      v1::GenerateChunk last;
      last.set_finish_reason(reason);
      last.set_prompt_tokens(static_cast<uint32_t>(told_.prompt));
      last.set_completion_tokens(static_cast<uint32_t>(told_.tokens));
      meter_.OnChunk(last, At(now_ms_));
    }
    meter_.OnDone(status, At(now_ms_));
    told_.ended_ms = now_ms_;
  }
  const Told& told() const { return told_; }
  const RequestMeter& meter() const { return meter_; }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  static MonotonicTime At(int ms) { return MonotonicTime() + milliseconds(ms); }

  // How far the prompt is says nothing of tokens.
  void WaitInQueue() {
    for (uint64_t i = Below(4); i > 0; --i) {
      now_ms_ += static_cast<int>(Below(500));
      v1::GenerateChunk chunk;
      chunk.mutable_progress()->set_prompt_tokens(9'999);
      chunk.set_prompt_tokens(9'999);
      meter_.OnChunk(chunk, At(now_ms_));
    }
  }
  v1::GenerateChunk NextChunk() {
    v1::GenerateChunk chunk;
    chunk.set_prompt_tokens(static_cast<uint32_t>(told_.prompt));
    chunk.set_cached_tokens(static_cast<uint32_t>(told_.cached));
    uint64_t tokens = Below(4);
    for (uint64_t i = 0; i < tokens; ++i) chunk.add_token_ids(static_cast<int32_t>(i));
    // Where no ids come, text, reasoning or a call stands for one token.
    if (tokens == 0) {
      switch (Below(4)) {
        case 0:
          chunk.set_text("word");
          break;
        case 1:
          chunk.set_reasoning("thought");
          break;
        case 2:
          chunk.add_tool_calls()->set_arguments("{");
          break;
        default:
          return chunk;
      }
      tokens = 1;
    }
    if (told_.tokens == 0) told_.first_ms = now_ms_;
    told_.tokens += tokens;
    told_.last_ms = now_ms_;
    return chunk;
  }

  std::mt19937_64 random_;
  RequestMeter meter_;
  Told told_;
  int now_ms_ = 0;
};

TEST(RequestMeterProperty, TimesAndTokensAddUp) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Counted counted;
    MeteredRequest request(seed, &counted);
    request.Play();
    request.End(absl::OkStatus(),
                seed % 2 == 0 ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH);
    const Told& told = request.told();
    EXPECT_EQ(counted.Value(m::kVllmPromptTokens, {"tiny"}), static_cast<double>(told.prompt));
    EXPECT_EQ(counted.Value(m::kVllmPrefixQueries, {"tiny"}), static_cast<double>(told.prompt));
    EXPECT_EQ(counted.Value(m::kVllmPrefixHits, {"tiny"}), static_cast<double>(told.cached));
    EXPECT_EQ(request.meter().computed_prompt_tokens(), told.prompt - told.cached);
    EXPECT_EQ(request.meter().generated_tokens(), told.tokens);
    EXPECT_EQ(counted.Value(m::kVllmGenerationTokens, {"tiny"}), static_cast<double>(told.tokens));
    EXPECT_EQ(counted.Value(m::kVllmRequestSuccess, {"tiny", seed % 2 == 0 ? "stop" : "length"}),
              1);
    const HistogramCounts whole = counted.Histogram(m::kVllmEndToEnd, "tiny");
    EXPECT_EQ(whole.count(), 1u);
    EXPECT_NEAR(whole.sum, told.ended_ms / 1000.0, 1e-9);
    const HistogramCounts first = counted.Histogram(m::kVllmFirstToken, "tiny");
    const HistogramCounts inter = counted.Histogram(m::kVllmInterToken, "tiny");
    EXPECT_EQ(first.count(), told.tokens > 0 ? 1u : 0u);
    if (told.tokens == 0) continue;
    EXPECT_NEAR(first.sum, told.first_ms / 1000.0, 1e-9);
    EXPECT_EQ(inter.count(), told.tokens - 1) << "each token but the first has a time before it";
    EXPECT_NEAR(inter.sum, (told.last_ms - told.first_ms) / 1000.0, 1e-9)
        << "together they are the time from the first token to the last";
    if (HasFailure()) return;
  }
}

TEST(RequestMeterProperty, HoweverItEndsItIsCountedOnce) {
  const absl::Status ends[] = {
      absl::OkStatus(), absl::CancelledError("left"),
      ReasonStatus(absl::StatusCode::kUnavailable, reasons::kRankExited, "rank 1 of tiny exited"),
      absl::InternalError("a fault")};
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Counted counted;
    const absl::Status& status = ends[seed % std::size(ends)];
    MeteredRequest request(seed, &counted);
    request.Play();
    request.End(status, v1::FINISH_REASON_STOP);
    const bool is_failure = !status.ok() && !absl::IsCancelled(status);
    double successes = 0;
    for (const char* how : {"stop", "length", "abort"}) {
      successes += counted.Value(m::kVllmRequestSuccess, {"tiny", how});
    }
    EXPECT_EQ(successes, is_failure ? 0 : 1) << status;
    EXPECT_EQ(counted.Value(m::kRequestFailures, {ReasonOf(status).code()}), is_failure ? 1 : 0);
    EXPECT_EQ(counted.Histogram(m::kVllmEndToEnd, "tiny").count(), 1u);
    EXPECT_EQ(counted.Value(m::kVllmGenerationTokens, {"tiny"}),
              static_cast<double>(request.told().tokens))
        << "what was written counts, whoever left";
  }
}

// Names of models come from anybody: asking for many that are not there must not fill the page.
TEST(RequestMeterProperty, ModelsThatAreNotThereLeaveNoSeries) {
  Counted counted;
  for (int i = 0; i < 1000; ++i) {
    const std::string model = absl::StrCat("guess-", i);
    RequestMeter meter(counted.registry, counted.latencies, model, MonotonicTime());
    meter.OnDone(
        ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotLoaded, "no such model"),
        MonotonicTime() + milliseconds(i));
    EXPECT_EQ(counted.Series(model), 0u);
  }
  EXPECT_EQ(counted.Value(m::kRequestFailures, {reasons::kModelNotLoaded}), 1000);
}

TEST(RequestMeterProperty, AClientThatLeavesTheQueueIsNoFailureAndNoModel) {
  Counted counted;
  RequestMeter meter(counted.registry, counted.latencies, "tiny", MonotonicTime());
  v1::GenerateChunk waits;
  waits.mutable_progress()->set_is_queued(true);
  meter.OnChunk(waits, MonotonicTime() + milliseconds(5));
  meter.OnDone(absl::CancelledError("left"), MonotonicTime() + milliseconds(9));
  EXPECT_EQ(counted.Series("tiny"), 0u);
  EXPECT_EQ(meter.generated_tokens(), 0u);
  EXPECT_EQ(meter.computed_prompt_tokens(), 0u);
}

}  // namespace
}  // namespace macrame::agentd
