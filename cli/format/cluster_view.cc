#include "cli/format/cluster_view.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/format/model_view.h"
#include "cli/format/power_text.h"
#include "cli/format/reason_text.h"
#include "cli/format/table.h"

namespace macrame::cli {
namespace {

constexpr size_t kShortId = 8;
constexpr int kBarWidth = 12;

Cell StateCell(const v1::NodeStatus& node) {
  if (node.draining() && node.state() == v1::NODE_STATE_ALIVE) return {"draining", Tone::kWarn};
  if (node.has_cordon() && node.state() == v1::NODE_STATE_ALIVE) {
    const bool is_moving = node.cordon().drain() && node.ranks_running() > 0;
    return {is_moving ? "draining" : node.cordon().drain() ? "drained" : "cordoned", Tone::kWarn};
  }
  switch (node.state()) {
    case v1::NODE_STATE_ALIVE:
      return {"alive", Tone::kGood};
    case v1::NODE_STATE_SUSPECT:
      return {"suspect", Tone::kWarn};
    case v1::NODE_STATE_DEAD:
      return {"dead", Tone::kBad};
    case v1::NODE_STATE_LEFT:
      return {"left", Tone::kDim};
    default:
      return {"unknown", Tone::kWarn};
  }
}

// "?" where neither is told.
std::string NameFor(const std::string& hostname, const std::string& node_id) {
  if (!hostname.empty()) return hostname;
  return node_id.empty() ? "?" : node_id.substr(0, kShortId);
}

std::string Name(const v1::NodeIdentity& identity) {
  return NameFor(identity.hostname(), identity.node_id());
}

// The address that another machine would take: no loopback if there is any other.
std::string Address(const v1::NodeIdentity& identity) {
  for (const auto& address : identity.addresses()) {
    if (address.interface_kind() != v1::INTERFACE_KIND_LOOPBACK) return address.ip();
  }
  return identity.addresses().empty() ? "-" : identity.addresses(0).ip();
}

std::string MemoryText(const v1::NodeStatus& node) {
  const uint64_t total = node.inventory().memory_total_bytes();
  if (total == 0) return "-";
  if (!IsUp(node)) return GiB(total);
  const std::string free = GiB(node.load().memory_available_bytes());
  const std::string whole = GiB(total);
  // "12.3 of 64.0 GiB" when both have the same unit.
  const size_t unit = free.rfind(' ');
  const bool same = unit != std::string::npos && whole.size() > free.size() - unit &&
                    whole.substr(whole.size() - (free.size() - unit)) == free.substr(unit);
  return absl::StrCat(same ? free.substr(0, unit) : free, " of ", whole);
}

double MemoryUsedRatio(const v1::NodeStatus& node) {
  const double total = static_cast<double>(node.inventory().memory_total_bytes());
  const double free = static_cast<double>(node.load().memory_available_bytes());
  return total > 0 ? std::clamp(1 - free / total, 0.0, 1.0) : 0;
}

Cell MemoryUseCell(const v1::NodeStatus& node) {
  if (!IsUp(node) || node.inventory().memory_total_bytes() == 0) return {"-"};
  const double used = MemoryUsedRatio(node);
  const v1::MemoryPressure pressure = node.load().memory_pressure();
  const Tone tone = pressure == v1::MEMORY_PRESSURE_CRITICAL  ? Tone::kBad
                    : pressure == v1::MEMORY_PRESSURE_WARNING ? Tone::kWarn
                                                              : Tone::kPlain;
  return {absl::StrCat(Bar(used, kBarWidth), " ", Percent(used)), tone};
}

std::string GpuText(const v1::Inventory& inventory) {
  if (inventory.gpu_cores() > 0) return Plural(inventory.gpu_cores(), "core");
  return inventory.gpu_name().empty() ? "none" : inventory.gpu_name();
}

std::string SystemText(const v1::Inventory& inventory) {
  if (inventory.os_name().empty()) return "-";
  return absl::StrCat(inventory.os_name(), " ", inventory.os_version());
}

// "120 ms ago", "42.0 s ago", "45 min ago", "26 h ago", "12 d ago".
std::string Ago(uint64_t ms) {
  constexpr uint64_t kMinute = 60'000, kHour = 60 * kMinute, kDay = 24 * kHour;
  if (ms < 2 * kMinute) return absl::StrCat(Milliseconds(static_cast<double>(ms)), " ago");
  if (ms < 2 * kHour) return absl::StrCat(ms / kMinute, " min ago");
  if (ms < 2 * kDay) return absl::StrCat(ms / kHour, " h ago");
  return ms < 1000 * kDay ? absl::StrCat(ms / kDay, " d ago") : "long ago";
}

std::string Seen(const v1::NodeStatus& node) {
  if (node.is_self()) return "here";
  return node.state() == v1::NODE_STATE_LEFT ? "-" : Ago(node.last_heartbeat_age_ms());
}

// Beside the name: "*" leads, "(here)" answers.
std::string MarkedName(const v1::NodeStatus& node) {
  return absl::StrCat(Name(node.identity()), node.is_coordinator() ? " *" : "");
}

std::string UnknownNodesText(const v1::ClusterStatus& status) {
  if (status.unknown_nodes().empty()) return "";
  std::string out = "\nSeen on this network, not members:\n";
  for (const v1::UnknownNode& unknown_node : status.unknown_nodes()) {
    const std::string name = NameFor(unknown_node.hostname(), unknown_node.node_id());
    const std::string& address = unknown_node.address();
    absl::StrAppend(&out, "  ", Printable(name), " (",
                    address.empty() ? "address not known" : Printable(address), ", ",
                    unknown_node.cluster_name().empty()
                        ? std::string("no cluster")
                        : absl::StrCat("cluster '", Printable(unknown_node.cluster_name()), "'"),
                    "): ", ReasonSentence(unknown_node.reason()), "\n");
  }
  return out;
}

std::string Heading(const v1::ClusterStatus& status, const Style& style) {
  const std::string name =
      status.cluster_name().empty() ? "(no cluster yet)" : Printable(status.cluster_name());
  std::string out = absl::StrCat("Cluster ", style.Bold(name), ", ");
  if (status.coordinator().term() == 0) {
    absl::StrAppend(&out, style.Warn("no coordinator"));
  } else {
    absl::StrAppend(&out, "coordinator ", NodeName(status, status.coordinator().coordinator_id()),
                    " (term ", status.coordinator().term(), ")");
  }
  if (status.insecure()) absl::StrAppend(&out, ", ", style.Bad("INSECURE: --insecure-dev"));
  return out + "\n";
}

std::string HealthText(const v1::ClusterStatus& status, const Style& style) {
  const int listed = status.problems_size();
  if (status.healthy()) {
    const std::string notes =
        listed == 0 ? "" : absl::StrCat("; ", Plural(listed, "note"), " below");
    return style.Good(kAllHealthyLine) + notes + "\n";
  }
  const auto alive = std::count_if(
      status.nodes().begin(), status.nodes().end(),
      [](const v1::NodeStatus& node) { return node.state() == v1::NODE_STATE_ALIVE; });
  const auto ready = std::count_if(status.deployments().begin(), status.deployments().end(),
                                   [](const v1::DeploymentStatus& deployment) {
                                     return deployment.state() == v1::DEPLOYMENT_STATE_READY;
                                   });
  std::string out =
      absl::StrCat("Not healthy: ", alive, " of ", Plural(status.nodes_size(), "node"), " alive");
  if (status.deployments_size() > 0) {
    absl::StrAppend(&out, ", ", ready, " of ", Plural(status.deployments_size(), "model"),
                    " ready");
  }
  if (listed > 0) absl::StrAppend(&out, "; ", Plural(listed, "problem"), " below");
  return style.Bad(out) + "\n";
}

// What stands above already, beside the model, with when it is tried again.
bool IsFailureOfModel(const v1::ClusterStatus& status, const v1::Reason& problem) {
  return std::any_of(status.deployments().begin(), status.deployments().end(),
                     [&](const v1::DeploymentStatus& deployment) {
                       return deployment.state() != v1::DEPLOYMENT_STATE_READY &&
                              !deployment.failure().code().empty() &&
                              deployment.failure().code() == problem.code() &&
                              absl::EndsWith(problem.message(), deployment.failure().message());
                     });
}

// `beside_models`: the models stand above with their failures, which are not told twice.
std::string ProblemsText(const v1::ClusterStatus& status, const Style& style,
                         bool beside_models = false) {
  std::string out;
  for (const v1::Reason& problem : status.problems()) {
    if (beside_models && IsFailureOfModel(status, problem)) continue;
    if (out.empty()) {
      out = absl::StrCat("\n", style.Bold(status.healthy() ? "Notes" : "Problems"), "\n");
    }
    const std::string where =
        problem.node_id().empty() ? "" : absl::StrCat(" on ", NodeName(status, problem.node_id()));
    const std::string code = problem.code().empty() ? "problem" : Printable(problem.code());
    absl::StrAppend(&out, "  ", status.healthy() ? style.Warn(code) : style.Bad(code), where, ": ",
                    ReasonSentence(problem), "\n");
  }
  return out;
}

std::string NodesTable(const v1::ClusterStatus& status, int width, const Style& style) {
  std::vector<Column> columns = {{"NODE", false, 8, 10},
                                 {"STATE"},
                                 {"MEMORY USED", false, 5, 12},
                                 {"FREE", false, 6, 10},
                                 {"CPU", true, 0},
                                 {"RANKS", true},
                                 {"TOK/S", true},
                                 {"RUNNING", true, 0},
                                 {"SEEN", false, 0}};
  const bool power = AnyPower(status), temperature = AnyTemperature(status);
  if (power) columns.push_back({"POWER", false, 2, 8});
  if (temperature) columns.push_back({"TEMP", true, 0});
  std::vector<std::vector<Cell>> rows;
  for (const v1::NodeStatus& node : status.nodes()) {
    int ranks = 0;
    for (const auto& deployment : status.deployments()) {
      for (const auto& rank : deployment.ranks()) {
        ranks += rank.node_id() == node.identity().node_id() ? 1 : 0;
      }
    }
    const bool up = IsUp(node);
    rows.push_back({MarkedName(node), StateCell(node), MemoryUseCell(node), MemoryText(node),
                    up ? Percent(node.load().cpu_busy_ratio()) : "-", absl::StrCat(ranks),
                    up ? Rate(node.load().tokens_per_second()) : "-",
                    up ? absl::StrCat(node.load().requests_running()) : "-", Seen(node)});
    if (power) rows.back().push_back(up ? PowerText(node.load()) : "-");
    if (temperature) rows.back().push_back(up ? TemperatureText(node.load()) : "-");
  }
  return RenderTable(columns, rows, width, style);
}

std::string TotalsText(const v1::AggregateLoad& load) {
  return absl::StrCat("Total: ", GiB(load.memory_available_bytes()), " free of ",
                      GiB(load.memory_total_bytes()), ", ", Plural(load.gpu_cores(), "GPU core"),
                      ", ", Rate(load.tokens_per_second()), " tokens/s, ", load.requests_running(),
                      " running, ", load.requests_queued(), " queued\n");
}

}  // namespace

bool IsUp(const v1::NodeStatus& node) {
  return node.state() == v1::NODE_STATE_ALIVE || node.state() == v1::NODE_STATE_SUSPECT;
}

std::string NodeName(const v1::ClusterStatus& status, const std::string& node_id) {
  for (const v1::NodeStatus& node : status.nodes()) {
    if (node.identity().node_id() == node_id) return Printable(Name(node.identity()));
  }
  return Printable(NameFor("", node_id));
}

std::string MarksText(const v1::NodeMarks& marks) {
  std::string text =
      marks.tenant().empty() ? "" : absl::StrCat("tenant ", Printable(marks.tenant()));
  for (const v1::NodeLabel& label : marks.labels()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", Printable(label.key()), "=",
                    Printable(label.value()));
  }
  return text;
}

