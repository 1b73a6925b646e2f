#include <algorithm>
#include <nlohmann/json.hpp>

#include "discovery/base/plain_text.h"
#include "discovery/parsers/link_parsers.h"
#include "discovery/parsers/text_scan.h"

namespace macrame::discovery {
namespace {

using nlohmann::json;

constexpr size_t kDeviceTextBytesMax = 128;
constexpr int kNestingMax = 8;  // docks behind docks
constexpr uint32_t kThunderbolt5Gbps = 80;
constexpr char kDocumentKey[] = "SPThunderboltDataType";

std::string PlainText(const json& entry, const char* key) {
  const auto found = entry.find(key);
  return found != entry.end() && found->is_string()
             ? ToPlainText(found->get<std::string>(), kDeviceTextBytesMax)
             : "";
}

// "80 Gb/s", "Up to 120 Gb/s" → 80, 120; 0 when it is neither.
uint32_t GigabitsOf(std::string_view text) {
  auto words = Words(text);
  if (words.size() == 4 && words[0] == "Up" && words[1] == "to") {
    words.erase(words.begin(), words.begin() + 2);
  }
  if (words.size() != 2 || words[1] != "Gb/s") return 0;
  const auto number = ParseUnsigned(words[0]);
  return number && *number <= 1000 ? static_cast<uint32_t>(*number) : 0;
}

void ReadSpeed(const std::string& text, v1::ThunderboltPort& port) {
  port.set_speed_text(text);
  const uint32_t speed = GigabitsOf(text);
  if (text.starts_with("Up to")) {
    // What the controller could do, told of an idle socket only.
    if (speed == 0) return;
    port.set_is_thunderbolt5(speed >= kThunderbolt5Gbps ? v1::FACT_YES : v1::FACT_NO);
    port.set_controller_evidence(text);
    return;
  }
  port.set_speed_gbps(speed);
  port.set_is_asymmetric(speed > kThunderbolt5Gbps);
  // Only a Thunderbolt 5 controller runs a link at 80; a slower link says nothing about it.
  if (speed >= kThunderbolt5Gbps) {
    port.set_is_thunderbolt5(v1::FACT_YES);
    port.set_controller_evidence(text);
  }
}

v1::Fact OffersRdma(const json& item) {
  const auto services = item.find("services_title");
  if (services == item.end() || !services->is_array()) return v1::FACT_UNKNOWN;
  bool numbers = false;
  for (const json& service : *services) {
    if (!service.is_object()) continue;
    const auto id = service.find("protocol_id_key");
    if (id == service.end()) continue;
    std::optional<uint64_t> number;
    if (id->is_number_unsigned()) number = id->get<uint64_t>();
    if (id->is_string()) number = ParseUnsigned(id->get<std::string>());
    if (!number) continue;
    numbers = true;
    if (*number == kRdmaProtocolId) return v1::FACT_YES;
  }
  // Services without their numbers were cut: the names alone are no answer.
  return numbers ? v1::FACT_NO : v1::FACT_UNKNOWN;
}

// A computer has a domain of its own, or offers services; docks, disks and displays have neither.
bool IsComputer(const json& item) {
  return !PlainText(item, "domain_uuid_key").empty() || item.contains("services_title");
}

void ReadPeers(const json& items, uint32_t devices_between, int depth, v1::ThunderboltPort& port) {
  if (!items.is_array() || depth > kNestingMax) return;
  for (const json& item : items) {
    if (!item.is_object()) continue;
    const bool is_computer = IsComputer(item);
    if (is_computer && port.peers_size() < kPeersPerPortMax) {
      v1::ThunderboltPeer& peer = *port.add_peers();
      peer.set_domain_uuid(PlainText(item, "domain_uuid_key"));
      peer.set_device_name(PlainText(item, "device_name_key"));
      if (peer.device_name().empty()) peer.set_device_name(PlainText(item, "_name"));
      peer.set_advertises_rdma(OffersRdma(item));
      peer.set_devices_between(devices_between);
    }
    const auto inner = item.find("_items");
    if (inner == item.end()) continue;
    ReadPeers(*inner, devices_between + (is_computer ? 0 : 1), depth + 1, port);
  }
}

v1::ThunderboltPort ReadBus(const json& bus) {
  v1::ThunderboltPort port;
  port.set_domain_uuid(PlainText(bus, "domain_uuid_key"));
  port.set_switch_uid(PlainText(bus, "switch_uid_key"));
  const auto tag = bus.find("receptacle_1_tag");
  if (tag != bus.end() && tag->is_object()) {
    const auto socket = ParseUnsigned(PlainText(*tag, "receptacle_id_key"));
    if (socket && *socket <= 64) port.set_socket(static_cast<uint32_t>(*socket));
    const std::string status = PlainText(*tag, "receptacle_status_key");
    if (status == "receptacle_connected") port.set_connected(v1::FACT_YES);
    if (status == "receptacle_no_devices_connected") port.set_connected(v1::FACT_NO);
    ReadSpeed(PlainText(*tag, "current_speed_key"), port);
  }
  const auto items = bus.find("_items");
  if (items != bus.end()) ReadPeers(*items, 0, 0, port);
  return port;
}

}  // namespace

ThunderboltBuses ParseThunderboltBuses(std::string_view text) {
  ThunderboltBuses buses;
  const json document = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return buses;
  const auto list = document.find(kDocumentKey);
  if (list == document.end() || !list->is_array()) return buses;
  buses.read = true;
  for (const json& bus : *list) {
    if (!bus.is_object() || buses.ports.size() >= kThunderboltPortsMax) continue;
    buses.ports.push_back(ReadBus(bus));
  }
  return buses;
}

namespace {

size_t IndentOf(std::string_view line) {
  const size_t at = line.find_first_not_of(' ');
  return at == line.npos ? 0 : at;
}

// Takes the text form line by line: a bus, in it "Port", in it devices, in these others behind them
// or, of computers, their services.
class TextReader {
 public:
  ThunderboltBuses Read(std::string_view text) {
    for (const std::string_view line : WholeLines(text)) Take(line);
    // The last bus may have been cut short: what it did not say is unknown by itself.
    buses_.read = !buses_.ports.empty();
    return std::move(buses_);
  }

