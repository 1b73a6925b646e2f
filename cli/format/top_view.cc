#include "cli/format/top_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/format/cluster_view.h"
#include "cli/format/model_view.h"
#include "cli/format/power_text.h"

namespace macrame::cli {
namespace {

constexpr int kNodeNameWidth = 16;
constexpr int kFiguresWidth = 44;
constexpr int kBarMin = 10;
constexpr int kBarMax = 60;

std::string NodeLine(const v1::ClusterStatus& status, const v1::NodeStatus& node, int width,
                     const Style& style) {
  const v1::NodeLoad& load = node.load();
  const std::string name = CutToWidth(NodeName(status, node.identity().node_id()), kNodeNameWidth);
  const std::string padded =
      name +
      std::string(static_cast<size_t>(std::max(0, kNodeNameWidth - DisplayWidth(name))), ' ');
  const double total = static_cast<double>(node.inventory().memory_total_bytes());
  if (node.state() != v1::NODE_STATE_ALIVE || total <= 0) {
    return absl::StrCat(style.Bold(padded), "  ", style.Bad(NodeStateWord(node)), "\n");
  }
  const double used =
      std::clamp(1 - static_cast<double>(load.memory_available_bytes()) / total, 0.0, 1.0);
  const int bar = std::clamp(width - kNodeNameWidth - kFiguresWidth, kBarMin, kBarMax);
  const std::string drawn = Bar(used, bar);
  const bool is_tight = load.memory_pressure() == v1::MEMORY_PRESSURE_CRITICAL;
  const std::string state =
      node.has_cordon() || node.draining() ? " " + style.Warn(NodeStateWord(node)) : "";
  const bool has_power = PowerText(load) != "-", has_temperature = TemperatureText(load) != "-";
  const std::string power = has_power ? absl::StrCat("  ", PowerText(load)) : "";
  const std::string temperature = has_temperature ? absl::StrCat("  ", TemperatureText(load)) : "";
  return absl::StrCat(
      style.Bold(padded), " ", is_tight ? style.Bad(drawn) : style.Good(drawn),
      absl::StrFormat(" %4s of %-9s cpu %4s %7s tok/s", Percent(used),
                      GiB(node.inventory().memory_total_bytes()), Percent(load.cpu_busy_ratio()),
                      Rate(load.tokens_per_second())),
      power, temperature, state, "\n");
}

}  // namespace

std::string TopView(const v1::ClusterStatus& status, int width, const Style& style) {
  const v1::AggregateLoad& load = status.aggregate_load();
  std::string out =
      absl::StrCat(style.Bold(status.cluster_name().empty() ? "(no cluster yet)"
                                                            : Printable(status.cluster_name())),
                   "  ", Plural(static_cast<uint64_t>(status.nodes_size()), "node"), ", ",
                   Rate(load.tokens_per_second()), " tokens/s, ", load.requests_running(),
                   " running, ", load.requests_queued(), " queued", style.Dim("   q quits"), "\n");
  out += HealthLine(status, style);
  out += "\n";
  for (const v1::NodeStatus& node : status.nodes()) out += NodeLine(status, node, width, style);
  absl::StrAppend(&out, "\n", LoadedView(status, width, style), ProblemsView(status, style));
  return out;
}

}  // namespace macrame::cli
