// Random machines' networks, printed as macOS prints them and read back.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "discovery/base/interfaces.h"
#include "discovery/parsers/link_parsers.h"

namespace macrame::discovery {
namespace {

struct Address {
  std::string ip;
  uint32_t prefix = 0;
};
struct Nic {
  std::string name;
  bool is_up = true, is_running = true, is_promiscuous = false, is_tunnel = false;
  std::string status;  // empty: no such line
  uint32_t mtu = 1500;
  std::vector<Address> addresses;
  std::vector<std::string> members;  // of a bridge
};
struct Route {
  std::string destination, gateway, interface_name, flags;
};

class Network {
 public:
  explicit Network(uint32_t seed) : random_(seed) {
    const uint32_t count = 1 + Below(8);
    for (uint32_t i = 0; i < count; ++i) nics.push_back(RandomNic(i));
    if (Below(2) == 0) {
      Nic bridge = RandomNic(99);
      bridge.name = "bridge0";
      bridge.is_tunnel = false;
      for (const Nic& nic : nics) {
        if (Below(3) == 0) bridge.members.push_back(nic.name);
      }
      nics.insert(nics.begin() + Below(static_cast<uint32_t>(nics.size())), bridge);
    }
    for (uint32_t left = Below(12); left > 0; --left) routes.push_back(RandomRoute());
  }

  std::vector<Nic> nics;
  std::vector<Route> routes;

 private:
  uint32_t Below(uint32_t n) { return random_() % n; }
  bool Chance() { return Below(2) == 0; }
  std::string Ip() {
    return absl::StrCat(1 + Below(223), ".", Below(256), ".", Below(256), ".", Below(256));
  }

  Nic RandomNic(uint32_t number) {
    Nic nic;
    nic.is_tunnel = Below(4) == 0;
    nic.name = absl::StrCat(nic.is_tunnel ? "utun" : "en", number);
    nic.is_up = Chance();
    nic.is_running = Chance();
    nic.is_promiscuous = Chance();
    nic.status = std::vector<std::string>{"", "active", "inactive"}[Below(3)];
    nic.mtu = Chance() ? 1500 : 9000 + Below(1000);
    for (uint32_t left = Below(4); left > 0; --left) {
      if (Chance()) {
        nic.addresses.push_back({Ip(), Below(33)});
      } else {
        nic.addresses.push_back({absl::StrFormat("fd00::%x", 1 + Below(65535)), Below(129)});
      }
    }
    return nic;
  }

  Route RandomRoute() {
    static const std::vector<std::string> kFlags = {"UCS",  "UGSc", "UGScg", "UHLWIir", "UCSI",
                                                    "UHRS", "UBcS", "UmCS",  "UGScIg"};
    const std::string interface_name = nics[Below(static_cast<uint32_t>(nics.size()))].name;
    const std::string to = Below(4) == 0 ? "default" : absl::StrCat(Ip(), "/", 8 + Below(25));
    const std::string gateway = Chance() ? Ip() : absl::StrCat("link#", Below(30));
    return {to, gateway, interface_name, kFlags[Below(static_cast<uint32_t>(kFlags.size()))]};
  }

  std::mt19937 random_;
};

std::string IfconfigOf(const Network& network) {
  std::string out;
  for (const Nic& nic : network.nics) {
    absl::StrAppend(&out, nic.name, ": flags=8863<", nic.is_up ? "UP," : "", "BROADCAST",
                    nic.is_running ? ",RUNNING" : "", nic.is_promiscuous ? ",PROMISC" : "",
                    ",SIMPLEX,MULTICAST> mtu ", nic.mtu, "\n\toptions=400<CHANNEL_IO>\n");
    for (const Address& address : nic.addresses) {
      if (address.ip.find(':') != std::string::npos) {
        absl::StrAppend(&out, "\tinet6 ", address.ip, "%", nic.name, " prefixlen ", address.prefix,
                        " scopeid 0x4\n");
        continue;
      }
      const uint32_t mask = address.prefix == 0 ? 0 : ~uint32_t{0} << (32 - address.prefix);
      absl::StrAppend(&out, "\tinet ", address.ip, nic.is_tunnel ? " --> 100.64.0.2" : "",
                      " netmask ", absl::StrFormat("0x%08x", mask),
                      nic.is_tunnel ? "" : " broadcast 255.255.255.255", "\n");
    }
    if (!nic.members.empty()) absl::StrAppend(&out, "\tConfiguration:\n\t\tid 0:0:0:0:0:0\n");
    for (const std::string& member : nic.members) {
      absl::StrAppend(&out, "\tmember: ", member, " flags=3<LEARNING,DISCOVER>\n");
    }
    if (!nic.status.empty()) absl::StrAppend(&out, "\tstatus: ", nic.status, "\n");
  }
  return out;
}

std::string NetstatOf(const Network& network) {
  std::string out =
      "Routing tables\n\nInternet:\n"
      "Destination        Gateway            Flags               Netif Expire\n";
  for (const Route& route : network.routes) {
    absl::StrAppend(&out, route.destination, "   ", route.gateway, "  ", route.flags, "   ",
                    route.interface_name, route.flags.size() % 2 == 0 ? "   1170\n" : "      !\n");
  }
  return out;
}

void ExpectNic(const v1::LinkInterface& read, const Nic& nic, const std::string& bridge) {
  EXPECT_EQ(read.name(), nic.name);
  EXPECT_EQ(read.is_up(), nic.is_up && nic.is_running ? v1::FACT_YES : v1::FACT_NO) << nic.name;
  EXPECT_EQ(read.is_promiscuous(), nic.is_promiscuous) << nic.name;
  EXPECT_EQ(read.mtu(), nic.mtu) << nic.name;
  EXPECT_EQ(read.bridge(), bridge) << nic.name;
  EXPECT_EQ(read.has_carrier(), nic.status == "active"     ? v1::FACT_YES
                                : nic.status == "inactive" ? v1::FACT_NO
                                                           : v1::FACT_UNKNOWN);
  ASSERT_EQ(read.addresses_size(), static_cast<int>(nic.addresses.size())) << nic.name;
  for (int i = 0; i < read.addresses_size(); ++i) {
    EXPECT_EQ(read.addresses(i).ip(), nic.addresses[static_cast<size_t>(i)].ip);
    EXPECT_EQ(read.addresses(i).prefix_length(), nic.addresses[static_cast<size_t>(i)].prefix);
  }
}

TEST(NetworkForms, InterfacesAreReadAsTheyArePrinted) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    const Network network(seed);
    const IfconfigAnswer read = ParseIfconfig(IfconfigOf(network));
    ASSERT_EQ(read.interfaces.size(), network.nics.size());
    std::vector<std::string> members;
    for (const Nic& nic : network.nics) {
      if (nic.name == "bridge0") members = nic.members;
    }
    for (size_t i = 0; i < network.nics.size(); ++i) {
      const Nic& nic = network.nics[i];
      const bool is_member = std::find(members.begin(), members.end(), nic.name) != members.end();
      ExpectNic(read.interfaces[i], nic, is_member ? "bridge0" : "");
    }
    for (const v1::NetworkBridge& bridge : read.bridges) {
      EXPECT_EQ(std::vector<std::string>(bridge.members().begin(), bridge.members().end()),
                members);
    }
  }
}

