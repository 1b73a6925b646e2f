#include "cli/format/links_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/format/reason_text.h"
#include "cli/format/table.h"
#include "proto/backends.h"

namespace macrame::cli {
namespace {

std::string Microseconds(double us) {
  if (us <= 0) return "-";
  return us < 10000 ? absl::StrFormat("%.0f us", us) : absl::StrFormat("%.1f ms", us / 1000);
}

std::string Bandwidth(double bytes) {
  if (bytes <= 0) return "-";
  return bytes >= 1e9 ? absl::StrFormat("%.2f GB/s", bytes / 1e9)
                      : absl::StrFormat("%.0f MB/s", bytes / 1e6);
}

std::string KindText(v1::InterfaceKind kind) {
  switch (kind) {
    case v1::INTERFACE_KIND_ETHERNET:
      return "Ethernet";
    case v1::INTERFACE_KIND_WIFI:
      return "Wi-Fi";
    case v1::INTERFACE_KIND_THUNDERBOLT:
      return "Thunderbolt";
    case v1::INTERFACE_KIND_BRIDGE:
      return "bridge";
    case v1::INTERFACE_KIND_VPN:
      return "VPN";
    case v1::INTERFACE_KIND_LOOPBACK:
      return "loopback";
    default:
      return "network";
  }
}

// A small message over TCP that takes long is worth a look.
Tone ToneOf(const v1::LinkMeasurement& measured) {
  if (measured.has_failure()) return Tone::kBad;
  return measured.round_trip_us_p50() > kTcpSuspiciousUs ? Tone::kWarn : Tone::kGood;
}

bool Concerns(const std::string& node_id, const std::string& a, const std::string& b) {
  return node_id.empty() || a == node_id || b == node_id;
}

std::string EndText(const v1::LinkEnd& end) {
  const std::string socket = end.socket() == 0 ? "" : absl::StrCat(" socket ", end.socket());
  const std::string interface =
      end.interface_name().empty() ? "" : absl::StrCat(" ", end.interface_name());
  return absl::StrCat(end.hostname().empty() ? "?" : end.hostname(), socket, interface);
}

Cell VerdictCell(const v1::LinkVerdict& link) {
  if (link.rdma_usable() == v1::FACT_YES) return {"RDMA", Tone::kGood};
  if (link.rdma_usable() == v1::FACT_UNKNOWN) return {"unknown", Tone::kWarn};
  return {link.reasons().empty() ? "no RDMA" : link.reasons(0).code(), Tone::kWarn};
}

std::string PathsTable(const v1::LinksView& view, const std::string& node_id, int width,
                       const Style& style) {
  std::vector<std::vector<Cell>> rows;
  for (const v1::NodePath& path : view.links().paths()) {
    if (!Concerns(node_id, path.from_node_id(), path.to_node_id())) continue;
    if (node_id.empty() && path.to_node_id() < path.from_node_id()) continue;
    if (!node_id.empty() && path.from_node_id() != node_id) continue;
    rows.push_back({NameIn(view, path.from_node_id()), NameIn(view, path.to_node_id()),
                    KindText(path.kind()), path.from_ip(), path.to_ip(),
                    Microseconds(path.round_trip_us()),
                    Bandwidth(path.bandwidth_bytes_per_second())});
  }
  if (rows.empty()) return "No other node, or nothing leads to it.\n";
  return RenderTable({{"FROM"},
                      {"TO"},
                      {"OVER"},
                      {"FROM ADDRESS", false, 2},
                      {"TO ADDRESS", false, 3},
                      {"ROUND TRIP", true},
                      {"BANDWIDTH", true}},
                     rows, width, style);
}

std::string LinksTable(const v1::LinksView& view, const std::string& node_id, int width,
                       const Style& style) {
  std::vector<std::vector<Cell>> rows;
  for (const v1::LinkVerdict& link : view.links().links()) {
    if (!Concerns(node_id, link.a().node_id(), link.b().node_id())) continue;
    rows.push_back({EndText(link.a()), EndText(link.b()),
                    link.speed_gbps() == 0 ? "-" : absl::StrCat(link.speed_gbps(), " Gb/s"),
                    VerdictCell(link)});
  }
  if (rows.empty()) return "";
  return absl::StrCat(
      "\n", RenderTable({{"LINK"}, {"TO"}, {"SPEED", true}, {"VERDICT"}}, rows, width, style));
}

// Each reason once, with what to do and who can.
std::string ReasonsText(const v1::LinksView& view, const std::string& node_id, const Style& style) {
  std::string text;
  std::vector<std::string> seen;
  for (const v1::LinkVerdict& link : view.links().links()) {
    if (!Concerns(node_id, link.a().node_id(), link.b().node_id())) continue;
    for (const v1::Reason& reason : link.reasons()) {
      const std::string key = absl::StrCat(reason.code(), reason.message());
      if (std::find(seen.begin(), seen.end(), key) != seen.end()) continue;
      seen.push_back(key);
      absl::StrAppend(
          &text, "  ", style.Warn(Printable(reason.code())), "  ", ReasonSentence(reason),
          reason.who().empty() ? "" : absl::StrCat(" [", Printable(reason.who()), "]"), "\n");
    }
  }
  return text.empty() ? "" : absl::StrCat("\n", text);
}

std::string GroupText(const v1::LinksView& view, const Style& style) {
  const v1::GroupVerdict& group = view.links().group();
  const std::string verdict = group.verdict().empty() ? "not known" : Printable(group.verdict());
  std::string text = absl::StrCat("\nAll live nodes together: ", style.Bold(verdict));
  if (!group.ring_over().empty() && VerdictNamed(group.verdict()) == Verdict::kRingOnly) {
    absl::StrAppend(&text, " over ", Printable(group.ring_over()));
  }
  absl::StrAppend(&text, "\n");
  for (const v1::TransportRefusal& refusal : view.refusals()) {
    std::vector<std::string> names;
    for (const std::string& id : refusal.node_ids()) names.push_back(NameIn(view, id));
    absl::StrAppend(&text, "  ", Printable(refusal.backend()), " is not tried on ",
                    Printable(absl::StrJoin(names, ", ")), ": ", Printable(refusal.reason().code()),
                    "; 'clusterctl links recheck' looks again\n");
  }
  return text;
}

std::string PortsText(const v1::LinksView& view, const std::string& node_id, int width,
                      const Style& style) {
  std::vector<std::vector<Cell>> rows;
  const auto fact = [](v1::Fact value) {
    return value == v1::FACT_YES ? "yes" : value == v1::FACT_NO ? "no" : "?";
  };
  for (const v1::NodeLinks& node : view.nodes()) {
    if (!node_id.empty() && node.node_id() != node_id) continue;
    for (const v1::ThunderboltPort& port : node.facts().ports()) {
      rows.push_back({NameIn(view, node.node_id()), absl::StrCat(port.socket()),
                      port.interface_name(), port.rdma_device().empty() ? "-" : port.rdma_device(),
                      fact(port.is_thunderbolt5()), port.speed_text(),
                      port.peers().empty() ? "-" : port.peers(0).device_name()});
    }
    for (const v1::RdmaDevice& device : node.facts().rdma_devices()) {
      if (node.facts().is_mac() == v1::FACT_YES) continue;
      rows.push_back({NameIn(view, node.node_id()), "-", device.interface_name(), device.name(),
                      "-", device.port_state() == v1::RDMA_PORT_STATE_ACTIVE ? "active" : "down",
                      "-"});
    }
  }
  if (rows.empty()) return "";
  return absl::StrCat("\n", RenderTable({{"NODE"},
                                         {"SOCKET", true},
                                         {"INTERFACE"},
                                         {"RDMA DEVICE"},
                                         {"TB5"},
                                         {"STATE"},
                                         {"PEER", false, 2}},
                                        rows, width, style));
}

// A line for each Mac that told it.
std::string FirmwareText(const v1::LinksView& view, const std::string& node_id) {
  std::string text;
  for (const v1::NodeLinks& node : view.nodes()) {
    const std::string& firmware = node.facts().system_firmware();
    if (firmware.empty() || (!node_id.empty() && node.node_id() != node_id)) continue;
    absl::StrAppend(&text, Printable(NameIn(view, node.node_id())), ": firmware ",
                    Printable(firmware), "\n");
  }
  return text.empty() ? "" : absl::StrCat("\n", text);
}

}  // namespace

std::string NameIn(const v1::LinksView& view, const std::string& node_id) {
  for (const v1::NodeIdentity& identity : view.identities()) {
    if (identity.node_id() == node_id && !identity.hostname().empty()) return identity.hostname();
  }
  return node_id.substr(0, 8);
}

std::string LinksText(const v1::LinksView& view, const std::string& node_id, bool detail, int width,
                      const Style& style) {
  std::string text = PathsTable(view, node_id, width, style);
  absl::StrAppend(&text, LinksTable(view, node_id, width, style),
                  ReasonsText(view, node_id, style));
  if (detail) {
    absl::StrAppend(&text, PortsText(view, node_id, width, style), FirmwareText(view, node_id));
  }
  absl::StrAppend(&text, GroupText(view, style));
  return text;
}

std::string MeasurementLine(const v1::LinkMeasurement& measured, const v1::LinksView& view) {
  const std::string where =
      absl::StrCat(NameIn(view, measured.from_node_id()), " ", measured.from_interface(), " ",
                   measured.from_ip(), " - ", NameIn(view, measured.to_node_id()), " ",
                   measured.to_interface(), " ", measured.to_ip());
  if (measured.has_failure()) {
    const std::string& why = measured.failure().message();
    return Printable(absl::StrCat(where, ": ", why.empty() ? "it failed" : why)) + "\n";
  }
  return Printable(absl::StrCat(where, ": round trip ", Microseconds(measured.round_trip_us_p50()),
                                " (p99 ", Microseconds(measured.round_trip_us_p99()),
                                "), under load ", Microseconds(measured.loaded_round_trip_us_p50()),
                                ", ", Bandwidth(measured.bandwidth_bytes_per_second()))) +
         "\n";
}

std::string NetworkStatsText(const v1::LinksView& view, int width, const Style& style) {
  std::vector<std::vector<Cell>> rows;
  for (const v1::NodeLinks& node : view.nodes()) {
    for (const v1::LinkMeasurement& measured : node.measurements()) {
      rows.push_back({NameIn(view, node.node_id()),
                      NameIn(view, measured.to_node_id()),
                      absl::StrCat(measured.from_ip(), " - ", measured.to_ip()),
                      KindText(measured.kind()),
                      {Microseconds(measured.round_trip_us_p50()), ToneOf(measured)},
                      Microseconds(measured.round_trip_us_p99()),
                      Microseconds(measured.loaded_round_trip_us_p99()),
                      Bandwidth(measured.bandwidth_bytes_per_second()),
                      GiB(measured.bytes_total()),
                      absl::StrCat(measured.failures_total())});
    }
  }
  if (rows.empty()) return "No link has been measured yet.\n";
  return RenderTable({{"FROM"},
                      {"TO"},
                      {"ADDRESSES", false, 2},
                      {"OVER"},
                      {"P50", true},
                      {"P99", true},
                      {"P99 LOADED", true, 4},
                      {"BANDWIDTH", true},
                      {"MEASURED WITH", true, 1},
                      {"FAILED", true, 3}},
                     rows, width, style) +
         "Round trips of 64 bytes over TCP, there and back; loaded: behind 256 KiB.\n";
}

}  // namespace macrame::cli
