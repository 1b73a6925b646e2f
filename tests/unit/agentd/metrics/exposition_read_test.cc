// What is exposed, read back by a reader of Prometheus' text format that was written from its
// description (https://prometheus.io/docs/instrumenting/exposition_formats/), over many seeds.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agentd/metrics/exposition.h"
#include "agentd/metrics/metric_registry.h"
#include "proto/utf8.h"

namespace macrame::agentd {
namespace {

constexpr double kBounds[] = {0.001, 0.25, 1, 30, 1e7};
constexpr Metric kCounter{"test_asked_total", MetricKind::kCounter, "", "model,code", "Asked."};
constexpr Metric kGauge{"test_size_bytes", MetricKind::kGauge, "bytes", "node", "How large."};
constexpr Metric kBare{"test_up", MetricKind::kGauge, "", "", "Whether."};
constexpr Metric kWait{
    "test_wait_seconds", MetricKind::kHistogram, "seconds", "model", "A wait.", kBounds};

using Labels = std::map<std::string, std::string>;
struct Sample {
  std::string name;
  Labels labels;
  double value = 0;
};

// Takes `name="value",…}` apart; nullopt: it is malformed.
std::optional<Labels> ReadLabels(absl::string_view* text) {
  Labels labels;
  while (!absl::ConsumePrefix(text, "}")) {
    const size_t equals = text->find("=\"");
    if (equals == absl::string_view::npos) return std::nullopt;
    const std::string name(text->substr(0, equals));
    text->remove_prefix(equals + 2);
    std::string value;
    for (;; text->remove_prefix(1)) {
      if (text->empty()) return std::nullopt;
      if (text->front() == '"') break;
      if (text->front() != '\\') {
        value.push_back(text->front());
        continue;
      }
      text->remove_prefix(1);
      if (text->empty() || !absl::StrContains("\\\"n", text->substr(0, 1))) return std::nullopt;
      value.push_back(text->front() == 'n' ? '\n' : text->front());
    }
    text->remove_prefix(1);
    absl::ConsumePrefix(text, ",");
    if (!labels.emplace(name, value).second) return std::nullopt;
  }
  return labels;
}

std::optional<Sample> ReadSample(absl::string_view line) {
  Sample sample;
  const size_t end = line.find_first_of(" {");
  if (end == absl::string_view::npos) return std::nullopt;
  sample.name = std::string(line.substr(0, end));
  line.remove_prefix(end);
  if (absl::ConsumePrefix(&line, "{")) {
    const auto labels = ReadLabels(&line);
    if (!labels.has_value()) return std::nullopt;
    sample.labels = *labels;
  }
  if (!absl::ConsumePrefix(&line, " ") || !absl::SimpleAtod(line, &sample.value)) {
    return std::nullopt;
  }
  return sample;
}

struct Page {
  std::vector<Sample> samples;
  std::map<std::string, std::string> types;
};

Page ReadPage(const std::string& text) {
  Page page;
  EXPECT_TRUE(text.empty() || text.back() == '\n') << "the last line is whole";
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "#")) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      if (words.size() >= 4 && words[1] == "TYPE") {
        EXPECT_TRUE(page.types.emplace(words[2], words[3]).second) << line << " stands twice";
      }
      continue;
    }
    const auto sample = ReadSample(line);
    EXPECT_TRUE(sample.has_value()) << line;
    if (sample.has_value()) page.samples.push_back(*sample);
  }
  return page;
}

const Sample* FindSample(const Page& page, const std::string& name, const Labels& labels) {
  for (const Sample& sample : page.samples) {
    if (sample.name == name && sample.labels == labels) return &sample;
  }
  return nullptr;
}