std::string DevicesView(const v1::ClusterStatus& status, int width, const Style& style) {
  std::vector<Column> columns = {{"HOSTNAME", false, 8, 12}, {"STATUS"},
                                 {"ADDRESS", false, 7, 12},  {"MEMORY FREE", false, 6, 10},
                                 {"GPU", false, 3, 6},       {"CHIP", false, 0},
                                 {"SYSTEM", false, 0},       {"TRANSPORT", false, 4, 8},
                                 {"NODE ID", false, 0}};
  const auto& nodes = status.nodes();
  const bool marked = std::any_of(nodes.begin(), nodes.end(), [](const v1::NodeStatus& node) {
    return !MarksText(node.marks()).empty();
  });
  if (marked) columns.push_back({"LABELS", false, 6, 12});
  std::vector<std::vector<Cell>> rows;
  for (const v1::NodeStatus& node : status.nodes()) {
    const v1::Inventory& inventory = node.inventory();
    rows.push_back({MarkedName(node), StateCell(node), Address(node.identity()), MemoryText(node),
                    GpuText(inventory), inventory.chip().empty() ? "-" : inventory.chip(),
                    SystemText(inventory),
                    node.transport_verdict().empty() ? "-" : node.transport_verdict(),
                    node.identity().node_id().substr(0, kShortId)});
    if (marked) rows.back().push_back(MarksText(node.marks()));
  }
  return RenderTable(columns, rows, width, style) + UnknownNodesText(status);
}

std::string NodeStateWord(const v1::NodeStatus& node) { return StateCell(node).text; }

std::string HealthLine(const v1::ClusterStatus& status, const Style& style) {
  return HealthText(status, style);
}

std::string ProblemsView(const v1::ClusterStatus& status, const Style& style) {
  return ProblemsText(status, style);
}

std::string HealthView(const v1::ClusterStatus& status, const Style& style) {
  return HealthText(status, style) + ProblemsText(status, style);
}

std::string StatusView(const v1::ClusterStatus& status, int width, const Style& style) {
  std::string out = Heading(status, style);
  out += HealthText(status, style);
  absl::StrAppend(&out, "\n", NodesTable(status, width, style));
  out += TotalsText(status.aggregate_load());
  if (status.deployments().empty()) {
    out += "\nNo model is loaded; 'clusterctl model load NAME' loads one.\n";
  } else {
    absl::StrAppend(&out, "\n", DeploymentsView(status, width, style));
  }
  out += ProblemsText(status, style, /*beside_models=*/true);
  out += UnknownNodesText(status);
  return out;
}

}  // namespace macrame::cli