 private:
  void Take(std::string_view line) {
    const std::string_view content = Trim(line);
    if (content.empty() || is_full_) return;
    const size_t indent = IndentOf(line);
    if (content.find(" Bus ") != content.npos && content.ends_with(':')) return BeginBus(indent);
    if (buses_.ports.empty()) return;
    std::string_view key, value;
    if (!SplitOnce(content, ":", key, value)) return;
    if (value.empty()) return TakeHeading(key, indent);
    Leave(indent);
    v1::ThunderboltPeer* const peer = around_.empty() ? nullptr : around_.back().peer;
    if (peer != nullptr) {
      TakePeerFact(key, value, *peer);
    } else {
      TakePortFact(key, value, buses_.ports.back());
    }
  }

  void BeginBus(size_t indent) {
    is_full_ = buses_.ports.size() >= kThunderboltPortsMax;
    if (is_full_) return;
    bus_indent_ = indent;
    buses_.ports.emplace_back();
    around_.clear();
    services_indent_.reset();
  }

  static void TakePeerFact(std::string_view key, std::string_view value,
                           v1::ThunderboltPeer& peer) {
    if (key == "Domain UUID") peer.set_domain_uuid(ToPlainText(value, kDeviceTextBytesMax));
    if (key == "Device Name") peer.set_device_name(ToPlainText(value, kDeviceTextBytesMax));
    if (key == "Protocol ID") TakeProtocol(ParseUnsigned(value), peer);
  }

  static void TakePortFact(std::string_view key, std::string_view value,
                           v1::ThunderboltPort& port) {
    if (key == "Domain UUID") {
      port.set_domain_uuid(ToPlainText(value, kDeviceTextBytesMax));
    } else if (key == "UID") {
      port.set_switch_uid(ToPlainText(value, kDeviceTextBytesMax));
    } else if (key == "Status") {
      if (value == "Device connected") port.set_connected(v1::FACT_YES);
      if (value == "No device connected") port.set_connected(v1::FACT_NO);
    } else if (key == "Speed") {
      ReadSpeed(ToPlainText(value, kDeviceTextBytesMax), port);
    } else if (key == "Receptacle") {
      const auto socket = ParseUnsigned(value);
      if (socket && *socket <= 64) port.set_socket(static_cast<uint32_t>(*socket));
    }
  }

  // What stands less far in, or as far, is not within.
  void Leave(size_t indent) {
    while (!around_.empty() && around_.back().indent >= indent) around_.pop_back();
    if (services_indent_ && *services_indent_ >= indent) services_indent_.reset();
  }

  // A heading within the bus that is not "Port" or "Services", nor a service's, is a device.
  void TakeHeading(std::string_view name, size_t indent) {
    if (indent <= bus_indent_) return;
    Leave(indent);
    if (name == "Services") services_indent_ = indent;
    if (name.starts_with("Port") || services_indent_) return;
    const auto between = std::count_if(around_.begin(), around_.end(), [](const Device& device) {
      return device.peer->domain_uuid().empty();
    });
    v1::ThunderboltPort& port = buses_.ports.back();
    const bool is_room = port.peers_size() < kPeersPerPortMax;
    v1::ThunderboltPeer* peer = is_room ? port.add_peers() : &left_out_;
    peer->set_device_name(ToPlainText(name, kDeviceTextBytesMax));
    peer->set_devices_between(static_cast<uint32_t>(between));
    around_.push_back({indent, peer});
  }

