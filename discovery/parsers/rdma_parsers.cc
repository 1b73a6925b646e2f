// What ibv_devices, ibv_devinfo, rdma_ctl, ioclasscount, kmutil, log and pmset print.

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "discovery/base/plain_text.h"
#include "discovery/parsers/link_parsers.h"
#include "discovery/parsers/text_scan.h"
#include "proto/reason_codes.h"

namespace macrame::discovery {
namespace {

constexpr size_t kLogLineBytesMax = 400;
constexpr std::string_view kMappedPrefix = "::ffff:";
constexpr std::string_view kMappedLongPrefix = "0000:0000:0000:0000:0000:ffff:";

bool IsHex(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdefABCDEF") == text.npos;
}

// On a Mac a device is named after its interface.
std::string InterfaceOf(const std::string& device) {
  constexpr std::string_view kPrefix = "rdma_";
  return device.starts_with(kPrefix) ? device.substr(kPrefix.size()) : "";
}

// "::ffff:10.0.0.1", or the same as eight groups: the IPv4 address inside; else empty.
std::string MappedIpv4(std::string_view gid) {
  if (gid.starts_with(kMappedPrefix) && gid.find('.') != gid.npos) {
    return std::string(gid.substr(kMappedPrefix.size()));
  }
  std::string_view groups;
  if (gid.starts_with(kMappedLongPrefix)) groups = gid.substr(kMappedLongPrefix.size());
  if (gid.starts_with(kMappedPrefix)) groups = gid.substr(kMappedPrefix.size());
  std::string_view high, low;
  if (groups.empty() || !SplitOnce(groups, ":", high, low)) return "";
  uint32_t h = 0, l = 0;
  const auto number = [](std::string_view text, uint32_t* out) {
    return IsHex(text) && text.size() <= 4 &&
           absl::SimpleHexAtoi(absl::string_view(text.data(), text.size()), out);
  };
  if (!number(high, &h) || !number(low, &l)) return "";
  return absl::StrCat(h >> 8, ".", h & 255, ".", l >> 8, ".", l & 255);
}

v1::RdmaPortState StateOf(std::string_view text) {
  if (text.starts_with("PORT_ACTIVE")) return v1::RDMA_PORT_STATE_ACTIVE;
  if (text.starts_with(reasons::kPortDown)) return v1::RDMA_PORT_STATE_DOWN;
  if (text.starts_with("PORT_INIT")) return v1::RDMA_PORT_STATE_INIT;
  if (text.starts_with("PORT_ARMED")) return v1::RDMA_PORT_STATE_ARMED;
  return v1::RDMA_PORT_STATE_UNKNOWN;
}

// "8X (4)" → 8
uint32_t WidthOf(std::string_view text) {
  const auto words = Words(text);
  if (words.empty() || !words[0].ends_with('X')) return 0;
  const auto lanes = ParseUnsigned(words[0].substr(0, words[0].size() - 1));
  return lanes && *lanes <= 16 ? static_cast<uint32_t>(*lanes) : 0;
}

// "GID[  1]:   ::ffff:192.168.0.1"
bool ReadGid(std::string_view content, v1::RdmaDevice& device) {
  if (!content.starts_with("GID[")) return false;
  const size_t close = content.find("]:");
  if (close == content.npos) return true;
  const auto index = ParseUnsigned(Trim(content.substr(4, close - 4)));
  const auto words = Words(content.substr(close + 2));
  if (!index || *index >= kGidsMax || words.empty()) return true;
  device.set_gids_known(true);
  if (device.gids_size() >= kGidsMax) return true;
  std::string_view gid = words[0];
  if (gid.ends_with(',')) gid.remove_suffix(1);  // newer ones add ", RoCE v2"
  v1::RdmaGid& entry = *device.add_gids();
  entry.set_index(static_cast<uint32_t>(*index));
  entry.set_gid(NetworkName(gid));
  entry.set_ipv4(NetworkName(MappedIpv4(gid)));
  return true;
}

std::string KernelCode(std::string_view line) {
  const auto has = [&](std::string_view words) { return line.find(words) != line.npos; };
  if (has("does not support Thunderbolt 5")) return reasons::kTb4Controller;
  if (has("Local network prohibited")) return reasons::kLocalNetworkPrivacy;
  if (has("RDMA enabled, starting")) return "RDMA_STARTING";
  // Other lines about RDMA are no failures, and lines about a DART may be of any other device.
  if (has("Failed INIT->RTR") || has("Failed RTR->RTS") || has("queue resource shortage") ||
      has("TX already started") || has("DART InvalidSTE")) {
    return "QUEUE_PAIR_FAILED";
  }
  return "";
}

}  // namespace

std::optional<std::vector<v1::RdmaDevice>> ParseIbvDevices(std::string_view text) {
  std::optional<std::vector<v1::RdmaDevice>> devices;
  for (const std::string_view line : WholeLines(text)) {
    const auto words = Words(line);
    const bool is_heading =
        words.size() == 3 && words[0] == "device" && words[1] == "node" && words[2] == "GUID";
    if (is_heading) devices.emplace();
    if (!devices || is_heading || words.size() < 2 || words[0].starts_with("---")) continue;
    if (!IsHex(words[1]) || words[1].size() != 16) continue;
    if (static_cast<int>(devices->size()) >= kRdmaDevicesMax) break;
    v1::RdmaDevice& device = devices->emplace_back();
    device.set_name(NetworkName(words[0]));
    device.set_node_guid(NetworkName(words[1]));
    device.set_interface_name(InterfaceOf(device.name()));
  }
  return devices;
}

std::vector<v1::RdmaDevice> ParseIbvDevinfo(std::string_view text) {
  std::vector<v1::RdmaDevice> devices;
  for (const std::string_view line : WholeLines(text)) {
    const std::string_view content = Trim(line);
    std::string_view key, value;
    if (content.starts_with("GID[")) {
      if (!devices.empty()) ReadGid(content, devices.back());
      continue;
    }
    if (!SplitOnce(content, ":", key, value)) continue;
    if (key == "hca_id") {
      if (static_cast<int>(devices.size()) >= kRdmaDevicesMax) break;
      devices.emplace_back().set_name(NetworkName(value));
      devices.back().set_interface_name(InterfaceOf(devices.back().name()));
      continue;
    }
    if (devices.empty()) continue;
    v1::RdmaDevice& device = devices.back();
    if (key == "transport") device.set_transport(NetworkName(value));
    if (key == "node_guid") device.set_node_guid(NetworkName(value));
    if (key == "state") device.set_port_state(StateOf(value));
    if (key == "link_layer") device.set_link_layer(NetworkName(value));
    if (key == "active_width") device.set_active_width(WidthOf(value));
    // The verbose form has a table of GIDs; one that is empty is an answer too.
    if (key == "gid_tbl_len") device.set_gids_known(true);
    if (key == "port")
      device.set_port_number(
          static_cast<uint32_t>(std::min<uint64_t>(ParseUnsigned(value).value_or(0), 255)));
  }
  return devices;
}

v1::Fact ParseRdmaCtl(std::string_view text) {
  const std::string_view word = Trim(text);
  if (word == "enabled") return v1::FACT_YES;
  return word == "disabled" ? v1::FACT_NO : v1::FACT_UNKNOWN;
}

std::map<std::string, uint64_t> ParseClassCounts(std::string_view text) {
  std::map<std::string, uint64_t> counts;
  for (const std::string_view line : WholeLines(text)) {
    std::string_view name, value;
    if (!SplitOnce(line, " = ", name, value) || counts.size() >= 1000) continue;
    if (const auto count = ParseUnsigned(value)) counts[NetworkName(name)] = *count;
  }
  return counts;
}

v1::Fact ParseKextLoaded(std::string_view text, std::string_view bundle_id) {
  bool has_heading = false;
  for (const std::string_view line : WholeLines(text)) {
    const auto words = Words(line);
    if (words.size() >= 2 && words[0] == "Index" && words[1] == "Refs") has_heading = true;
    if (!has_heading) continue;
    if (std::find(words.begin(), words.end(), bundle_id) != words.end()) return v1::FACT_YES;
  }
  return has_heading ? v1::FACT_NO : v1::FACT_UNKNOWN;
}

KernelLog ParseKernelLog(std::string_view text) {
  KernelLog log;
  for (const std::string_view line : WholeLines(text)) {
    const auto words = Words(line);
    if (!words.empty() && words[0] == "Timestamp") {
      log.read = true;
      continue;
    }
    const std::string code = KernelCode(line);
    if (code.empty() || words.size() < 3) continue;
    if (code == reasons::kTb4Controller) log.refuses_rdma = v1::FACT_YES;
    if (static_cast<int>(log.lines.size()) >= kKernelLinesMax) continue;
    v1::KernelLine& kept = log.lines.emplace_back();
    kept.set_code(code);
    kept.set_text(ToPlainText(Trim(line), kLogLineBytesMax));
  }
  const bool started = std::any_of(log.lines.begin(), log.lines.end(), [](const v1::KernelLine& l) {
    return l.code() == "RDMA_STARTING";
  });
  // A log that says nothing about the start may simply have been rotated.
  if (log.read && started && log.refuses_rdma == v1::FACT_UNKNOWN) log.refuses_rdma = v1::FACT_NO;
  return log;
}

PowerSettings ParsePowerSettings(std::string_view text) {
  PowerSettings settings;
  for (const std::string_view line : WholeLines(text)) {
    const auto words = Words(line);
    if (words.size() < 2) continue;
    const auto number = ParseUnsigned(words[1]);
    if (!number || *number > 1u << 20) continue;
    if (words[0] == "sleep") settings.sleep_minutes = static_cast<uint32_t>(*number);
    if (words[0] == "lowpowermode" || words[0] == "powermode") {
      // "powermode" 1 is low power, 2 is high.
      settings.low_power_mode = *number == 1 ? v1::FACT_YES : v1::FACT_NO;
    }
  }
  return settings;
}

}  // namespace macrame::discovery
