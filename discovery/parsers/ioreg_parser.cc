#include "discovery/parsers/mac_parsers.h"
#include "discovery/parsers/text_scan.h"

namespace macrame::discovery {
namespace {

std::optional<uint32_t> ParseCores(std::string_view text) {
  const auto cores = ParseUnsigned(text);
  if (!cores || *cores == 0 || *cores > kCoresMax) return std::nullopt;
  return static_cast<uint32_t>(*cores);
}

// "Device Utilization %"=27, within the dictionary of PerformanceStatistics.
std::optional<double> ParseBusy(std::string_view dictionary) {
  constexpr std::string_view kKey = "\"Device Utilization %\"=";
  const size_t at = dictionary.find(kKey);
  if (at == dictionary.npos) return std::nullopt;
  const std::string_view rest = dictionary.substr(at + kKey.size());
  const size_t end = rest.find_first_of(",}");
  if (end == rest.npos) return std::nullopt;
  const auto percent = ParseUnsigned(rest.substr(0, end));
  if (!percent || *percent > 100) return std::nullopt;
  return static_cast<double>(*percent) / 100;
}

}  // namespace

IoregGpu ParseIoregGpu(std::string_view text) {
  IoregGpu best;
  IoregGpu current;
  const auto keep_better = [&] {
    if (!best.cores || current.cores.value_or(0) > *best.cores) best = current;
  };
  for (const std::string_view line : WholeLines(text)) {
    if (Trim(line).starts_with("+-o ")) {
      keep_better();
      current = IoregGpu{};
      continue;
    }
    std::string_view key;
    std::string_view value;
    if (!SplitOnce(line, " = ", key, value)) continue;
    if (key == "\"gpu-core-count\"") current.cores = ParseCores(value);
    if (key == "\"PerformanceStatistics\"") current.busy_ratio = ParseBusy(value);
    if (key == "\"model\"" && value.size() >= 2 && value.front() == '"' && value.back() == '"') {
      current.model = std::string(value.substr(1, value.size() - 2));
    }
  }
  keep_better();
  return best;
}

}  // namespace macrame::discovery
