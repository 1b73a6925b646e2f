#include "transport/links/network_services.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace macrame::transport {
namespace {

// "(Hardware Port: Thunderbolt 3, Device: en4)"
bool ReadDetail(absl::string_view line, NetworkService& service) {
  if (!absl::ConsumePrefix(&line, "(Hardware Port:") || !absl::ConsumeSuffix(&line, ")")) {
    return false;
  }
  constexpr absl::string_view kDevice = ", Device:";
  const size_t device = line.rfind(kDevice);
  if (device == line.npos) return false;
  service.hardware_port = std::string(absl::StripAsciiWhitespace(line.substr(0, device)));
  service.device = std::string(absl::StripAsciiWhitespace(line.substr(device + kDevice.size())));
  return true;
}

}  // namespace

std::vector<NetworkService> ParseServiceOrder(std::string_view text) {
  std::vector<NetworkService> services;
  NetworkService current;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    const absl::string_view content = absl::StripAsciiWhitespace(line);
    if (!absl::StartsWith(content, "(")) continue;
    if (ReadDetail(content, current)) {
      if (!current.name.empty()) services.push_back(current);
      current = NetworkService{};
      continue;
    }
    // "(2) Wi-Fi"; "(*) Wi-Fi" when it is off.
    const size_t close = content.find(')');
    if (close == content.npos) continue;
    current = NetworkService{};
    current.is_enabled = content.substr(1, close - 1) != "*";
    current.name = std::string(absl::StripAsciiWhitespace(content.substr(close + 1)));
  }
  return services;
}

std::vector<NetworkService> ServicesOf(const v1::LinkFacts& facts) {
  for (const v1::ProbeOutput& output : facts.outputs()) {
    if (output.command() != kServiceOrderCommand || output.exit_code() != 0) continue;
    return ParseServiceOrder(output.text());
  }
  return {};
}

std::string QuotedName(const std::string& name) {
  std::string quoted = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\' || c == '$' || c == '`') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace macrame::transport
