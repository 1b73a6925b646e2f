#include "discovery/parsers/mac_parsers.h"
#include "discovery/parsers/text_scan.h"

namespace macrame::discovery {
namespace {

constexpr std::string_view kPageSize = "page size of ";

// "3174400." → 3174400. The full stop shows that the number is whole.
std::optional<uint64_t> ParsePages(std::string_view value) {
  if (!value.ends_with('.')) return std::nullopt;
  value.remove_suffix(1);
  return ParseUnsigned(value);
}

}  // namespace

VmStat ParseVmStat(std::string_view text) {
  VmStat stat;
  for (const std::string_view line : WholeLines(text)) {
    if (const size_t at = line.find(kPageSize); at != line.npos) {
      const auto words = Words(line.substr(at + kPageSize.size()));
      const auto bytes = words.size() > 1 ? ParseUnsigned(words[0]) : std::nullopt;
      if (bytes && *bytes >= 512 && *bytes <= (1u << 20)) stat.page_bytes = *bytes;
      continue;
    }
    std::string_view name;
    std::string_view value;
    if (!SplitOnce(line, ":", name, value)) continue;
    if (name == "Pages free") stat.free = ParsePages(value);
    if (name == "Pages speculative") stat.speculative = ParsePages(value);
    if (name == "File-backed pages") stat.file_backed = ParsePages(value);
    if (name == "Pages purgeable") stat.purgeable = ParsePages(value);
  }
  return stat;
}

std::optional<uint64_t> AvailableBytes(const VmStat& stat, v1::MemoryPressure pressure) {
  if (stat.page_bytes == 0 || !stat.free || !stat.speculative || !stat.file_backed ||
      !stat.purgeable) {
    return std::nullopt;
  }
  const bool under_pressure =
      pressure == v1::MEMORY_PRESSURE_WARNING || pressure == v1::MEMORY_PRESSURE_CRITICAL;
  uint64_t pages = 0;
  for (const uint64_t part : {*stat.free, *stat.speculative, under_pressure ? 0 : *stat.file_backed,
                              under_pressure ? 0 : *stat.purgeable}) {
    if (part > kMemoryBytesMax) return std::nullopt;
    pages += part;
  }
  const auto bytes = Multiply(pages, stat.page_bytes);
  return bytes && *bytes <= kMemoryBytesMax ? bytes : std::nullopt;
}

std::optional<double> ParseMemoryFreeRatio(std::string_view text) {
  for (const std::string_view line : WholeLines(text)) {
    std::string_view name;
    std::string_view value;
    if (!SplitOnce(line, ":", name, value) || name != "System-wide memory free percentage")
      continue;
    if (!value.ends_with('%')) return std::nullopt;
    value.remove_suffix(1);
    const auto percent = ParseUnsigned(value);
    if (percent && *percent <= 100) return static_cast<double>(*percent) / 100;
  }
  return std::nullopt;
}

}  // namespace macrame::discovery
