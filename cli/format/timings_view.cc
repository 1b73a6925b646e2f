#include "cli/format/timings_view.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/format/cluster_view.h"
#include "cli/format/model_view.h"
#include "cli/format/power_text.h"
#include "cli/format/table.h"
#include "proto/log_histogram.h"

namespace macrame::cli {
namespace {

struct Timing {
  const char* name;   // in JSON
  const char* title;  // for people
  bool is_time;
  const v1::LogHistogram& (*of)(const v1::RankTimings&);
};

const Timing kTimings[] = {
    {"queue_us", "request in the queue", true,
     [](const v1::RankTimings& t) -> const v1::LogHistogram& { return t.queue_us(); }},
    {"first_token_us", "request to first token", true,
     [](const v1::RankTimings& t) -> const v1::LogHistogram& { return t.first_token_us(); }},
    {"prefill_step_us", "step with prompts", true,
     [](const v1::RankTimings& t) -> const v1::LogHistogram& { return t.prefill_step_us(); }},
    {"prefill_tokens", "  prompt tokens in it", false,
     [](const v1::RankTimings& t) -> const v1::LogHistogram& { return t.prefill_tokens(); }},
    {"decode_step_us", "step of answers alone", true,
     [](const v1::RankTimings& t) -> const v1::LogHistogram& { return t.decode_step_us(); }},
    {"decode_tokens", "  answers in a step", false,
     [](const v1::RankTimings& t) -> const v1::LogHistogram& { return t.decode_tokens(); }},
    {"sampling_us", "sampling after a step", true,
     [](const v1::RankTimings& t) -> const v1::LogHistogram& { return t.sampling_us(); }},
    {"collective_us", "waited in collectives", true,
     [](const v1::RankTimings& t) -> const v1::LogHistogram& { return t.collective_us(); }},
};
constexpr size_t kCollective = std::size(kTimings) - 1;

std::string Micros(double us) {
  if (us < 1000) return absl::StrFormat("%.0f us", us);
  if (us < 10'000) return absl::StrFormat("%.1f ms", us / 1000);
  return Milliseconds(us / 1000);
}

std::vector<Cell> RowOf(const std::string& title, const LogHistogram& values, bool is_time) {
  const auto shown = [&](double value) {
    return is_time ? Micros(value) : absl::StrFormat("%.0f", value);
  };
  return {title,
          shown(values.Quantile(0.5)),
          shown(values.Quantile(0.95)),
          shown(values.max()),
          shown(values.mean()),
          absl::StrCat(values.count())};
}

Json QuantilesOf(const LogHistogram& values) {
  return {{"count", values.count()},      {"mean", values.mean()},
          {"p50", values.Quantile(0.5)},  {"p95", values.Quantile(0.95)},
          {"p99", values.Quantile(0.99)}, {"max", values.max()}};
}

// Of the entry rank; nothing where no answer ever was preempted.
std::string PreemptionLine(const v1::DeploymentStatus& deployment) {
  for (const v1::RankStatus& rank : deployment.ranks()) {
    if (rank.epoch() != deployment.epoch() || rank.preemptions_total() == 0) continue;
    const uint64_t times = rank.preemptions_total();
    return absl::StrCat("answers preempted for KV memory: ", times,
                        times == 1 ? " time, " : " times, ", rank.recomputed_tokens_total(),
                        " tokens computed again\n");
  }
  return "";
}

std::string RightOf(uint64_t accepted, uint64_t drafted) {
  if (drafted == 0) return "none";
  return absl::StrFormat("%d of %d right (%.0f %%)", accepted, drafted,
                         100.0 * static_cast<double>(accepted) / static_cast<double>(drafted));
}

// What the entry rank drafted ahead, by source; nothing where it drafts nothing.
std::string DraftsLine(const v1::RankStatus& rank) {
  const v1::DraftModelStatus& model = rank.draft_model();
  if (rank.draft_tokens_total() == 0 && !rank.has_draft_model()) return "";
  const auto rest = [](uint64_t all, uint64_t part) { return all - std::min(all, part); };
  const uint64_t drafted = rest(rank.draft_tokens_total(), model.draft_tokens_total());
  const uint64_t accepted = rest(rank.accepted_tokens_total(), model.accepted_tokens_total());
  std::string line = absl::StrCat("  drafts looked up: ", RightOf(accepted, drafted));
  if (rank.has_draft_model()) {
    absl::StrAppend(&line, "; draft model ", Printable(model.name()), ": ",
                    RightOf(model.accepted_tokens_total(), model.draft_tokens_total()));
  }
  if (!model.off_reason().empty()) {
    absl::StrAppend(&line, "; off: ", Printable(model.off_reason()));
  }
  return line + "\n";
}

}  // namespace

std::string TimingsView(const v1::ClusterStatus& status, const v1::DeploymentStatus& deployment,
                        int width, const Style& style) {
  std::string text =
      absl::StrCat(style.Bold(Printable(deployment.deployment().name())), "  ",
                   DeploymentWord(deployment.state()), "  ", ShapeText(deployment.plan()), "\n");
  std::vector<std::vector<Cell>> rows;
  std::string drafts;
  for (const v1::RankStatus& rank : deployment.ranks()) {
    if (!rank.has_timings() || rank.epoch() != deployment.epoch()) continue;
    if (rank.rank() == 0) drafts = DraftsLine(rank);
    for (size_t i = 0; i < std::size(kTimings); ++i) {
      const LogHistogram values = LogHistogram::Of(kTimings[i].of(rank.timings()));
      // Of the other ranks, only what differs from rank to rank.
      const bool is_wanted = i == kCollective || rank.rank() == 0;
      if (values.count() == 0 || !is_wanted) continue;
      std::string title = kTimings[i].title;
      if (i == kCollective) {
        absl::StrAppend(&title, ", rank ", rank.rank(), " (", NodeName(status, rank.node_id()),
                        ")");
      }
      rows.push_back(RowOf(title, values, kTimings[i].is_time));
    }
  }
  if (rows.empty()) return absl::StrCat(text, "  no steps yet\n");
  const std::string energy = EnergyLines(deployment);
  const std::vector<Column> columns = {{"since it was launched"},
                                       {"p50", true},
                                       {"p95", true},
                                       {"max", true},
                                       {"mean", true},
                                       {"count", true}};
  return absl::StrCat(text, RenderTable(columns, rows, width, style), drafts,
                      PreemptionLine(deployment), energy);
}

Json TimingsJson(const v1::DeploymentStatus& deployment) {
  Json document;
  document["deployment"] = deployment.deployment().name();
  document["epoch"] = deployment.epoch();
  document["energy"] = EnergyJson(deployment);
  document["ranks"] = Json::array();
  for (const v1::RankStatus& rank : deployment.ranks()) {
    if (!rank.has_timings() || rank.epoch() != deployment.epoch()) continue;
    Json one;
    one["rank"] = rank.rank();
    one["node_id"] = rank.node_id();
    one["preemptions_total"] = rank.preemptions_total();
    one["recomputed_tokens_total"] = rank.recomputed_tokens_total();
    for (const Timing& timing : kTimings) {
      one[timing.name] = QuantilesOf(LogHistogram::Of(timing.of(rank.timings())));
    }
    if (rank.rank() == 0) {
      const v1::DraftModelStatus& model = rank.draft_model();
      one["drafts"] = {{"draft_tokens", rank.draft_tokens_total()},
                       {"accepted_tokens", rank.accepted_tokens_total()},
                       {"draft_model", model.name()},
                       {"model_draft_tokens", model.draft_tokens_total()},
                       {"model_accepted_tokens", model.accepted_tokens_total()},
                       {"model_off_reason", model.off_reason()}};
    }
    document["ranks"].push_back(std::move(one));
  }
  return document;
}

}  // namespace macrame::cli
