#include "agentd/tracing/otlp_json.h"

#include <cmath>
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "proto/utf8.h"

namespace macrame::agentd {
namespace {

using OtlpValue = nlohmann::ordered_json;

// Bits of Span.flags beside the trace's own: the next is known, and the parent is another
// program's.
constexpr uint32_t kHasIsRemote = 0x100, kIsRemote = 0x200;
constexpr size_t kWhyBytesMax = 256;

// JSON has no number for these; the mapping writes them as texts.
OtlpValue DoubleOf(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

OtlpValue ValueOf(const SpanAttribute& attribute) {
  return std::visit(
      [](const auto& value) -> OtlpValue {
        using Type = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Type, std::string>) {
          return {{"stringValue", value}};
        } else if constexpr (std::is_same_v<Type, int64_t>) {
          return {{"intValue", absl::StrCat(value)}};
        } else if constexpr (std::is_same_v<Type, double>) {
          return {{"doubleValue", DoubleOf(value)}};
        } else if constexpr (std::is_same_v<Type, bool>) {
          return {{"boolValue", value}};
        } else {
          OtlpValue values = OtlpValue::array();
          for (const std::string& one : value) values.push_back({{"stringValue", one}});
          return {{"arrayValue", {{"values", std::move(values)}}}};
        }
      },
      attribute.value);
}

OtlpValue AttributesOf(const SpanAttributes& attributes) {
  OtlpValue list = OtlpValue::array();
  for (const SpanAttribute& attribute : attributes) {
    list.push_back({{"key", attribute.key}, {"value", ValueOf(attribute)}});
  }
  return list;
}

OtlpValue SpanOf(const Span& span) {
  OtlpValue out;
  out["traceId"] = span.trace_id;
  out["spanId"] = span.span_id;
  if (!span.trace_state.empty()) out["traceState"] = span.trace_state;
  if (!span.parent_id.empty()) out["parentSpanId"] = span.parent_id;
  out["flags"] = span.flags | kHasIsRemote | (span.parent_is_remote ? kIsRemote : 0);
  out["name"] = span.name;
  out["kind"] = static_cast<int>(span.kind);
  out["startTimeUnixNano"] = absl::StrCat(span.begin_unix_ns);
  out["endTimeUnixNano"] = absl::StrCat(span.end_unix_ns);
  out["attributes"] = AttributesOf(span.attributes);
  if (!span.events.empty()) {
    OtlpValue& events = out["events"] = OtlpValue::array();
    for (const SpanEvent& event : span.events) {
      events.push_back({{"timeUnixNano", absl::StrCat(event.unix_ns)},
                        {"name", event.name},
                        {"attributes", AttributesOf(event.attributes)}});
    }
  }
  OtlpValue& status = out["status"] = OtlpValue::object();
  if (span.status != SpanStatus::kUnset) status["code"] = static_cast<int>(span.status);
  if (!span.status_text.empty()) status["message"] = span.status_text;
  return out;
}

}  // namespace

TraceSource TraceSourceOf(const std::string& node_id, const std::string& host_name,
                          const std::string& version) {
  TraceSource source;
  source.resource = {{"service.name", std::string("macrame-agentd")},
                     {"service.version", version},
                     {"service.instance.id", node_id},
                     {"host.name", host_name}};
  source.scope_version = version;
  return source;
}

std::string OtlpJson(const TraceSource& source, const std::vector<Span>& spans) {
  OtlpValue list = OtlpValue::array();
  for (const Span& span : spans) list.push_back(SpanOf(span));
  OtlpValue scope_spans;
  scope_spans["scope"] = {{"name", "macrame"}, {"version", source.scope_version}};
  scope_spans["spans"] = std::move(list);
  OtlpValue resource_spans;
  resource_spans["resource"]["attributes"] = AttributesOf(source.resource);
  resource_spans["scopeSpans"] = OtlpValue::array({std::move(scope_spans)});
  OtlpValue request;
  request["resourceSpans"] = OtlpValue::array({std::move(resource_spans)});
  return request.dump(-1, ' ', false, OtlpValue::error_handler_t::replace);
}

PartialSuccess ReadPartialSuccess(absl::string_view body) {
  PartialSuccess partial;
  const nlohmann::json read =
      nlohmann::json::parse(body.begin(), body.end(), nullptr, /*allow_exceptions=*/false);
  if (!read.is_object() || !read.contains("partialSuccess")) return partial;
  const nlohmann::json& told = read["partialSuccess"];
  if (!told.is_object()) return partial;
  const auto rejected = told.find("rejectedSpans");
  if (rejected != told.end() && rejected->is_number_unsigned()) {
    partial.rejected = rejected->get<uint64_t>();
  } else if (rejected != told.end() && rejected->is_string()) {
    if (!absl::SimpleAtoi(rejected->get<std::string>(), &partial.rejected)) partial.rejected = 0;
  }
  const auto why = told.find("errorMessage");
  if (why != told.end() && why->is_string()) {
    partial.why = CutToBytes(why->get_ref<const std::string&>(), kWhyBytesMax);
  }
  return partial;
}

}  // namespace macrame::agentd
