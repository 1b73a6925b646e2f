#pragma once

// Spans as an OTLP/HTTP request in JSON (ExportTraceServiceRequest in the JSON mapping of
// https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: ids as hex digits, 64-bit
// integers as decimal texts, enums as numbers, names in lowerCamelCase), and what a collector
// answers. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/tracing/span.h"

namespace macrame::agentd {

// Who tells: service.name, service.instance.id, host.name and the like.
struct TraceSource {
  SpanAttributes resource;
  std::string scope_version;  // of the scope "macrame"
};
TraceSource TraceSourceOf(const std::string& node_id, const std::string& host_name,
                          const std::string& version);

// Bytes that are no UTF-8 are replaced.
std::string OtlpJson(const TraceSource& source, const std::vector<Span>& spans);

// Of an answer with status 200: how many spans the collector did not take (partialSuccess), and
// why.
struct PartialSuccess {
  uint64_t rejected = 0;
  std::string why;
};
PartialSuccess ReadPartialSuccess(absl::string_view body);

}  // namespace macrame::agentd