bool AreSame(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

class PageMaker {
 public:
  explicit PageMaker(uint64_t seed) : random_(seed) {}

  std::string Text() {
    static const std::vector<std::string> kPieces = {"a", "B",  "\"", "\\", "\n", "\\n", "{",
                                                     "}", ",",  "=",  "#",  " ",  "é",   "日",
                                                     "",  "le", "\t", "\r", "'",  "+Inf"};
    std::string text;
    for (uint64_t i = random_() % 6; i > 0; --i) text += kPieces[random_() % kPieces.size()];
    return text;
  }
  double Number() {
    switch (random_() % 8) {
      case 0:
        return 0;
      case 1:
        return INFINITY;
      case 2:
        return std::nan("");
      case 3:
        return -std::ldexp(1, static_cast<int>(random_() % 60));
      case 4:
        return static_cast<double>(random_());
      default:
        return std::uniform_real_distribution<>(-1e3, 1e6)(random_);
    }
  }
  MetricSet Set() {
    MetricSet set;
    for (uint64_t i = random_() % 5; i > 0; --i) set.Set(kCounter, {Text(), Text()}, Number());
    for (uint64_t i = random_() % 5; i > 0; --i) set.Set(kGauge, {Text()}, Number());
    if (random_() % 2 == 0) set.Set(kBare, {}, Number());
    for (uint64_t i = random_() % 3; i > 0; --i) {
      HistogramCounts counts(std::size(kBounds));
      for (uint64_t j = random_() % 20; j > 0; --j) {
        counts.Add(kBounds, std::exp(std::uniform_real_distribution<>(-9, 20)(random_)),
                   1 + random_() % 3);
      }
      set.Set(kWait, {Text()}, counts);
    }
    return set;
  }

 private:
  std::mt19937_64 random_;
};

Labels LabelsOf(const Metric& metric, const LabelValues& values) {
  Labels labels;
  const auto names = LabelNames(metric);
  for (size_t i = 0; i < values.size(); ++i) labels[std::string(names[i])] = values[i];
  return labels;
}

void ExpectHistogram(const Page& page, const Metric& metric, const Labels& labels,
                     const HistogramCounts& counts) {
  const std::string name(metric.name);
  uint64_t below = 0;
  double last = 0;
  for (size_t i = 0; i < counts.counts.size(); ++i) {
    below += counts.counts[i];
    const Sample* found = nullptr;
    for (const Sample& sample : page.samples) {
      Labels own = sample.labels;
      const std::string le = own["le"];
      own.erase("le");
      double bound = 0;
      if (sample.name != name + "_bucket" || own != labels) continue;
      ASSERT_TRUE(absl::SimpleAtod(le, &bound)) << le;
      const double wanted = i < metric.bounds.size() ? metric.bounds[i] : INFINITY;
      if (bound == wanted) found = &sample;
    }
    ASSERT_NE(found, nullptr) << name << ", bucket " << i;
    EXPECT_EQ(found->value, static_cast<double>(below)) << "buckets count what is below them, too";
    EXPECT_GE(found->value, last);
    last = found->value;
  }
  const Sample* count = FindSample(page, name + "_count", labels);
  const Sample* sum = FindSample(page, name + "_sum", labels);
  ASSERT_TRUE(count != nullptr && sum != nullptr);
  EXPECT_EQ(count->value, last) << "the last bucket holds all";
  EXPECT_EQ(sum->value, counts.sum);
}

TEST(ExpositionRead, EverySampleIsReadBackWithItsLabelsAndItsValue) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const MetricSet set = PageMaker(seed).Set();
    const Page page = ReadPage(Expose(set, MetricsFormat::kPrometheus));
    size_t expected = 0;
    for (const auto& [name, family] : set.families()) {
      EXPECT_TRUE(page.types.contains(std::string(name))) << name;
      for (const auto& [labels, value] : family.values) {
        const Sample* found = FindSample(page, std::string(name), LabelsOf(*family.metric, labels));
        ASSERT_NE(found, nullptr) << name;
        EXPECT_TRUE(AreSame(found->value, value)) << found->value << " was " << value;
        ++expected;
      }
      for (const auto& [labels, counts] : family.histograms) {
        ExpectHistogram(page, *family.metric, LabelsOf(*family.metric, labels), counts);
        expected += counts.counts.size() + 2;
      }
    }
    EXPECT_EQ(page.samples.size(), expected) << "nothing else stands there";
    if (HasFailure()) return;
  }
}

TEST(ExpositionRead, OpenMetricsHasTheSameSamplesAndOneEnd) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const MetricSet set = PageMaker(seed).Set();
    const std::string text = Expose(set, MetricsFormat::kOpenMetrics);
    ASSERT_TRUE(text.ends_with("# EOF\n"));
    EXPECT_EQ(text.find("# EOF"), text.size() - 6);
    const Page open = ReadPage(text);
    const Page plain = ReadPage(Expose(set, MetricsFormat::kPrometheus));
    ASSERT_EQ(open.samples.size(), plain.samples.size());
    for (size_t i = 0; i < open.samples.size(); ++i) {
      EXPECT_EQ(open.samples[i].name, plain.samples[i].name);
      EXPECT_EQ(open.samples[i].labels, plain.samples[i].labels) << "a series has one name";
    }
  }
}

TEST(ExpositionRead, JsonHasAsManySamplesAndTheirCounts) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const MetricSet set = PageMaker(seed).Set();
    const auto json = nlohmann::json::parse(Expose(set, MetricsFormat::kJson));
    ASSERT_EQ(json["metrics"].size(), set.families().size());
    size_t place = 0;
    for (const auto& [name, family] : set.families()) {
      const auto& told = json["metrics"][place++];
      EXPECT_EQ(told["name"], std::string(name));
      ASSERT_EQ(told["samples"].size(), family.values.size() + family.histograms.size());
      for (const auto& [labels, counts] : family.histograms) {
        uint64_t in_buckets = 0;
        for (const auto& sample : told["samples"]) {
          if (sample["labels"]["model"] != labels[0]) continue;
          for (const auto& bucket : sample["buckets"])
            in_buckets += bucket["count"].get<uint64_t>();
          EXPECT_EQ(sample["count"], counts.count());
        }
        EXPECT_EQ(in_buckets, counts.count() - counts.counts.back())
            << "what is above all bounds is in the count alone";
      }
    }
  }
}