  static void TakeProtocol(std::optional<uint64_t> id, v1::ThunderboltPeer& peer) {
    if (!id) return;
    if (*id == kRdmaProtocolId) peer.set_advertises_rdma(v1::FACT_YES);
    if (peer.advertises_rdma() == v1::FACT_UNKNOWN) peer.set_advertises_rdma(v1::FACT_NO);
  }

  struct Device {
    size_t indent;
    v1::ThunderboltPeer* peer;
  };
  ThunderboltBuses buses_;
  std::vector<Device> around_;  // the line, the outermost first
  std::optional<size_t> services_indent_;
  v1::ThunderboltPeer left_out_;  // where there are more than kPeersPerPortMax
  bool is_full_ = false;
  size_t bus_indent_ = 0;
};

}  // namespace

ThunderboltBuses ParseThunderboltText(std::string_view text) {
  ThunderboltBuses buses = TextReader().Read(text);
  for (v1::ThunderboltPort& port : buses.ports) {
    // Devices without a domain are no computers.
    auto* peers = port.mutable_peers();
    for (int i = peers->size() - 1; i >= 0; --i) {
      if (peers->Get(i).domain_uuid().empty()) peers->DeleteSubrange(i, 1);
    }
  }
  return buses;
}

namespace {

// Codes of a lane's speed in USB4: the driver's own bits.
constexpr uint64_t kLane40Gbps = 2;
constexpr uint64_t kLane20Gbps = 4;
constexpr uint64_t kLane10Gbps = 8;

struct IoregPort {
  std::optional<uint64_t> socket, supported, current, width, adapter;
};

std::optional<uint64_t> IoregNumber(std::string_view value) {
  if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
    value = value.substr(1, value.size() - 2);
  }
  return ParseUnsigned(value);
}

uint32_t LinkGbps(const IoregPort& port) {
  if (!port.current || !port.width || *port.width == 0 || *port.width > 4) return 0;
  const uint64_t lane = *port.current == kLane40Gbps   ? 40
                        : *port.current == kLane20Gbps ? 20
                        : *port.current == kLane10Gbps ? 10
                                                       : 0;
  return static_cast<uint32_t>(lane * *port.width);
}

void Keep(const IoregPort& port, std::map<uint32_t, ThunderboltSocket>& sockets) {
  constexpr uint64_t kLaneAdapter = 1;
  if (!port.socket || *port.socket > 64 || !port.supported) return;
  if (port.adapter && *port.adapter != kLaneAdapter) return;
  ThunderboltSocket& socket = sockets[static_cast<uint32_t>(*port.socket)];
  const bool is_fifth = (*port.supported & kLane40Gbps) != 0;
  // Two lanes of one socket agree; if one of them can, the socket can.
  if (socket.is_thunderbolt5 != v1::FACT_YES) {
    socket.is_thunderbolt5 = is_fifth ? v1::FACT_YES : v1::FACT_NO;
    socket.evidence = "\"Supported Link Speed\" = " + std::to_string(*port.supported);
  }
  socket.speed_gbps = std::max(socket.speed_gbps, LinkGbps(port));
}

}  // namespace

std::map<uint32_t, ThunderboltSocket> ParseThunderboltSockets(std::string_view text) {
  std::map<uint32_t, ThunderboltSocket> sockets;
  IoregPort port;
  for (const std::string_view line : WholeLines(text)) {
    const std::string_view content = Trim(line);
    if (content.find("+-o ") != content.npos) {
      Keep(port, sockets);
      port = IoregPort{};
      continue;
    }
    std::string_view key, value;
    if (!SplitOnce(content, " = ", key, value)) continue;
    if (key.find("\"Socket ID\"") != key.npos) port.socket = IoregNumber(value);
    if (key.find("\"Supported Link Speed\"") != key.npos) port.supported = IoregNumber(value);
    if (key.find("\"Current Link Speed\"") != key.npos) port.current = IoregNumber(value);
    if (key.find("\"Current Link Width\"") != key.npos) port.width = IoregNumber(value);
    if (key.find("\"Adapter Type\"") != key.npos) port.adapter = IoregNumber(value);
    if (content == "}") {
      Keep(port, sockets);
      port = IoregPort{};
    }
  }
  Keep(port, sockets);
  return sockets;
}

}  // namespace macrame::discovery
