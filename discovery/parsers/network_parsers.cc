// What networksetup, ifconfig, netstat and route print.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "discovery/base/interfaces.h"
#include "discovery/base/plain_text.h"
#include "discovery/parsers/link_parsers.h"
#include "discovery/parsers/text_scan.h"

namespace macrame::discovery {
namespace {

// "0xfffffffc" → 30; nullopt when the ones are not all in front.
std::optional<uint32_t> PrefixOfMask(std::string_view text) {
  uint32_t mask = 0;
  if (!text.starts_with("0x") || text.size() > 10 ||
      !absl::SimpleHexAtoi(absl::string_view(text.data(), text.size()), &mask)) {
    return std::nullopt;
  }
  uint32_t length = 0;
  while (length < 32 && (mask >> (31 - length) & 1) != 0) ++length;
  const uint32_t rest = length == 32 ? 0 : mask << length;
  return rest == 0 ? std::optional<uint32_t>(length) : std::nullopt;
}

// "fe80::1%en2" → "fe80::1"
std::string_view WithoutZone(std::string_view ip) { return ip.substr(0, ip.find('%')); }

class IfconfigReader {
 public:
  IfconfigAnswer Read(std::string_view text) {
    for (const std::string_view line : WholeLines(text)) {
      if (line.empty()) continue;
      const bool is_heading = line[0] != '\t' && line[0] != ' ';
      if (is_heading) {
        Begin(line);
      } else if (interface_ != nullptr) {
        Take(Words(line));
      }
    }
    for (v1::LinkInterface& interface : answer_.interfaces) {
      for (const v1::NetworkBridge& bridge : answer_.bridges) {
        const bool is_member = std::find(bridge.members().begin(), bridge.members().end(),
                                         interface.name()) != bridge.members().end();
        if (is_member) interface.set_bridge(bridge.name());
      }
    }
    return std::move(answer_);
  }

 private:
  // "en2: flags=8863<UP,BROADCAST,…> mtu 1500"
  void Begin(std::string_view line) {
    interface_ = nullptr;
    bridge_ = -1;
    std::string_view name, rest;
    if (!SplitOnce(line, ": flags=", name, rest) || name.empty()) return;
    if (answer_.interfaces.size() >= kInterfacesMax) return;
    interface_ = &answer_.interfaces.emplace_back();
    interface_->set_name(NetworkName(name));
    const size_t open = rest.find('<'), close = rest.find('>');
    if (open == rest.npos || close == rest.npos || close < open) return;
    const std::string flags =
        absl::StrCat(",", absl::string_view(rest.data() + open + 1, close - open - 1), ",");
    const auto has = [&](const char* flag) {
      return flags.find(absl::StrCat(",", flag, ",")) != std::string::npos;
    };
    interface_->set_is_up(has("UP") && has("RUNNING") ? v1::FACT_YES : v1::FACT_NO);
    interface_->set_is_promiscuous(has("PROMISC"));
    const auto words = Words(rest.substr(close + 1));
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      const auto mtu = words[i] == "mtu" ? ParseUnsigned(words[i + 1]) : std::nullopt;
      if (mtu && *mtu <= 1u << 20) interface_->set_mtu(static_cast<uint32_t>(*mtu));
    }
    if (name.starts_with("bridge")) {
      bridge_ = static_cast<int>(answer_.bridges.size());
      v1::NetworkBridge& bridge = answer_.bridges.emplace_back();
      bridge.set_name(interface_->name());
      bridge.set_is_up(interface_->is_up());
    }
  }

  void Take(const std::vector<std::string_view>& words) {
    if (words.empty()) return;
    if (words[0] == "inet") TakeInet(words);
    if (words[0] == "inet6") TakeInet6(words);
    if (words[0] == "status:" && words.size() >= 2) {
      interface_->set_has_carrier(words[1] == "active"     ? v1::FACT_YES
                                  : words[1] == "inactive" ? v1::FACT_NO
                                                           : v1::FACT_UNKNOWN);
    }
    if (words[0] == "member:" && words.size() >= 2 && bridge_ >= 0) {
      v1::NetworkBridge& bridge = answer_.bridges[bridge_];
      if (bridge.members_size() < static_cast<int>(kInterfacesMax)) {
        bridge.add_members(NetworkName(words[1]));
      }
    }
  }

