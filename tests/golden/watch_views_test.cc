// What benchmarks, timings and traces look like, held against the files beside this one.

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "cli/format/bench_view.h"
#include "cli/format/chrome_trace.h"
#include "cli/format/timings_view.h"
#include "proto/log_histogram.h"
#include "tests/golden/golden_files.h"
#include "tests/unit/cli/sample_messages.h"

namespace macrame::cli {
namespace {

v1::LogHistogram Spread(double from, double step, int count) {
  LogHistogram values;
  for (int i = 0; i < count; ++i) values.Add(from + i * step);
  return values.ToMessage();
}

v1::ClusterStatus MeasuredCluster() {
  v1::ClusterStatus status = HealthyCluster();
  v1::DeploymentStatus& deployment = *status.mutable_deployments(0);
  for (v1::RankStatus& rank : *deployment.mutable_ranks()) {
    rank.set_epoch(deployment.epoch());
    v1::RankTimings& timings = *rank.mutable_timings();
    *timings.mutable_prefill_step_us() = Spread(90'000, 500, 40);
    *timings.mutable_decode_step_us() = Spread(20'000, 20, 600);
    *timings.mutable_collective_us() = Spread(300 + 4000.0 * rank.rank(), 3, 640);
    if (rank.rank() != 0) continue;
    rank.set_preemptions_total(3);
    rank.set_recomputed_tokens_total(412);
    *timings.mutable_queue_us() = Spread(40, 700, 12);
    *timings.mutable_first_token_us() = Spread(300'000, 100'000, 12);
    *timings.mutable_prefill_tokens() = Spread(64, 4, 40);
    *timings.mutable_decode_tokens() = Spread(1, 0.02, 600);
    *timings.mutable_sampling_us() = Spread(80, 0.5, 620);
  }
  v1::ModelEnergy& energy = *deployment.mutable_energy();
  energy.set_joules(5120);
  energy.set_prefill_joules(1380);
  energy.set_generated_tokens(4193);
  energy.set_prompt_tokens(5680);
  energy.set_seconds(19.6);
  for (const auto part : {v1::POWER_PART_CPU, v1::POWER_PART_GPU, v1::POWER_PART_ANE}) {
    energy.add_parts(part);
  }
  deployment.mutable_plan()->mutable_prediction()->set_power_watts(95);
  deployment.mutable_plan()->mutable_prediction()->set_joules_per_token(3.8);
  return status;
}

TEST(Golden, Timings) {
  const v1::ClusterStatus status = MeasuredCluster();
  const std::string view = TimingsView(status, status.deployments(0), 100, Style());
  ExpectGolden("timings-100.txt", view);
  ExpectWithin(100, view);
  Json document = Document("ModelStats");
  document["items"] = Json::array({TimingsJson(status.deployments(0))});
  ExpectGolden("timings.json.txt", ToJsonText(document));
  const v1::ClusterStatus fresh = HealthyCluster();
  EXPECT_NE(TimingsView(fresh, fresh.deployments(0), 100, Style()).find("no steps yet"),
            std::string::npos);
}

BenchReport SampleReport() {
  BenchReport report;
  const v1::ClusterStatus status = HealthyCluster();
  report.model = "tiny";
  report.client_version = "0.1.0";
  report.agent.set_version("0.1.0");
  report.agent.set_mlx_version("0.32.4");
  report.deployment = status.deployments(0);
  report.nodes.assign(status.nodes().begin(), status.nodes().end());
  report.requests_per_user = 3;
  BenchRow row;
  row.asked = {1, 128, 64};
  row.requests = 3;
  row.prompt_tokens = 127.3;
  row.answer_tokens = 64;
  row.ttft_p50_ms = 310;
  row.ttft_p95_ms = 355;
  row.ttft_max_ms = 355;
  row.tpot_p50_ms = 24.1;
  row.tpot_p95_ms = 29.8;
  row.prefill_rate = 410.2;
  row.decode_rate = 41.4;
  row.total_rate = 99.2;
  row.seconds = 5.8;
  report.rows.push_back(row);
  row.asked.users = 16;
  row.requests = 48;
  row.errors = 2;
  row.first_error = "QUEUE_FULL: 32 requests wait for model tiny";
  row.ttft_p95_ms = 2400;
  row.tpot_p50_ms = 4.25;
  row.cached_tokens = 640;
  report.rows.push_back(row);
  return report;
}

TEST(Golden, Bench) {
  const std::string view = BenchView(SampleReport(), 120, Style());
  ExpectGolden("bench-120.txt", view);
  ExpectWithin(120, view);
  ExpectGolden("bench.json.txt", ToJsonText(BenchDocument(SampleReport())));
}

v1::TraceModelResponse SampleTrace() {
  v1::TraceModelResponse trace;
  trace.set_deployment("tiny");
  trace.set_epoch(3);
  for (uint32_t number = 0; number < 2; ++number) {
    v1::RankTrace& rank = *trace.add_ranks();
    rank.set_rank(number);
    rank.set_node_id(number == 0 ? "aa" : "bb");
    rank.set_begun_unix_us(1'700'000'000'000'000 + 250 * number);
    uint64_t at = 1000;
    for (const v1::TracePart part :
         {v1::TRACE_PART_STEP, v1::TRACE_PART_EMBED, v1::TRACE_PART_LAYER,
          v1::TRACE_PART_COLLECTIVE, v1::TRACE_PART_LOGITS, v1::TRACE_PART_SAMPLING,
          v1::TRACE_PART_REQUEST_QUEUED, v1::TRACE_PART_REQUEST_PREFILL,
          v1::TRACE_PART_REQUEST_DECODE}) {
      if (number > 0 && part >= v1::TRACE_PART_REQUEST_QUEUED) continue;  // requests are rank 0's
      v1::TraceSpan& span = *rank.add_spans();
      span.set_part(part);
      span.set_begin_ns(at);
      span.set_duration_ns(500);
      span.set_number(7);
      if (part == v1::TRACE_PART_STEP) span.set_prefill_tokens(64);
      at += 1500;
    }
  }
  trace.mutable_ranks(1)->set_dropped(12);
  return trace;
}

// What Perfetto and Chrome require of each event, by its kind.
TEST(Golden, Trace) {
  const Json document = ChromeTrace(SampleTrace(), [](const std::string& id) { return id; });
  ExpectGolden("trace.json.txt", ToJsonText(document));
  ASSERT_TRUE(document["traceEvents"].is_array());
  std::map<std::string, int> open;
  std::set<std::pair<int, int>> named_tracks;
  for (const Json& event : document["traceEvents"]) {
    ASSERT_TRUE(event["name"].is_string());
    ASSERT_TRUE(event["pid"].is_number_integer());
    ASSERT_TRUE(event["tid"].is_number_integer());
    ASSERT_TRUE(event["ts"].is_number());
    EXPECT_GE(event["ts"].get<double>(), 0);
    const std::string phase = event["ph"];
    const std::pair<int, int> track(event["pid"], event["tid"]);
    if (phase == "M") {
      EXPECT_TRUE(event["args"]["name"].is_string());
      named_tracks.insert(track);
      continue;
    }
    EXPECT_TRUE(event["cat"].is_string());
    EXPECT_TRUE(named_tracks.contains(track));
    if (phase == "X") {
      EXPECT_GE(event["dur"].get<double>(), 0);
      continue;
    }
    ASSERT_TRUE(phase == "b" || phase == "e") << phase;
    open[std::string(event["id"]) + std::string(event["name"])] += phase == "b" ? 1 : -1;
  }
  EXPECT_EQ(open.size(), 3u);
  for (const auto& [id, count] : open) EXPECT_EQ(count, 0) << id << " does not end";
}

}  // namespace
}  // namespace macrame::cli
