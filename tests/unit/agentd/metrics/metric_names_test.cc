// Names of metrics against the rules of Prometheus, and against what is written of them.

#include "agentd/metrics/metric_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace macrame::agentd {
namespace {

namespace m = metrics;

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

const char* KindName(MetricKind kind) {
  return kind == MetricKind::kCounter ? "counter"
         : kind == MetricKind::kGauge ? "gauge"
                                      : "histogram";
}

TEST(MetricNames, FollowPrometheusRules) {
  std::set<std::string_view> names;
  for (const Metric* metric : m::All()) {
    const std::string name(metric->name);
    EXPECT_TRUE(names.insert(metric->name).second) << name << " is there twice";
    EXPECT_TRUE(std::regex_match(name, std::regex("(vllm:|macrame_|process_)[a-z0-9_]+"))) << name;
    EXPECT_EQ(metric->kind == MetricKind::kCounter, name.ends_with("_total")) << name;
    if (!metric->unit.empty()) {
      const std::string end =
          "_" + std::string(metric->unit) + (metric->kind == MetricKind::kCounter ? "_total" : "");
      EXPECT_TRUE(name.ends_with(end)) << name << " should end with " << end;
    }
    EXPECT_TRUE(metric->help.ends_with(".") || metric->help.ends_with("…")) << name;
    EXPECT_EQ(metric->kind == MetricKind::kHistogram, !metric->bounds.empty()) << name;
    EXPECT_TRUE(std::is_sorted(metric->bounds.begin(), metric->bounds.end())) << name;
    EXPECT_EQ(m::Find(metric->name), metric);
  }
  EXPECT_EQ(m::Find("macrame_nothing"), nullptr);
}

TEST(MetricNames, DocsListEachMetricAsItIs) {
  std::map<std::string, std::vector<std::string>> rows;
  for (const absl::string_view line : absl::StrSplit(ReadText("docs/metrics.md"), '\n')) {
    std::vector<std::string> cells = absl::StrSplit(line, '|');
    if (cells.size() != 7) continue;
    for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
    if (!cells[1].starts_with("`")) continue;
    EXPECT_TRUE(rows.emplace(cells[1], cells).second) << cells[1] << " stands there twice";
  }
  for (const Metric* metric : m::All()) {
    const auto row = rows.find(absl::StrCat("`", std::string(metric->name), "`"));
    ASSERT_NE(row, rows.end()) << "docs/metrics.md lacks " << metric->name;
    EXPECT_EQ(row->second[2], KindName(metric->kind)) << metric->name;
    EXPECT_EQ(row->second[3], metric->unit) << metric->name;
    std::vector<std::string> labels = absl::StrSplit(row->second[4], ", ", absl::SkipEmpty());
    const auto names = LabelNames(*metric);
    EXPECT_EQ(labels, std::vector<std::string>(names.begin(), names.end())) << metric->name;
    EXPECT_EQ(row->second[5], metric->help) << metric->name;
    rows.erase(row);
  }
  for (const auto& [name, cells] : rows) ADD_FAILURE() << name << " is listed and not exposed";
}

// The metrics that an expression of PromQL reads.
std::set<std::string> NamesIn(const std::string& expression) {
  static const std::regex name("(vllm:|macrame_|process_)[a-z0-9_]+");
  std::set<std::string> names;
  for (std::sregex_iterator it(expression.begin(), expression.end(), name), end; it != end; ++it) {
    names.insert(it->str());
  }
  return names;
}

void ExpectExposed(const std::string& expression, const std::string& where) {
  const std::set<std::string> names = NamesIn(expression);
  // Prometheus makes `up` itself.
  EXPECT_TRUE(!names.empty() || expression.starts_with("up{")) << where << ": " << expression;
  for (const std::string& name : names) {
    const Metric* metric = m::Find(name);
    for (const char* end : {"_bucket", "_sum", "_count"}) {
      if (metric != nullptr || !name.ends_with(end)) continue;
      metric = m::Find(name.substr(0, name.size() - std::string_view(end).size()));
      if (metric != nullptr && metric->kind != MetricKind::kHistogram) metric = nullptr;
    }
    EXPECT_NE(metric, nullptr) << where << " reads " << name << ", which nobody exposes";
  }
}

TEST(MetricNames, TheDashboardReadsWhatIsExposed) {
  const auto board = nlohmann::json::parse(ReadText("deploy/monitoring/grafana-dashboard.json"));
  size_t seen = 0;
  for (const auto& panel : board["panels"]) {
    for (const auto& target : panel.value("targets", nlohmann::json::array())) {
      ExpectExposed(target["expr"], panel["title"]);
      ++seen;
    }
  }
  for (const auto& variable : board["templating"]["list"]) {
    if (variable["type"] == "query") ExpectExposed(variable["definition"], variable["name"]);
  }
  EXPECT_GT(seen, 15u);
}

TEST(MetricNames, TheAlertRulesReadWhatIsExposed) {
  static const std::regex expression(R"(^\s+expr: (.+)$)");
  size_t seen = 0;
  for (const absl::string_view line :
       absl::StrSplit(ReadText("deploy/monitoring/alerts.yaml"), '\n')) {
    const std::string text(line);
    std::smatch match;
    if (!std::regex_match(text, match, expression)) continue;
    ExpectExposed(match[1], "alerts.yaml");
    ++seen;
  }
  EXPECT_GE(seen, 8u);
}

}  // namespace
}  // namespace macrame::agentd
