// Random machines with what is plugged into them, printed in the forms that macOS has and read
// back.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "discovery/parsers/link_parsers.h"

namespace macrame::discovery {
namespace {

// A dock, a disk or, with a domain, a computer; others may be behind it.
struct Device {
  std::string name, domain;
  std::vector<uint64_t> protocols;
  std::vector<Device> behind;
};
struct Bus {
  std::string domain, speed;
  uint32_t socket = 0;
  std::vector<Device> devices;
};

class Machine {
 public:
  explicit Machine(uint32_t seed) : random_(seed) {
    for (uint32_t socket = 1; socket <= 1 + Below(6); ++socket) {
      Bus& bus = buses.emplace_back();
      bus.socket = socket;
      bus.domain = absl::StrCat("own-", socket);
      bus.speed = std::vector<std::string>{"80 Gb/s",  "40 Gb/s",       "20 Gb/s",
                                           "120 Gb/s", "Up to 40 Gb/s", "Up to 120 Gb/s"}[Below(6)];
      for (uint32_t left = Below(3); left > 0; --left) bus.devices.push_back(RandomDevice(0));
    }
  }

  std::vector<Bus> buses;

 private:
  uint32_t Below(uint32_t n) { return random_() % n; }

  Device RandomDevice(int depth) {
    Device device;
    const bool is_computer = Below(2) == 0 || depth > 1;
    device.name = absl::StrCat(is_computer ? "Mac " : "Dock ", ++made_);
    if (is_computer) {
      device.domain = absl::StrCat("domain-", made_);
      for (uint32_t left = Below(3); left > 0; --left) {
        device.protocols.push_back(Below(2) == 0 ? kRdmaProtocolId : 1 + Below(9));
      }
      return device;
    }
    for (uint32_t left = Below(3); left > 0; --left) {
      device.behind.push_back(RandomDevice(depth + 1));
    }
    return device;
  }

  std::mt19937 random_;
  int made_ = 0;
};

nlohmann::json JsonOf(const Device& device) {
  nlohmann::json item = {{"_name", device.name}, {"device_name_key", device.name}};
  if (!device.domain.empty()) item["domain_uuid_key"] = device.domain;
  for (const uint64_t id : device.protocols) {
    item["services_title"].push_back({{"_name", "service"}, {"protocol_id_key", id}});
  }
  for (const Device& one : device.behind) item["_items"].push_back(JsonOf(one));
  return item;
}

std::string JsonOf(const Machine& machine) {
  nlohmann::json buses = nlohmann::json::array();
  for (const Bus& bus : machine.buses) {
    nlohmann::json one = {{"domain_uuid_key", bus.domain}};
    one["receptacle_1_tag"] = {{"receptacle_id_key", std::to_string(bus.socket)},
                               {"current_speed_key", bus.speed},
                               {"receptacle_status_key", "receptacle_connected"}};
    for (const Device& device : bus.devices) one["_items"].push_back(JsonOf(device));
    buses.push_back(std::move(one));
  }
  return nlohmann::json{{"SPThunderboltDataType", buses}}.dump();
}

void AppendText(const Device& device, size_t indent, std::string* out) {
  const std::string at(indent, ' '), in(indent + 2, ' ');
  absl::StrAppend(out, "\n", at, device.name, ":\n\n", in, "Vendor Name: V\n", in,
                  "Device Name: ", device.name, "\n");
  if (!device.domain.empty()) absl::StrAppend(out, in, "Domain UUID: ", device.domain, "\n");
  if (device.domain.empty()) {
    absl::StrAppend(out, in, "Port (Upstream):\n", in, "    Status: Device connected\n", in,
                    "    Speed: 20 Gb/s\n", in, "    Receptacle: 60\n");
  }
  if (!device.protocols.empty()) absl::StrAppend(out, in, "Services:\n");
  for (const uint64_t id : device.protocols) {
    absl::StrAppend(out, in, "  Some Protocol:\n", in, "    Protocol ID: ", id, "\n");
  }
  for (const Device& one : device.behind) AppendText(one, indent + 4, out);
}

std::string TextOf(const Machine& machine) {
  std::string out = "Thunderbolt/USB4:\n";
  for (const Bus& bus : machine.buses) {
    absl::StrAppend(&out, "\n    Thunderbolt/USB4 Bus ", bus.socket,
                    ":\n\n      Domain UUID: ", bus.domain,
                    "\n      Port:\n          Status: Device connected\n",
                    "          Speed: ", bus.speed, "\n          Receptacle: ", bus.socket, "\n");
    for (const Device& device : bus.devices) AppendText(device, 8, &out);
  }
  return out + "\n";
}

// A computer as one line: its domain, its name, how many devices are in between, what it offers.
void AppendPeers(const std::vector<Device>& devices, int between, std::vector<std::string>* out) {
  for (const Device& device : devices) {
    if (device.domain.empty()) {
      AppendPeers(device.behind, between + 1, out);
      continue;
    }
    v1::Fact offers = device.protocols.empty() ? v1::FACT_UNKNOWN : v1::FACT_NO;
    for (const uint64_t id : device.protocols) {
      if (id == kRdmaProtocolId) offers = v1::FACT_YES;
    }
    out->push_back(absl::StrCat(device.domain, " ", device.name, " ", between, " ", offers));
  }
}

std::vector<std::string> PeersOf(const v1::ThunderboltPort& port) {
  std::vector<std::string> peers;
  for (const v1::ThunderboltPeer& peer : port.peers()) {
    peers.push_back(absl::StrCat(peer.domain_uuid(), " ", peer.device_name(), " ",
                                 peer.devices_between(), " ", peer.advertises_rdma()));
  }
  return peers;
}

void ExpectMachine(const ThunderboltBuses& read, const Machine& machine, const char* form) {
  EXPECT_TRUE(read.read) << form;
  ASSERT_EQ(read.ports.size(), machine.buses.size()) << form;
  for (size_t i = 0; i < machine.buses.size(); ++i) {
    const Bus& bus = machine.buses[i];
    const v1::ThunderboltPort& port = read.ports[i];
    EXPECT_EQ(port.domain_uuid(), bus.domain) << form;
    EXPECT_EQ(port.socket(), bus.socket) << form;
    EXPECT_EQ(port.connected(), v1::FACT_YES) << form;
    EXPECT_EQ(port.speed_text(), bus.speed) << form;
    std::vector<std::string> peers;
    AppendPeers(bus.devices, 0, &peers);
    EXPECT_EQ(PeersOf(port), peers) << form;
  }
}

TEST(ThunderboltForms, BothTellTheSameOfAnyMachine) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const Machine machine(seed);
    ExpectMachine(ParseThunderboltBuses(JsonOf(machine)), machine, "JSON");
    ExpectMachine(ParseThunderboltText(TextOf(machine)), machine, "text");
  }
}

