#include <nlohmann/json.hpp>

#include "discovery/base/plain_text.h"
#include "discovery/parsers/mac_parsers.h"
#include "discovery/parsers/text_scan.h"

namespace macrame::discovery {
namespace {

using nlohmann::json;

// The entries of a data type; an empty array when the text is not such a document.
json Entries(std::string_view text, const char* data_type) {
  json document = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return json::array();
  const auto found = document.find(data_type);
  // Moved: a copy goes as deep as the text is nested, and might end the stack.
  return found != document.end() && found->is_array() ? std::move(*found) : json::array();
}

std::string Text(const json& entry, const char* key) {
  const auto found = entry.find(key);
  return found != entry.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<uint32_t> Cores(std::string_view text) {
  const auto cores = ParseUnsigned(text);
  if (!cores || *cores == 0 || *cores > kCoresMax) return std::nullopt;
  return static_cast<uint32_t>(*cores);
}

// "512 GB", which means GiB.
std::optional<uint64_t> PhysicalMemory(std::string_view text) {
  const auto words = Words(text);
  const auto number = words.size() == 2 ? ParseUnsigned(words[0]) : std::nullopt;
  if (!number) return std::nullopt;
  const int shift = words[1] == "MB" ? 20 : words[1] == "GB" ? 30 : words[1] == "TB" ? 40 : 0;
  const auto bytes = shift == 0 ? std::nullopt : Multiply(*number, uint64_t{1} << shift);
  return bytes && *bytes > 0 && *bytes <= kMemoryBytesMax ? bytes : std::nullopt;
}

// "proc 32:24:8" (all:performance:efficiency), with a fourth field on newer systems; or a plain
// number.
void ReadProcessors(const json& value, HardwareOverview& overview) {
  if (value.is_number_unsigned()) {
    const uint64_t cores = value.get<uint64_t>();
    if (cores > 0 && cores <= kCoresMax) overview.cpu_cores = static_cast<uint32_t>(cores);
    return;
  }
  if (!value.is_string()) return;
  const std::string text = value.get<std::string>();
  const auto words = Words(text);
  if (words.size() != 2 || words[0] != "proc") return;
  std::vector<std::string_view> fields;
  std::string_view rest = words[1];
  while (!rest.empty() && fields.size() < 8) {
    const size_t end = rest.find(':');
    fields.push_back(rest.substr(0, end));
    rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
  }
  if (!fields.empty()) overview.cpu_cores = Cores(fields[0]);
  if (fields.size() >= 3) overview.performance_cores = Cores(fields[1]);
}

}  // namespace

HardwareOverview ParseHardwareOverview(std::string_view text) {
  HardwareOverview overview;
  const json entries = Entries(text, "SPHardwareDataType");
  if (entries.empty() || !entries[0].is_object()) return overview;
  const json& entry = entries[0];
  overview.machine_model = Text(entry, "machine_model");
  overview.chip = Text(entry, "chip_type");
  if (overview.chip.empty()) overview.chip = Text(entry, "cpu_type");  // Intel
  overview.memory_bytes = PhysicalMemory(Text(entry, "physical_memory"));
  const auto processors = entry.find("number_processors");
  if (processors != entry.end()) ReadProcessors(*processors, overview);
  const std::string firmware = Text(entry, "boot_rom_version");
  if (firmware.size() <= kFirmwareBytesMax && IsPlainText(firmware)) overview.firmware = firmware;
  return overview;
}

DisplayGpu ParseDisplays(std::string_view text) {
  DisplayGpu best;
  for (const json& entry : Entries(text, "SPDisplaysDataType")) {
    if (!entry.is_object() || Text(entry, "sppci_device_type") != "spdisplays_gpu") continue;
    DisplayGpu gpu{Text(entry, "sppci_model"), Cores(Text(entry, "sppci_cores"))};
    if (best.name.empty() || gpu.cores.value_or(0) > best.cores.value_or(0)) best = std::move(gpu);
  }
  return best;
}

}  // namespace macrame::discovery
