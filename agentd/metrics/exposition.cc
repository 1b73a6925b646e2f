#include "agentd/metrics/exposition.h"

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "proto/utf8.h"

namespace macrame::agentd {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kTotal = "_total";
constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

const char* KindName(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return "counter";
    case MetricKind::kGauge:
      return "gauge";
    case MetricKind::kHistogram:
      break;
  }
  return "histogram";
}

// The shortest text that reads back as the same number.
std::string NumberText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value == std::floor(value) && std::fabs(value) < 1e15) {
    return absl::StrCat(static_cast<int64_t>(value));
  }
  for (const int digits : {9, 12, 15}) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

// As both formats write it, so that a series has one name: "1.0".
std::string BoundText(double bound) {
  const std::string text = NumberText(bound);
  return text.find_first_of(".eI") == std::string::npos ? text + ".0" : text;
}

// Prometheus refuses a whole page for one byte that is no UTF-8.
std::string EscapedLabel(const std::string& value) {
  return absl::StrReplaceAll(AsUtf8(value, kReplacement),
                             {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
}

class TextWriter {
 public:
  TextWriter(bool openmetrics, std::string& out) : openmetrics_(openmetrics), out_(out) {}

  void Write(const MetricSet::Family& family) {
    metric_ = family.metric;
    names_ = LabelNames(*metric_);
    Head();
    for (const auto& [labels, value] : family.values) Line("", labels, "", NumberText(value));
    for (const auto& [labels, counts] : family.histograms) Buckets(labels, counts);
  }

 private:
  void Head() {
    std::string_view name = metric_->name;
    if (openmetrics_ && metric_->kind == MetricKind::kCounter) name.remove_suffix(kTotal.size());
    const std::string help =
        absl::StrReplaceAll(std::string(metric_->help), {{"\\", "\\\\"}, {"\n", "\\n"}});
    absl::StrAppend(&out_, "# HELP ", std::string(name), " ", help, "\n# TYPE ", std::string(name),
                    " ", KindName(metric_->kind), "\n");
    if (openmetrics_ && !metric_->unit.empty()) {
      absl::StrAppend(&out_, "# UNIT ", std::string(name), " ", std::string(metric_->unit), "\n");
    }
  }

  void Line(const char* suffix, const LabelValues& labels, const std::string& bound,
            const std::string& value) {
    absl::StrAppend(&out_, std::string(metric_->name), suffix);
    std::string text;
    for (size_t i = 0; i < labels.size(); ++i) {
      absl::StrAppend(&text, text.empty() ? "" : ",", std::string(names_[i]), "=\"",
                      EscapedLabel(labels[i]), "\"");
    }
    if (!bound.empty()) absl::StrAppend(&text, text.empty() ? "" : ",", "le=\"", bound, "\"");
    if (!text.empty()) absl::StrAppend(&out_, "{", text, "}");
    absl::StrAppend(&out_, " ", value, "\n");
  }

  void Buckets(const LabelValues& labels, const HistogramCounts& histogram) {
    uint64_t below = 0;
    for (size_t i = 0; i < histogram.counts.size(); ++i) {
      below += histogram.counts[i];
      const bool is_last = i == metric_->bounds.size();
      Line("_bucket", labels, is_last ? "+Inf" : BoundText(metric_->bounds[i]),
           absl::StrCat(below));
    }
    Line("_sum", labels, "", NumberText(histogram.sum));
    Line("_count", labels, "", absl::StrCat(below));
  }

  const bool openmetrics_;
  std::string& out_;
  const Metric* metric_ = nullptr;
  std::vector<std::string_view> names_;
};

Json NumberJson(double value) {
  return std::isfinite(value) ? Json(value) : Json(NumberText(value));
}

Json LabelsJson(const Metric& metric, const LabelValues& labels) {
  Json json = Json::object();
  const auto names = LabelNames(metric);
  for (size_t i = 0; i < labels.size(); ++i) json[std::string(names[i])] = labels[i];
  return json;
}

Json FamilyJson(const MetricSet::Family& family) {
  const Metric& metric = *family.metric;
  Json json = {{"name", metric.name},
               {"type", KindName(metric.kind)},
               {"unit", metric.unit},
               {"help", metric.help},
               {"samples", Json::array()}};
  for (const auto& [labels, value] : family.values) {
    json["samples"].push_back(
        {{"labels", LabelsJson(metric, labels)}, {"value", NumberJson(value)}});
  }
  for (const auto& [labels, histogram] : family.histograms) {
    Json buckets = Json::array();
    for (size_t i = 0; i < metric.bounds.size(); ++i) {
      buckets.push_back({{"at_most", metric.bounds[i]}, {"count", histogram.counts[i]}});
    }
    json["samples"].push_back({{"labels", LabelsJson(metric, labels)},
                               {"count", histogram.count()},
                               {"sum", NumberJson(histogram.sum)},
                               {"buckets", std::move(buckets)}});
  }
  return json;
}

// How much of `type` an Accept header's entry wants; negative: it is not that type.
double QualityOf(absl::string_view entry, absl::string_view type) {
  const std::vector<absl::string_view> parts = absl::StrSplit(entry, ';');
  if (!absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(parts[0]), type)) return -1;
  for (size_t i = 1; i < parts.size(); ++i) {
    const absl::string_view part = absl::StripAsciiWhitespace(parts[i]);
    double quality = 0;
    if (absl::StartsWithIgnoreCase(part, "q=")) {
      return absl::SimpleAtod(part.substr(2), &quality) && quality >= 0 ? quality : 0;
    }
  }
  return 1;
}

}  // namespace

std::string Expose(const MetricSet& set, MetricsFormat format) {
  if (format == MetricsFormat::kJson) {
    Json families = Json::array();
    for (const auto& [name, family] : set.families()) families.push_back(FamilyJson(family));
    return Json{{"metrics", std::move(families)}}.dump(2, ' ', false,
                                                       Json::error_handler_t::replace) +
           "\n";
  }
  std::string out;
  TextWriter writer(format == MetricsFormat::kOpenMetrics, out);
  for (const auto& [name, family] : set.families()) writer.Write(family);
  if (format == MetricsFormat::kOpenMetrics) out += "# EOF\n";
  return out;
}

std::string_view ContentTypeOf(MetricsFormat format) {
  switch (format) {
    case MetricsFormat::kPrometheus:
      return "text/plain; version=0.0.4; charset=utf-8";
    case MetricsFormat::kOpenMetrics:
      return "application/openmetrics-text; version=1.0.0; charset=utf-8";
    case MetricsFormat::kJson:
      break;
  }
  return "application/json";
}

std::optional<MetricsFormat> MetricsFormatFromName(std::string_view name) {
  if (name == "prometheus") return MetricsFormat::kPrometheus;
  if (name == "openmetrics") return MetricsFormat::kOpenMetrics;
  if (name == "json") return MetricsFormat::kJson;
  return std::nullopt;
}

MetricsFormat FormatForAccept(std::string_view accept) {
  double open = 0, plain = 0;
  for (const absl::string_view entry :
       absl::StrSplit(absl::string_view(accept.data(), accept.size()), ',')) {
    open = std::max(open, QualityOf(entry, "application/openmetrics-text"));
    plain = std::max(plain, QualityOf(entry, "text/plain"));
  }
  return open > 0 && open >= plain ? MetricsFormat::kOpenMetrics : MetricsFormat::kPrometheus;
}

}  // namespace macrame::agentd
