#include "cli/format/chrome_trace.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macrame::cli {
namespace {

constexpr int kStepsTrack = 1;
constexpr int kCollectivesTrack = 2;

std::string NameOf(const v1::TraceSpan& span) {
  switch (span.part()) {
    case v1::TRACE_PART_EMBED:
      return "embed";
    case v1::TRACE_PART_LAYER:
      return absl::StrCat("layer ", span.number());
    case v1::TRACE_PART_LOGITS:
      return "logits";
    case v1::TRACE_PART_EVALUATE:
      return "evaluate";
    case v1::TRACE_PART_SAMPLING:
      return "sampling";
    case v1::TRACE_PART_COLLECTIVE:
      return "collective";
    case v1::TRACE_PART_STEP:
      return span.prefill_tokens() > 0 ? "prefill step" : "decode step";
    case v1::TRACE_PART_REQUEST_QUEUED:
      return "queued";
    case v1::TRACE_PART_REQUEST_PREFILL:
      return "prefill";
    case v1::TRACE_PART_REQUEST_DECODE:
      return "decode";
    default:  // of a newer rank
      return absl::StrCat("part ", span.part());
  }
}

bool IsOfRequest(const v1::TraceSpan& span) {
  return span.part() >= v1::TRACE_PART_REQUEST_QUEUED &&
         span.part() <= v1::TRACE_PART_REQUEST_DECODE;
}

Json NameEvent(const char* what, uint32_t pid, int tid, const std::string& name) {
  return {{"ph", "M"},  {"name", what}, {"pid", pid},
          {"tid", tid}, {"ts", 0},      {"args", {{"name", name}}}};
}

void AddRank(const v1::RankTrace& rank, uint64_t begun_us, const std::string& node, Json& events) {
  const uint32_t pid = rank.rank();
  events.push_back(
      NameEvent("process_name", pid, 0, absl::StrCat("rank ", rank.rank(), " (", node, ")")));
  events.push_back(NameEvent("thread_name", pid, kStepsTrack, "steps"));
  events.push_back(NameEvent("thread_name", pid, kCollectivesTrack, "collectives"));
  const auto offset = static_cast<double>(rank.begun_unix_us() - begun_us);
  for (const v1::TraceSpan& span : rank.spans()) {
    const double ts = offset + static_cast<double>(span.begin_ns()) / 1000;
    const double dur = static_cast<double>(span.duration_ns()) / 1000;
    Json event = {{"name", NameOf(span)}, {"pid", pid}};
    if (IsOfRequest(span)) {
      event["cat"] = "request";
      event["id"] = absl::StrCat("request ", span.number());
      event["tid"] = kStepsTrack;
      event["ph"] = "b";
      event["ts"] = ts;
      events.push_back(event);
      event["ph"] = "e";
      event["ts"] = ts + dur;
      events.push_back(std::move(event));
      continue;
    }
    event["cat"] = span.part() == v1::TRACE_PART_STEP ? "step" : "part";
    event["tid"] = span.part() == v1::TRACE_PART_COLLECTIVE ? kCollectivesTrack : kStepsTrack;
    event["ph"] = "X";
    event["ts"] = ts;
    event["dur"] = dur;
    if (span.part() == v1::TRACE_PART_STEP) {
      event["args"] = {{"step", span.number()},
                       {"prefill_tokens", span.prefill_tokens()},
                       {"decode_tokens", span.decode_tokens()}};
    }
    events.push_back(std::move(event));
  }
}

}  // namespace

Json ChromeTrace(const v1::TraceModelResponse& trace,
                 const std::function<std::string(const std::string&)>& name_of) {
  Json document;
  document["displayTimeUnit"] = "ms";
  Json& other = document["otherData"];
  other["deployment"] = trace.deployment();
  other["epoch"] = trace.epoch();
  uint64_t begun_us = UINT64_MAX, dropped = 0;
  for (const v1::RankTrace& rank : trace.ranks()) {
    begun_us = std::min<uint64_t>(begun_us, rank.begun_unix_us());
    dropped += rank.dropped();
  }
  other["dropped_spans"] = dropped;
  Json events = Json::array();
  for (const v1::RankTrace& rank : trace.ranks()) {
    AddRank(rank, begun_us, name_of(rank.node_id()), events);
  }
  document["traceEvents"] = std::move(events);
  return document;
}

}  // namespace macrame::cli