  // "inet 192.168.0.1 netmask 0xfffffffc broadcast 192.168.0.3"; of a tunnel
  // "inet 100.64.0.1 --> 100.64.0.2 netmask 0xffffffff"
  void TakeInet(const std::vector<std::string_view>& words) {
    const size_t mask = words.size() > 2 && words[2] == "-->" ? 4 : 2;
    if (words.size() < mask + 2 || words[mask] != "netmask") return;
    const auto prefix = PrefixOfMask(words[mask + 1]);
    if (prefix) AddAddress(words[1], *prefix);
  }

  // "inet6 fe80::1%en2 prefixlen 64 …"
  void TakeInet6(const std::vector<std::string_view>& words) {
    if (words.size() < 4 || words[2] != "prefixlen") return;
    const auto prefix = ParseUnsigned(words[3]);
    if (prefix && *prefix <= 128) AddAddress(WithoutZone(words[1]), static_cast<uint32_t>(*prefix));
  }

  void AddAddress(std::string_view ip, uint32_t prefix) {
    if (interface_->addresses_size() >= static_cast<int>(kAddressesPerInterfaceMax)) return;
    v1::NodeAddress& address = *interface_->add_addresses();
    address.set_ip(NetworkName(ip));
    address.set_prefix_length(prefix);
    address.set_interface_name(interface_->name());
  }

  IfconfigAnswer answer_;
  v1::LinkInterface* interface_ = nullptr;
  int bridge_ = -1;
};

}  // namespace

std::map<std::string, std::string> ParseHardwarePortNames(std::string_view text) {
  std::map<std::string, std::string> ports;
  std::string port;
  for (const std::string_view line : WholeLines(text)) {
    std::string_view key, value;
    if (!SplitOnce(line, ":", key, value)) continue;
    if (key == "Hardware Port") {
      port = NetworkName(value);
    } else if (key == "Device" && !port.empty()) {
      if (!value.empty() && ports.size() < kInterfacesMax) ports[NetworkName(value)] = port;
      port.clear();
    }
  }
  return ports;
}

std::vector<NetworkService> ParseServiceOrder(std::string_view text) {
  // A last line without its end may be cut in the middle of a name.
  const size_t end = text.rfind('\n');
  std::vector<NetworkService> services =
      transport::ParseServiceOrder(end == text.npos ? std::string_view() : text.substr(0, end));
  if (services.size() > kInterfacesMax) services.resize(kInterfacesMax);
  for (NetworkService& service : services) {
    service.name = NetworkName(service.name);
    service.hardware_port = NetworkName(service.hardware_port);
    service.device = NetworkName(service.device);
  }
  return services;
}

IfconfigAnswer ParseIfconfig(std::string_view text) { return IfconfigReader().Read(text); }

RoutingTable ParseRoutes(std::string_view text) {
  RoutingTable table;
  int gateway_column = -1;
  for (const std::string_view line : WholeLines(text)) {
    const auto words = Words(line);
    if (words.size() >= 4 && words[0] == "Destination" && words[1] == "Gateway") {
      table.read = true;
      gateway_column = 1;
      continue;
    }
    if (gateway_column < 0 || words.size() < 4) continue;
    if (static_cast<int>(table.routes.size()) >= kRoutesMax) break;
    const std::string_view flags = words[2];
    // Routes that hold only for programs that ask for an interface ("I") decide nothing.
    if (flags.find('I') != flags.npos) continue;
    v1::NetworkRoute& route = table.routes.emplace_back();
    route.set_destination(NetworkName(words[0]));
    if (!words[1].starts_with("link#")) route.set_gateway(NetworkName(words[1]));
    route.set_interface_name(NetworkName(words[3]));
    route.set_is_reject(flags.find('R') != flags.npos || flags.find('B') != flags.npos);
  }
  return table;
}

std::optional<std::vector<std::string>> ParseSharingDevices(std::string_view text) {
  using nlohmann::json;
  const json list = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return std::nullopt;
  std::vector<std::string> devices;
  for (const json& device : list) {
    if (device.is_string() && devices.size() < kInterfacesMax) {
      devices.push_back(NetworkName(device.get<std::string>()));
    }
  }
  return devices;
}

}  // namespace macrame::discovery
