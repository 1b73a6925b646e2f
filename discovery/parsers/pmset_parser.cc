#include "discovery/parsers/mac_parsers.h"
#include "discovery/parsers/text_scan.h"

namespace macrame::discovery {

v1::ThermalState ParsePmsetTherm(std::string_view text) {
  bool no_warning = false;
  bool has_limits = false;
  for (const std::string_view line : WholeLines(text)) {
    if (line.find("No thermal warning level has been recorded") != line.npos) no_warning = true;
    std::string_view name;
    std::string_view value;
    if (!SplitOnce(line, "=", name, value)) continue;
    if (name != "CPU_Scheduler_Limit" && name != "CPU_Speed_Limit") continue;
    const auto limit = ParseUnsigned(value);
    if (!limit) continue;
    has_limits = true;
    if (*limit < 100) return v1::THERMAL_STATE_THROTTLED;
  }
  return no_warning || has_limits ? v1::THERMAL_STATE_NOMINAL : v1::THERMAL_STATE_UNSPECIFIED;
}

std::optional<bool> ParsePmsetOnBattery(std::string_view text) {
  for (const std::string_view line : WholeLines(text)) {
    if (!line.starts_with("Now drawing from ")) continue;
    if (line.find("'Battery Power'") != line.npos) return true;
    if (line.find("'AC Power'") != line.npos || line.find("'UPS Power'") != line.npos) return false;
  }
  return std::nullopt;
}

}  // namespace macrame::discovery