// A scrape with one byte that is no UTF-8 is refused whole by Prometheus: a folder's name must not
// take all figures of a node with it.
TEST(ExpositionRead, LabelsThatAreNoUtf8LeaveThePageReadable) {
  MetricSet set;
  set.Set(kGauge, {"model-\xff\xc3"}, 1);
  set.Set(kGauge, {"good é"}, 2);
  for (const auto format :
       {MetricsFormat::kPrometheus, MetricsFormat::kOpenMetrics, MetricsFormat::kJson}) {
    const std::string text = Expose(set, format);
    EXPECT_EQ(FirstNonUtf8(text), text.size()) << text;
    EXPECT_NE(text.find("good é"), std::string::npos);
  }
}

TEST(ExpositionRead, AnEmptySetIsAnEmptyPage) {
  EXPECT_EQ(Expose(MetricSet(), MetricsFormat::kPrometheus), "");
  EXPECT_EQ(Expose(MetricSet(), MetricsFormat::kOpenMetrics), "# EOF\n");
  EXPECT_EQ(nlohmann::json::parse(Expose(MetricSet(), MetricsFormat::kJson))["metrics"].size(), 0u);
}

TEST(ExpositionRead, AcceptIsReadInAnyCaseAndWithBlanks) {
  struct Row {
    const char* accept;
    MetricsFormat expected;
  };
  for (const Row& row : {
           Row{"APPLICATION/OpenMetrics-Text", MetricsFormat::kOpenMetrics},
           Row{"  application/openmetrics-text ;  Q=0.5 ", MetricsFormat::kOpenMetrics},
           Row{"text/plain;q=0.5,application/openmetrics-text;q=0.5", MetricsFormat::kOpenMetrics},
           Row{"text/plain;q=0.51,application/openmetrics-text;q=0.5", MetricsFormat::kPrometheus},
           Row{"application/openmetrics-text-x", MetricsFormat::kPrometheus},
           Row{"x/application/openmetrics-text", MetricsFormat::kPrometheus},
           Row{"application/openmetrics-text;q=-1", MetricsFormat::kPrometheus},
           Row{"application/openmetrics-text;q=nan", MetricsFormat::kPrometheus},
           Row{"application/openmetrics-text;q=", MetricsFormat::kPrometheus},
           Row{",,,;;;,application/openmetrics-text,", MetricsFormat::kOpenMetrics},
       }) {
    EXPECT_EQ(FormatForAccept(row.accept), row.expected) << row.accept;
  }
  for (const MetricsFormat format :
       {MetricsFormat::kPrometheus, MetricsFormat::kOpenMetrics, MetricsFormat::kJson}) {
    EXPECT_NE(ContentTypeOf(format).find('/'), std::string_view::npos);
  }
}

// However many combinations callers send, what they count adds up, and the page stays small.
TEST(ExpositionRead, WhatBecomesOtherIsStillCounted) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    std::mt19937_64 random(seed);
    MetricRegistry registry;
    std::map<std::string, double> first;  // models in the order that they came
    double all = 0;
    uint64_t waits = 0;
    for (int i = 0; i < 5'000; ++i) {
      const std::string model = absl::StrCat("m", random() % 2'000);
      const auto by = static_cast<double>(1 + random() % 9);
      registry.Count(kCounter, {model, "200"}, by);
      registry.Observe(kWait, {model}, by, 2);
      if (first.size() < kSeriesMax || first.contains(model)) first[model] += by;
      all += by;
      waits += 2;
    }
    MetricSet set;
    registry.CopyTo(set);
    const MetricSet::Family& counted = set.families().at(kCounter.name);
    EXPECT_EQ(counted.values.size(), kSeriesMax + 1);
    double sum = 0;
    for (const auto& [labels, value] : counted.values) {
      sum += value;
      if (labels[0] != kOtherLabel) {
        EXPECT_EQ(value, first.at(labels[0])) << labels[0];
      }
    }
    EXPECT_EQ(sum, all);
    EXPECT_TRUE(counted.values.contains({kOtherLabel, kOtherLabel}));
    uint64_t observed = 0;
    for (const auto& [labels, counts] : set.families().at(kWait.name).histograms) {
      observed += counts.count();
    }
    EXPECT_EQ(observed, waits);
  }
}

}  // namespace
}  // namespace macrame::agentd