TEST(NetworkForms, RoutesThatDecideAreReadAsTheyArePrinted) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    const Network network(seed);
    const RoutingTable table = ParseRoutes(NetstatOf(network));
    EXPECT_TRUE(table.read);
    size_t at = 0;
    for (const Route& route : network.routes) {
      // Only programs that name an interface take these.
      if (route.flags.find('I') != std::string::npos) continue;
      ASSERT_LT(at, table.routes.size());
      const v1::NetworkRoute& read = table.routes[at++];
      EXPECT_EQ(read.destination(), route.destination);
      EXPECT_EQ(read.interface_name(), route.interface_name);
      EXPECT_EQ(read.gateway(), route.gateway.starts_with("link#") ? "" : route.gateway);
      EXPECT_EQ(read.is_reject(), route.flags.find_first_of("RB") != std::string::npos);
    }
    EXPECT_EQ(at, table.routes.size());
  }
}

TEST(NetworkForms, WhatIsCutLacksItsEndAndNothingElse) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    const Network network(seed);
    const std::string text = IfconfigOf(network);
    for (size_t size = 0; size < text.size(); ++size) {
      const IfconfigAnswer cut = ParseIfconfig(text.substr(0, size));
      ASSERT_LE(cut.interfaces.size(), network.nics.size());
      for (size_t i = 0; i < cut.interfaces.size(); ++i) {
        const Nic& nic = network.nics[i];
        EXPECT_EQ(cut.interfaces[i].name(), nic.name);
        ASSERT_LE(cut.interfaces[i].addresses_size(), static_cast<int>(nic.addresses.size()));
        for (int k = 0; k < cut.interfaces[i].addresses_size(); ++k) {
          const Address& address = nic.addresses[static_cast<size_t>(k)];
          EXPECT_EQ(cut.interfaces[i].addresses(k).ip(), address.ip);
          EXPECT_EQ(cut.interfaces[i].addresses(k).prefix_length(), address.prefix);
        }
      }
    }
  }
}

TEST(NetworkForms, PortsAndServicesNameTheSameDevices) {
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    std::string ports = "\n", order = "An asterisk (*) denotes that a network service is off.\n";
    std::map<std::string, std::string> expected;
    std::vector<bool> enabled;
    const uint32_t count = 1 + random() % 7;
    for (uint32_t i = 0; i < count; ++i) {
      const std::string port = absl::StrCat("Thunderbolt ", i), device = absl::StrCat("en", i + 2);
      expected[device] = port;
      enabled.push_back(random() % 2 == 0);
      absl::StrAppend(&ports, "Hardware Port: ", port, "\nDevice: ", device,
                      "\nEthernet Address: 36:00:00:00:00:01\n\n");
      absl::StrAppend(&order, "(", enabled.back() ? absl::StrCat(i + 1) : "*", ") My (own) ", port,
                      "\n(Hardware Port: ", port, ", Device: ", device, ")\n\n");
    }
    EXPECT_EQ(ParseHardwarePortNames(ports), expected);
    const std::vector<NetworkService> services = ParseServiceOrder(order);
    ASSERT_EQ(services.size(), count);
    for (size_t i = 0; i < services.size(); ++i) {
      EXPECT_EQ(expected.at(services[i].device), services[i].hardware_port);
      EXPECT_EQ(services[i].name, "My (own) " + services[i].hardware_port);
      EXPECT_EQ(services[i].is_enabled, enabled[i]);
    }
  }
}

}  // namespace
}  // namespace macrame::discovery