// What is not there yet when the text ends is unknown; what is there is as it was.
TEST(ThunderboltForms, ATextThatIsCutInventsNothing) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    const Machine machine(seed);
    const std::string text = TextOf(machine);
    for (size_t size = 0; size < text.size(); ++size) {
      const ThunderboltBuses cut = ParseThunderboltText(text.substr(0, size));
      ASSERT_LE(cut.ports.size(), machine.buses.size());
      for (size_t i = 0; i < cut.ports.size(); ++i) {
        const v1::ThunderboltPort& port = cut.ports[i];
        EXPECT_TRUE(port.domain_uuid().empty() || port.domain_uuid() == machine.buses[i].domain);
        std::vector<std::string> peers;
        AppendPeers(machine.buses[i].devices, 0, &peers);
        ASSERT_LE(port.peers_size(), static_cast<int>(peers.size()));
        for (int k = 0; k < port.peers_size(); ++k) {
          const std::string begin = absl::StrCat(port.peers(k).domain_uuid(), " ");
          EXPECT_TRUE(peers[static_cast<size_t>(k)].starts_with(begin)) << begin;
        }
      }
    }
  }
}

TEST(ThunderboltForms, MorePeersThanThereCanBeChangeNothingOfTheOthers) {
  Machine machine(1);
  machine.buses.resize(1);
  machine.buses[0].devices.clear();
  for (int i = 0; i < kPeersPerPortMax + 3; ++i) {
    machine.buses[0].devices.push_back(
        {absl::StrCat("Mac ", i), absl::StrCat("domain-", i), {kRdmaProtocolId}, {}});
  }
  machine.buses[0].devices[kPeersPerPortMax - 1].protocols = {1};
  for (const ThunderboltBuses& read :
       {ParseThunderboltBuses(JsonOf(machine)), ParseThunderboltText(TextOf(machine))}) {
    ASSERT_EQ(read.ports.size(), 1u);
    EXPECT_EQ(read.ports[0].domain_uuid(), "own-1");
    ASSERT_EQ(read.ports[0].peers_size(), kPeersPerPortMax);
    const v1::ThunderboltPeer& last = read.ports[0].peers(kPeersPerPortMax - 1);
    EXPECT_EQ(last.domain_uuid(), absl::StrCat("domain-", kPeersPerPortMax - 1));
    EXPECT_EQ(last.advertises_rdma(), v1::FACT_NO);
  }
}

TEST(ThunderboltForms, EveryLineMayEndInACarriageReturn) {
  const Machine machine(4);
  std::string text;
  for (const char c : TextOf(machine)) text += c == '\n' ? "\r\n" : std::string(1, c);
  ExpectMachine(ParseThunderboltText(text), machine, "text");
}

}  // namespace
}  // namespace macrame::discovery
