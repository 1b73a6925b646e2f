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
  const bool offers = report.recommends();
  int index = -1;
  for (const v1::CapacityModel& model : report.models()) {
    ++index;
    // Of a planner that is of another version there may be fewer.
    const bool has_machines = offers && index < report.machines_size();
    const std::string first = has_machines ? report.machines(index) : model.model();
    const bool cost = model.joules_per_token() > 0;
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
      absl::StrAppend(&refused, "  ", Printable(model.model()), ": ", Printable(model.why_not()),
                      "\n");
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

// Columns that say nothing of any cable are left out.
std::string CablesTable(const google::protobuf::RepeatedPtrField<v1::TopologyCable>& cables,
                        int width, const Style& style) {
  bool costed = false, there = false;
  for (const v1::TopologyCable& cable : cables) {
    costed = costed || cable.tokens_per_second_without() > 0;
    there = there || !cable.state().empty();
  }
  std::vector<Column> columns = {{"FROM"}, {"SOCKET"}, {"TO"}, {"SOCKET"}};
  if (costed) columns.push_back({"TOK/S WITHOUT IT", true});
  if (there) columns.push_back({"STATE"});
  std::vector<std::vector<Cell>> rows;
  for (const v1::TopologyCable& cable : cables) {
    std::vector<Cell> row = {cable.a(), cable.a_port(), cable.b(), cable.b_port()};
    if (costed) row.push_back(EstimatedRate(cable.tokens_per_second_without()));
    if (there) {
      row.push_back(Cell(cable.state(), cable.state() == "missing" ? Tone::kBad : Tone::kGood));
    }
    rows.push_back(std::move(row));
  }
  std::string out = rows.empty() ? "" : RenderTable(columns, rows, width, style);
  for (const v1::TopologyCable& cable : cables) {
    if (cable.note().empty()) continue;
    absl::StrAppend(&out, "  ", Printable(cable.a()), " - ", Printable(cable.b()), ": ",
                    style.Warn(Printable(cable.note())), "\n");
  }
  return out;
}

// What the ways are for; without a model, which says which one is faster, the cables of each.
std::string OptionsText(const v1::TopologyAdvice& advice, int width, const Style& style) {
  std::string out = advice.model().empty() ? "Two ways; --model says which is faster for a model:\n"
                                           : "The ways there are:\n";
  for (const v1::TopologyOption& option : advice.options()) {
    absl::StrAppend(&out, "  ", Printable(option.graph()), ": ");
    if (option.tokens_per_second() > 0) {
      absl::StrAppend(&out, EstimatedRate(option.tokens_per_second()), " tokens/s; ");
    } else if (!advice.model().empty()) {
      absl::StrAppend(&out, Printable(advice.model()), " does not fit; ");
    }
    if (option.replicas() > 1) absl::StrAppend(&out, option.replicas(), " replicas side by side; ");
    absl::StrAppend(&out, Printable(option.suits()), "\n");
  }
  if (!advice.model().empty()) return out;
  for (int i = 1; i < advice.options_size(); ++i) {
    absl::StrAppend(&out, "\n",
                    style.Bold(absl::StrCat("cables: ", Printable(advice.options(i).graph()))),
                    "\n\n", CablesTable(advice.options(i).cables(), width, style));
  }
  return out;
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
  const bool stated = !report.published().empty() || !report.claims().empty();
  const std::string by = report.published_by().empty() ? "others" : report.published_by();
  if (stated) {
    absl::StrAppend(&out, "\nWhat ", Printable(by),
                    " stated (not measured here), and what we find:\n");
  }
  std::vector<std::vector<Cell>> rows;
  for (const v1::PublishedFigure& figure : report.published()) {
    rows.push_back({figure.what(), figure.published(), figure.ours()});
  }
  if (!rows.empty()) {
    absl::StrAppend(&out, RenderTable({{"WHAT"}, {"STATED"}, {"OURS"}}, rows, width, style));
  }
  for (const std::string& claim : report.claims()) {
    absl::StrAppend(&out, "  ", Printable(claim), "\n");
  }
  return out;
}

std::string TopologyView(const v1::TopologyAdvice& advice, int width, const Style& style) {
  std::string out =
      absl::StrCat(style.Bold(absl::StrCat("cables: ", Printable(advice.graph()))), "\n\n");
  const bool cabled = !advice.cables().empty();
  absl::StrAppend(&out, CablesTable(advice.cables(), width, style));
  if (advice.tokens_per_second() > 0) {
    absl::StrAppend(&out, cabled ? "\n" : "", Printable(advice.model()),
                    cabled ? " with all of them: " : " over the LAN: ",
                    EstimatedRate(advice.tokens_per_second()), " tokens/s predicted\n");
  }
  if (cabled && advice.tokens_per_second_now() > 0) {
    absl::StrAppend(&out, "with the cables that are there: ",
                    EstimatedRate(advice.tokens_per_second_now()), " tokens/s\n");
  }
  if (!advice.spare().empty()) {
    absl::StrAppend(&out, "\nThere and not needed:\n", CablesTable(advice.spare(), width, style));
  }
  if (!advice.options().empty()) absl::StrAppend(&out, "\n", OptionsText(advice, width, style));
  absl::StrAppend(&out, "\n");
  for (const std::string& note : advice.notes()) {
    absl::StrAppend(&out, "  ", Printable(note), "\n");
  }
  return out;
}

}  // namespace macrame::cli
