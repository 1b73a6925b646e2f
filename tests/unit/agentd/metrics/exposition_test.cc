#include "agentd/metrics/exposition.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace macrame::agentd {
namespace {

constexpr double kBounds[] = {0.5, 1, 2.5};
constexpr Metric kAsked{"test_asked_total", MetricKind::kCounter, "", "route,code",
                        "What was asked."};
constexpr Metric kSize{"test_size_bytes", MetricKind::kGauge, "bytes", "", "How \\ large\nit is."};
constexpr Metric kWait{
    "test_wait_seconds", MetricKind::kHistogram, "seconds", "who", "A wait.", kBounds};

MetricSet Sample() {
  MetricSet set;
  set.Set(kAsked, {"/v1/\"chat\"\\", "line\nend"}, 3);
  set.Set(kSize, {}, 0.1);
  HistogramCounts counts(3);
  for (const double value : {0.2, 0.5, 0.7, 9.0}) counts.Add(kBounds, value);
  set.Set(kWait, {"ada"}, counts);
  return set;
}

TEST(Exposition, PrometheusToTheLetter) {
  EXPECT_EQ(Expose(Sample(), MetricsFormat::kPrometheus),
            "# HELP test_asked_total What was asked.\n"
            "# TYPE test_asked_total counter\n"
            "test_asked_total{route=\"/v1/\\\"chat\\\"\\\\\",code=\"line\\nend\"} 3\n"
            "# HELP test_size_bytes How \\\\ large\\nit is.\n"
            "# TYPE test_size_bytes gauge\n"
            "test_size_bytes 0.1\n"
            "# HELP test_wait_seconds A wait.\n"
            "# TYPE test_wait_seconds histogram\n"
            "test_wait_seconds_bucket{who=\"ada\",le=\"0.5\"} 2\n"
            "test_wait_seconds_bucket{who=\"ada\",le=\"1.0\"} 3\n"
            "test_wait_seconds_bucket{who=\"ada\",le=\"2.5\"} 3\n"
            "test_wait_seconds_bucket{who=\"ada\",le=\"+Inf\"} 4\n"
            "test_wait_seconds_sum{who=\"ada\"} 10.4\n"
            "test_wait_seconds_count{who=\"ada\"} 4\n");
}

TEST(Exposition, OpenMetricsNamesCountersWithoutTheirEndAndUnitsAndEnds) {
  const std::string text = Expose(Sample(), MetricsFormat::kOpenMetrics);
  EXPECT_NE(text.find("# TYPE test_asked counter\ntest_asked_total{"), std::string::npos) << text;
  EXPECT_NE(text.find("# TYPE test_size_bytes gauge\n# UNIT test_size_bytes bytes\n"),
            std::string::npos)
      << text;
  EXPECT_TRUE(text.ends_with("\n# EOF\n")) << text;
}

TEST(Exposition, JsonHoldsTheSameFigures) {
  const auto json = nlohmann::json::parse(Expose(Sample(), MetricsFormat::kJson));
  ASSERT_EQ(json["metrics"].size(), 3u);
  const auto& asked = json["metrics"][0];
  EXPECT_EQ(asked["name"], "test_asked_total");
  EXPECT_EQ(asked["type"], "counter");
  EXPECT_EQ(asked["samples"][0]["labels"]["code"], "line\nend");
  EXPECT_EQ(asked["samples"][0]["value"], 3);
  EXPECT_EQ(json["metrics"][1]["unit"], "bytes");
  const auto& wait = json["metrics"][2]["samples"][0];
  EXPECT_EQ(wait["count"], 4);
  EXPECT_EQ(wait["buckets"][0]["at_most"], 0.5);
  EXPECT_EQ(wait["buckets"][0]["count"], 2);
}

TEST(Exposition, NumbersReadBackAsTheyWere) {
  for (const double value : {0.0, 1.0, -3.0, 0.1, 1.0 / 3, 1e15, 123456789012.0, 1.7e308, 5e-324}) {
    MetricSet set;
    set.Set(kSize, {}, value);
    const std::string text = Expose(set, MetricsFormat::kPrometheus);
    const std::string number = text.substr(text.rfind("test_size_bytes ") + 16);
    EXPECT_EQ(std::strtod(number.c_str(), nullptr), value) << number;
  }
  MetricSet set;
  set.Set(kSize, {}, std::nan(""));
  EXPECT_TRUE(Expose(set, MetricsFormat::kPrometheus).ends_with("test_size_bytes NaN\n"));
  set.Set(kSize, {}, -INFINITY);
  EXPECT_TRUE(Expose(set, MetricsFormat::kPrometheus).ends_with("test_size_bytes -Inf\n"));
}

TEST(Exposition, TheHeaderAcceptChooses) {
  const std::string prometheus =
      "application/openmetrics-text;version=1.0.0;q=0.6,application/openmetrics-text;version=0.0.1;"
      "q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.3";
  EXPECT_EQ(FormatForAccept(prometheus), MetricsFormat::kOpenMetrics);
  EXPECT_EQ(FormatForAccept("application/openmetrics-text"), MetricsFormat::kOpenMetrics);
  EXPECT_EQ(FormatForAccept("text/plain, application/openmetrics-text;q=0.5"),
            MetricsFormat::kPrometheus);
  EXPECT_EQ(FormatForAccept("application/openmetrics-text;q=0"), MetricsFormat::kPrometheus);
  EXPECT_EQ(FormatForAccept("application/openmetrics-text;q=abc"), MetricsFormat::kPrometheus);
  EXPECT_EQ(FormatForAccept("*/*"), MetricsFormat::kPrometheus);
  EXPECT_EQ(FormatForAccept(""), MetricsFormat::kPrometheus);
  EXPECT_EQ(MetricsFormatFromName("json"), MetricsFormat::kJson);
  EXPECT_EQ(MetricsFormatFromName("xml"), std::nullopt);
}

}  // namespace
}  // namespace macrame::agentd
