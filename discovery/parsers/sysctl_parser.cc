#include <cmath>

#include "discovery/parsers/mac_parsers.h"
#include "discovery/parsers/text_scan.h"

namespace macrame::discovery {
namespace {

// "2048.00M" → bytes.
std::optional<uint64_t> ParseSize(std::string_view text) {
  if (text.empty()) return std::nullopt;
  double unit = 0;
  switch (text.back()) {
    case 'K':
      unit = 1024.0;
      break;
    case 'M':
      unit = 1024.0 * 1024;
      break;
    case 'G':
      unit = 1024.0 * 1024 * 1024;
      break;
    case 'T':
      unit = 1024.0 * 1024 * 1024 * 1024;
      break;
    default:
      return std::nullopt;
  }
  text.remove_suffix(1);
  const auto number = ParseReal(text);
  if (!number || *number < 0 || *number * unit > static_cast<double>(kMemoryBytesMax)) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(std::llround(*number * unit));
}

}  // namespace

std::map<std::string, std::string> ParseSysctl(std::string_view text) {
  std::map<std::string, std::string> values;
  for (const std::string_view line : WholeLines(text)) {
    std::string_view name;
    std::string_view value;
    if (SplitOnce(line, ":", name, value) && !name.empty() && !value.empty() &&
        name.find(' ') == name.npos) {
      values[std::string(name)] = std::string(value);
    }
  }
  return values;
}

std::optional<uint64_t> SysctlNumber(const std::map<std::string, std::string>& values,
                                     const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? std::nullopt : ParseUnsigned(found->second);
}

std::optional<SwapUsage> ParseSwapUsage(std::string_view value) {
  const std::vector<std::string_view> words = Words(value);
  std::optional<uint64_t> total;
  std::optional<uint64_t> used;
  for (size_t i = 0; i + 2 < words.size(); ++i) {
    if (words[i + 1] != "=") continue;
    if (words[i] == "total") total = ParseSize(words[i + 2]);
    if (words[i] == "used") used = ParseSize(words[i + 2]);
  }
  if (!total || !used) return std::nullopt;
  return SwapUsage{*total, *used};
}

std::optional<uint64_t> ParseBootTime(std::string_view value) {
  const std::vector<std::string_view> words = Words(value);
  for (size_t i = 0; i + 2 < words.size(); ++i) {
    if (words[i] != "sec" || words[i + 1] != "=") continue;
    std::string_view digits = words[i + 2];
    // Without the comma the number may go on.
    if (!digits.ends_with(',')) return std::nullopt;
    digits.remove_suffix(1);
    return ParseUnsigned(digits);
  }
  return std::nullopt;
}

std::optional<double> ParseLoadAverage(std::string_view value) {
  const std::vector<std::string_view> words = Words(value);
  if (words.size() < 3 || words[0] != "{") return std::nullopt;
  const auto load = ParseReal(words[1]);
  return load && *load >= 0 ? load : std::nullopt;
}

v1::MemoryPressure PressureOfLevel(std::optional<uint64_t> level) {
  switch (level.value_or(0)) {
    case 1:
      return v1::MEMORY_PRESSURE_NORMAL;
    case 2:
      return v1::MEMORY_PRESSURE_WARNING;
    case 4:
      return v1::MEMORY_PRESSURE_CRITICAL;
    default:
      return v1::MEMORY_PRESSURE_UNSPECIFIED;
  }
}

}  // namespace macrame::discovery
