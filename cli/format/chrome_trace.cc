#include "cli/format/chrome_trace.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace macrame::cli {
namespace {

// TraceSpan.part, as runtime/watch/trace_ring.h numbers them.
enum Part : uint32_t {
  kEmbed = 1,
  kLayer = 2,
  kLogits = 3,
  kEvaluate = 4,
  kSampling = 5,
  kCollective = 6,
  kStep = 16,
  kRequestQueued = 17,
  kRequestPrefill = 18,
  kRequestDecode = 19,
};

constexpr int kStepsTrack = 1;
constexpr int kCollectivesTrack = 2;

std::string NameOf(const v1::TraceSpan& span) {
  switch (span.part()) {
    case kEmbed:
      return "embed";
    case kLayer:
      return absl::StrCat("layer ", span.number());
    case kLogits:
      return "logits";
    case kEvaluate:
      return "evaluate";
    case kSampling:
      return "sampling";
    case kCollective:
      return "collective";
    case kStep:
      return span.prefill_tokens() > 0 ? "prefill step" : "decode step";
    case kRequestQueued:
      return "queued";
    case kRequestPrefill:
      return "prefill";
    case kRequestDecode:
      return "decode";
    default:  // of a newer rank
      return absl::StrCat("part ", span.part());
  }
}

bool IsOfRequest(const v1::TraceSpan& span) {
  return span.part() >= kRequestQueued && span.part() <= kRequestDecode;
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
    event["cat"] = span.part() == kStep ? "step" : "part";
    event["tid"] = span.part() == kCollective ? kCollectivesTrack : kStepsTrack;
    event["ph"] = "X";
    event["ts"] = ts;
    event["dur"] = dur;
    if (span.part() == kStep) {
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
