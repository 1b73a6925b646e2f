#include "cli/format/capacity_view.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/format/table.h"

namespace macrame::cli {
namespace {

std::string ModelsTable(const v1::CapacityReport& report, int width, const Style& style) {
  std::vector<std::vector<Cell>> rows;
  std::string refused;
  const bool offers = report.machines_size() == report.models_size() && report.lines().empty();
  int index = -1;
  for (const v1::CapacityModel& model : report.models()) {
    ++index;
    const std::string first = offers ? report.machines(index) : Printable(model.model());
    const bool cost = model.cost_per_million_tokens() > 0;
    rows.push_back(
        {first, absl::StrCat(model.bits()), GiB(model.weights_bytes()),
         model.fits() ? Cell(model.shape()) : Cell("does not fit", Tone::kBad),
         EstimatedRate(model.prediction().tokens_per_second()),
         model.fits() ? absl::StrCat(EstimatedRate(model.prediction().users_tokens_per_second()),
                                     " (", model.prediction().users(), ")")
                      : "-",
         cost ? absl::StrFormat("%.1f", model.joules_per_token()) : "-",
         cost ? absl::StrFormat("%s%.2f", report.currency(), model.cost_per_million_tokens())
              : "-"});
    if (!model.fits()) {
      absl::StrAppend(&refused, "  ", Printable(model.model()), ": ", model.why_not(), "\n");
    }
  }
  std::string out = RenderTable({{offers ? "MACHINES" : "MODEL", false, 9, 12},
                                 {"BITS", true},
                                 {"WEIGHTS", true},
                                 {"SHAPE", false, 5, 10},
                                 {"TOK/S, ONE", true},
                                 {"TOK/S, AT ONCE", true},
                                 {"J/TOKEN", true, 2},
                                 {"A MILLION", true, 3}},
                                rows, width, style);
  if (!refused.empty()) absl::StrAppend(&out, "\n", refused);
  return out;
}

std::string LinesTable(const v1::CapacityReport& report, int width, const Style& style) {
  std::vector<std::vector<Cell>> rows;
  for (const v1::CapacityLine& line : report.lines()) {
    rows.push_back({line.what(), line.sum(), absl::StrCat("= ", line.result())});
  }
  return RenderTable({{"WHAT"}, {"SUM"}, {"RESULT"}}, rows, width, style);
}

}  // namespace

std::string CapacityView(const v1::CapacityReport& report, int width, const Style& style) {
  std::string out = absl::StrCat(style.Bold(Printable(report.title())), "\n");
  for (const std::string& warning : report.warnings()) {
    absl::StrAppend(&out, style.Warn("mind: "), Printable(warning), "\n");
  }
  if (!report.lines().empty()) {
    absl::StrAppend(&out, "\n");
    for (const std::string& machine : report.machines()) {
      absl::StrAppend(&out, "  ", Printable(machine), "\n");
    }
    absl::StrAppend(&out, "\n", LinesTable(report, width, style));
  }
  if (!report.models().empty()) absl::StrAppend(&out, "\n", ModelsTable(report, width, style));
  if (!report.claims().empty()) absl::StrAppend(&out, "\nWhat others state (not measured here):\n");
  for (const std::string& claim : report.claims()) absl::StrAppend(&out, "  ", claim, "\n");
  return out;
}

std::string TopologyView(const v1::TopologyAdvice& advice, int width, const Style& style) {
  std::string out = absl::StrCat(style.Bold(absl::StrCat("cables: ", advice.graph())), "\n\n");
  std::vector<std::vector<Cell>> rows;
  bool costed = false;
  for (const v1::TopologyCable& cable : advice.cables()) {
    costed = costed || cable.tokens_per_second_without() > 0;
    rows.push_back({cable.a(), cable.a_port(), cable.b(), cable.b_port(),
                    EstimatedRate(cable.tokens_per_second_without())});
  }
  if (!rows.empty()) {
    absl::StrAppend(
        &out, RenderTable({{"FROM"}, {"SOCKET"}, {"TO"}, {"SOCKET"}, {"TOK/S WITHOUT IT", true}},
                          rows, width, style));
  }
  if (costed) {
    absl::StrAppend(&out, "\n", Printable(advice.model()),
                    " with all of them: ", EstimatedRate(advice.tokens_per_second()),
                    " tokens/s foretold\n");
  }
  absl::StrAppend(&out, "\n");
  for (const std::string& note : advice.notes()) absl::StrAppend(&out, "  ", note, "\n");
  return out;
}

}  // namespace macrame::cli
