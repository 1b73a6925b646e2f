#include "cli/format/bench_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/format/model_view.h"
#include "cli/format/table.h"

namespace macrame::cli {
namespace {

std::string Ms(double ms) {
  if (ms <= 0) return "-";
  if (ms < 10) return absl::StrFormat("%.2f ms", ms);
  return Milliseconds(ms);
}

const v1::NodeStatus* NodeOf(const BenchReport& report, const std::string& id) {
  for (const v1::NodeStatus& node : report.nodes) {
    if (node.identity().node_id() == id) return &node;
  }
  return nullptr;
}

std::string MachineText(const BenchReport& report, const v1::Assignment& assignment) {
  std::string text = absl::StrCat("rank ", assignment.rank(), ": ");
  const v1::NodeStatus* node = NodeOf(report, assignment.node_id());
  if (node == nullptr) return absl::StrCat(text, Printable(assignment.node_id().substr(0, 8)));
  const v1::Inventory& inventory = node->inventory();
  absl::StrAppend(&text, Printable(node->identity().hostname()), ", ", Printable(inventory.chip()),
                  ", ", GiB(inventory.memory_total_bytes()), ", ", Printable(inventory.os_name()),
                  " ", Printable(inventory.os_version()));
  return text;
}

}  // namespace

std::string BenchView(const BenchReport& report, int width, const Style& style) {
  const v1::Plan& plan = report.deployment.plan();
  std::string text =
      absl::StrCat(style.Bold(Printable(report.model)), ": ", ShapeText(plan), "; clusterctl ",
                   report.client_version, ", agentd ", Printable(report.agent.version()),
                   report.agent.mlx_version().empty()
                       ? ""
                       : absl::StrCat(", MLX ", Printable(report.agent.mlx_version())),
                   "\n");
  for (const v1::Assignment& assignment : plan.assignments()) {
    absl::StrAppend(&text, "  ", MachineText(report, assignment), "\n");
  }
  const std::vector<Column> columns = {{"users", true},    {"prompt", true},  {"answer", true},
                                       {"TTFT p50", true}, {"p95", true},     {"max", true, 3},
                                       {"TPOT p50", true}, {"p95", true},     {"prefill/s", true},
                                       {"decode/s", true}, {"total/s", true}, {"cached", true, 4},
                                       {"errors", true}};
  std::vector<std::vector<Cell>> rows;
  for (const BenchRow& row : report.rows) {
    rows.push_back({absl::StrCat(row.asked.users), absl::StrFormat("%.0f", row.prompt_tokens),
                    absl::StrFormat("%.0f", row.answer_tokens), Ms(row.ttft_p50_ms),
                    Ms(row.ttft_p95_ms), Ms(row.ttft_max_ms), Ms(row.tpot_p50_ms),
                    Ms(row.tpot_p95_ms), EstimatedRate(row.prefill_rate),
                    EstimatedRate(row.decode_rate), EstimatedRate(row.total_rate),
                    absl::StrCat(row.cached_tokens),
                    Cell(absl::StrCat(row.errors, " of ", row.requests),
                         row.errors > 0 ? Tone::kBad : Tone::kPlain)});
  }
  absl::StrAppend(&text, RenderTable(columns, rows, width, style));
  for (const BenchRow& row : report.rows) {
    if (row.errors == 0) continue;
    absl::StrAppend(&text, style.Bad("error"), " with ", Plural(row.asked.users, "user"), ": ",
                    Printable(row.first_error), "\n");
  }
  return text;
}

Json BenchDocument(const BenchReport& report) {
  Json document = Document("BenchReport");
  const v1::Plan& plan = report.deployment.plan();
  document["model"] = report.model;
  document["client_version"] = report.client_version;
  document["agent_version"] = report.agent.version();
  document["mlx_version"] = report.agent.mlx_version();
  document["epoch"] = report.deployment.epoch();
  document["backend"] = plan.backend();
  document["world_size"] = plan.world_size();
  document["tp"] = plan.tp();
  document["pp"] = plan.pp();
  document["ranks"] = Json::array();
  for (const v1::Assignment& assignment : plan.assignments()) {
    Json rank;
    rank["rank"] = assignment.rank();
    rank["node_id"] = assignment.node_id();
    const v1::NodeStatus* node = NodeOf(report, assignment.node_id());
    rank["hostname"] = node == nullptr ? "" : node->identity().hostname();
    rank["chip"] = node == nullptr ? "" : node->inventory().chip();
    rank["memory_total_bytes"] = node == nullptr ? 0 : node->inventory().memory_total_bytes();
    rank["os"] = node == nullptr ? ""
                                 : absl::StrCat(node->inventory().os_name(), " ",
                                                node->inventory().os_version());
    document["ranks"].push_back(std::move(rank));
  }
  document["requests_per_user"] = report.requests_per_user;
  document["shared_prefix_tokens"] = report.shared_prefix_tokens;
  document["cases"] = Json::array();
  for (const BenchRow& row : report.rows) {
    document["cases"].push_back(
        {{"users", row.asked.users},
         {"prompt_tokens_asked", row.asked.prompt_tokens},
         {"answer_tokens_asked", row.asked.answer_tokens},
         {"prompt_tokens", row.prompt_tokens},
         {"answer_tokens", row.answer_tokens},
         {"requests", row.requests},
         {"errors", row.errors},
         {"first_error", row.first_error},
         {"cached_tokens", row.cached_tokens},
         {"ttft_ms",
          {{"p50", row.ttft_p50_ms}, {"p95", row.ttft_p95_ms}, {"max", row.ttft_max_ms}}},
         {"tpot_ms", {{"p50", row.tpot_p50_ms}, {"p95", row.tpot_p95_ms}}},
         {"tokens_per_second",
          {{"prefill", row.prefill_rate}, {"decode", row.decode_rate}, {"total", row.total_rate}}},
         {"seconds", row.seconds}});
  }
  return document;
}

}  // namespace macrame::cli
