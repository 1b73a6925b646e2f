// Holds the verdicts against expected-verdicts.yaml of capture folders laid out as:
// system_profiler/, network/, host/, rdma/ and that file. Folders come from MACRAME_EXTRA_CAPTURES
// (colon-separated); without it there is nothing to hold, and the project's own sets are held by
// fake_clusters_test.
//
// Given for every set, as such a file says in its heading: the macOS, rdma_ctl and port maps of the
// folder, no bridge, one /30 a link, and the IPv4-mapped GID at index 1.

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "discovery/parsers/link_parsers.h"
#include "discovery/probe/link_facts.h"
#include "discovery/probe/mac_probe.h"
#include "transport/links/judge.h"
#include "transport/links/link_ends.h"

namespace macrame::tests {
namespace {

namespace fs = std::filesystem;

std::string Slurp(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<fs::path> Folders() {
  const char* list = std::getenv("MACRAME_EXTRA_CAPTURES");
  std::vector<fs::path> folders;
  for (const absl::string_view folder : absl::StrSplit(list == nullptr ? "" : list, ':')) {
    const fs::path path{std::string(folder)};
    if (!folder.empty() && fs::exists(path / "expected-verdicts.yaml")) folders.push_back(path);
  }
  return folders;
}

// What a Mac of a set answers; made from the folder's files and the set's cables.
class GivenMac : public discovery::CommandRunner {
 public:
  void Set(const discovery::Command& command, std::string out) {
    discovery::CommandResult result;
    result.outcome = discovery::CommandOutcome::kExited;
    result.exit_code = 0;
    result.out = std::move(out);
    answers_[CommandLine(command)] = result;
  }
  discovery::CommandResult Run(const discovery::Command& command) override {
    const auto found = answers_.find(CommandLine(command));
    if (found != answers_.end()) return found->second;
    discovery::CommandResult missing;
    missing.outcome = discovery::CommandOutcome::kTimedOut;  // not captured: not known
    return missing;
  }

 private:
  std::map<std::string, discovery::CommandResult> answers_;
};

struct GivenAddress {
  std::string interface, ip;
};

std::string Ifconfig(const std::vector<std::string>& interfaces,
                     const std::vector<GivenAddress>& addresses) {
  std::string text;
  for (const std::string& name : interfaces) {
    absl::StrAppend(&text, name, ": flags=8863<UP,BROADCAST,RUNNING> mtu 1500\n");
    for (const GivenAddress& address : addresses) {
      if (address.interface == name) {
        absl::StrAppend(&text, "\tinet ", address.ip, " netmask 0xfffffffc broadcast 0.0.0.0\n");
      }
    }
    absl::StrAppend(&text, "\tstatus: active\n");
  }
  return text;
}

std::string Devinfo(const std::vector<std::string>& interfaces,
                    const std::vector<GivenAddress>& addresses) {
  std::string text;
  for (const std::string& name : interfaces) {
    absl::StrAppend(&text, "hca_id:\trdma_", name, "\n\ttransport:\tThunderbolt (100)\n");
    absl::StrAppend(&text,
                    "\t\tport:\t1\n\t\t\tstate:\tPORT_ACTIVE (4)\n\t\t\tgid_tbl_len:\t1024\n",
                    "\t\t\tGID[  0]:\tfe80::1\n");
    for (const GivenAddress& address : addresses) {
      if (address.interface == name) {
        absl::StrAppend(&text, "\t\t\tGID[  1]:\t::ffff:", address.ip, "\n");
      }
    }
  }
  return text;
}

std::string Routes(const std::vector<GivenAddress>& addresses) {
  std::string text = "Routing tables\n\nInternet:\nDestination Gateway Flags Netif Expire\n";
  for (const GivenAddress& address : addresses) {
    const size_t dot = address.ip.rfind('.');
    const int last = std::atoi(address.ip.c_str() + dot + 1);
    absl::StrAppend(&text, address.ip.substr(0, dot), ".", last / 4 * 4, "/30 link#9 UCS ",
                    address.interface, " !\n");
  }
  return text;
}

struct SetOfMacs {
  std::vector<std::string> names;  // "node1", …
  v1::LinkSnapshot snapshot;
};

class Builder {
 public:
  Builder(fs::path folder, std::string set, int nodes)
      : folder_(std::move(folder)), set_(std::move(set)), nodes_(nodes) {}

  SetOfMacs Build() {
    for (int i = 1; i <= nodes_; ++i) {
      json_.push_back(Slurp(folder_ / "system_profiler" / absl::StrCat(set_, "-node", i, ".json")));
      EXPECT_FALSE(json_.back().empty()) << set_ << " node " << i;
      buses_.push_back(discovery::ParseThunderboltBuses(json_.back()));
      ports_.push_back(Slurp(folder_ / "network" / PortMapOf(json_.back())));
    }
    GiveAddresses();
    SetOfMacs out;
    for (int i = 0; i < nodes_; ++i) {
      v1::NodeLinks& node = *out.snapshot.add_nodes();
      out.names.push_back(absl::StrCat("node", i + 1));
      node.set_node_id(out.names.back());
      *node.mutable_facts() = Collect(i);
    }
    return out;
  }

 private:
  static std::string PortMapOf(const std::string& json) {
    return absl::StrContains(json, "\"Mac Studio\"") &&
                   json.find("\"Mac Studio\"") < json.find("thunderboltusb4_bus") + 400 &&
                   OwnName(json) == "Mac Studio"
               ? "hardware-ports-m3ultra-studio-trimmed.txt"
               : "hardware-ports-m4pro-mini.txt";
  }

  // The bus's own device name, which stands beside its domain, not inside an item.
  static std::string OwnName(const std::string& json) {
    const YAML::Node document = YAML::Load(json);
    return document["SPThunderboltDataType"][0]["device_name_key"].as<std::string>("");
  }

  std::string InterfaceOf(int node, uint32_t socket) const {
    for (const auto& [device, name] : discovery::ParseHardwarePortNames(ports_[node])) {
      if (name == absl::StrCat("Thunderbolt ", socket)) return device;
    }
    return "";
  }

  void GiveAddresses() {
    addresses_.resize(nodes_);
    int link = 0;
    for (int a = 0; a < nodes_; ++a) {
      for (const v1::ThunderboltPort& port : buses_[a].ports) {
        for (const v1::ThunderboltPeer& peer : port.peers()) {
          for (int b = a + 1; b < nodes_; ++b) {
            for (const v1::ThunderboltPort& other : buses_[b].ports) {
              if (other.domain_uuid() != peer.domain_uuid() || peer.domain_uuid().empty()) continue;
              const std::string base = absl::StrCat("10.77.", link / 64, ".");
              addresses_[a].push_back(
                  {InterfaceOf(a, port.socket()), absl::StrCat(base, link % 64 * 4 + 1)});
              addresses_[b].push_back(
                  {InterfaceOf(b, other.socket()), absl::StrCat(base, link % 64 * 4 + 2)});
              ++link;
            }
          }
        }
      }
    }
  }

  v1::LinkFacts Collect(int node) {
    std::vector<std::string> interfaces;
    bool is_fifth = false;
    for (const v1::ThunderboltPort& port : buses_[node].ports) {
      interfaces.push_back(InterfaceOf(node, port.socket()));
      is_fifth = is_fifth || port.is_thunderbolt5() == v1::FACT_YES;
    }
    GivenMac mac;
    mac.Set(discovery::ThunderboltCommand(), json_[node]);
    mac.Set(discovery::HardwarePortsCommand(), ports_[node]);
    mac.Set(discovery::SwVersCommand(), Slurp(folder_ / "host" / "sw_vers-26.5.1.txt"));
    mac.Set(discovery::RdmaCtlCommand(), "enabled\n");
    mac.Set(discovery::IfconfigCommand(), Ifconfig(interfaces, addresses_[node]));
    mac.Set(discovery::RoutesCommand(), Routes(addresses_[node]));
    std::string list =
        "    device          \t   node GUID\n    ------          \t----------------\n";
    if (is_fifth) {
      for (const std::string& name : interfaces) {
        absl::StrAppend(&list, "    rdma_", name, "  00000000000000aa\n");
      }
      mac.Set(discovery::IbvDevinfoCommand(), Devinfo(interfaces, addresses_[node]));
    }
    mac.Set(discovery::IbvDevicesCommand(), list);
    discovery::LinkInputs inputs;
    inputs.node_id = NodeId(absl::StrCat("node", node + 1));
    inputs.hostname = absl::StrCat("node", node + 1);
    return discovery::CollectMacLinks(mac, inputs);
  }

  const fs::path folder_;
  const std::string set_;
  const int nodes_;
  std::vector<std::string> json_, ports_;
  std::vector<discovery::ThunderboltBuses> buses_;
  std::vector<std::vector<GivenAddress>> addresses_;
};

std::string EndText(const v1::LinkEnd& end) {
  return absl::StrCat(end.node_id(), " socket ", end.socket());
}

void HoldLinks(const YAML::Node& expected, const v1::ClusterLinks& links) {
  std::set<std::string> wanted, seen;
  for (const YAML::Node& link : expected["links"]) {
    wanted.insert(absl::StrCat(link["a"].as<std::string>(), " - ", link["b"].as<std::string>(), " ",
                               link["speed"].as<std::string>()));
  }
  for (const v1::LinkVerdict& link : links.links()) {
    seen.insert(
        absl::StrCat(EndText(link.a()), " - ", EndText(link.b()), " ", link.speed_gbps(), " Gb/s"));
  }
  EXPECT_EQ(seen, wanted);
}

void HoldMatrix(const YAML::Node& expected, const v1::ClusterLinks& links,
                const std::vector<std::string>& names) {
  const std::vector<v1::DeviceRow> matrix = transport::DeviceMatrix(links, names, false);
  ASSERT_EQ(expected["matrix"].size(), matrix.size());
  for (size_t r = 0; r < matrix.size(); ++r) {
    for (size_t c = 0; c < matrix.size(); ++c) {
      const YAML::Node cell = expected["matrix"][r][c];
      std::vector<std::string> wanted;
      if (cell.IsScalar()) wanted.push_back(cell.as<std::string>());
      if (cell.IsSequence()) wanted = cell.as<std::vector<std::string>>();
      const auto& devices = matrix[r].cells(static_cast<int>(c)).devices();
      EXPECT_EQ(std::vector<std::string>(devices.begin(), devices.end()), wanted)
          << "row " << r << " column " << c;
    }
  }
}

TEST(ExpectedVerdicts, OfWholeSets) {
  if (Folders().empty()) GTEST_SKIP() << "MACRAME_EXTRA_CAPTURES names no such folder";
  for (const fs::path& folder : Folders()) {
    const YAML::Node file = YAML::LoadFile((folder / "expected-verdicts.yaml").string());
    for (const YAML::Node& set : file["sets"]) {
      SCOPED_TRACE(set["set"].as<std::string>());
      const SetOfMacs macs =
          Builder(folder, set["set"].as<std::string>(), set["nodes"].as<int>()).Build();
      const v1::ClusterLinks links = transport::JudgeLinks(macs.snapshot);
      HoldLinks(set, links);
      HoldMatrix(set, links, macs.names);
      EXPECT_EQ(links.group().verdict(), set["verdict"].as<std::string>());
      std::set<std::string> reasons, wanted;
      for (const v1::Reason& reason : links.group().reasons()) reasons.insert(reason.code());
      for (const YAML::Node& reason : set["reasons"]) wanted.insert(reason.as<std::string>());
      EXPECT_EQ(reasons, wanted);
    }
  }
}

// Codes that a single machine's output can bear out.
std::set<std::string> CodesOf(const v1::LinkFacts& facts, const v1::ThunderboltPort& port) {
  const v1::ThunderboltPeer* peer = port.peers().empty() ? nullptr : &port.peers(0);
  std::set<std::string> codes;
  const auto verdict = transport::JudgeEnd(facts, port, peer, nullptr, nullptr);
  for (const v1::Reason& reason : verdict.reasons) codes.insert(reason.code());
  return codes;
}

v1::LinkFacts SingleFacts(const fs::path& folder, const YAML::Node& single) {
  GivenMac mac;
  const std::string name = single["file"].as<std::string>();
  mac.Set(discovery::ThunderboltCommand(), Slurp(folder / "system_profiler" / name));
  mac.Set(discovery::SwVersCommand(), Slurp(folder / "host" / "sw_vers-26.5.1.txt"));
  const std::string with = single["with"].as<std::string>("");
  for (const absl::string_view part : absl::StrSplit(with, ", ", absl::SkipEmpty())) {
    const std::string text = Slurp(folder / "rdma" / std::string(part));
    EXPECT_FALSE(text.empty()) << part;
    if (absl::StartsWith(part, "rdma_ctl")) mac.Set(discovery::RdmaCtlCommand(), text);
    if (absl::StartsWith(part, "ibv_devinfo")) mac.Set(discovery::IbvDevinfoCommand(), text);
  }
  return discovery::CollectMacLinks(mac, discovery::LinkInputs{NodeId("one"), "one", ""});
}

std::set<std::string> ListOf(const YAML::Node& node) {
  std::set<std::string> list;
  for (const YAML::Node& entry : node) list.insert(entry.as<std::string>());
  return list;
}

void HoldSingle(const YAML::Node& single, const v1::LinkFacts& facts) {
  int peers = 0;
  std::set<std::string> all;
  for (const v1::ThunderboltPort& port : facts.ports()) {
    if (port.peers().empty()) continue;
    peers += port.peers_size();
    const std::set<std::string> codes = CodesOf(facts, port);
    all.insert(codes.begin(), codes.end());
    const YAML::Node by_socket = single["reasons_by_socket"];
    if (by_socket && by_socket[port.socket()]) {
      EXPECT_EQ(codes, ListOf(by_socket[port.socket()])) << "socket " << port.socket();
    }
    if (single["peer_socket"]) {
      EXPECT_EQ(port.socket(), single["peer_socket"].as<uint32_t>());
    }
    if (single["speed"]) {
      EXPECT_EQ(absl::StrCat(port.speed_gbps(), " Gb/s"), single["speed"].as<std::string>());
    }
    if (single["peer_advertises_rdma"]) {
      EXPECT_EQ(port.peers(0).advertises_rdma(),
                single["peer_advertises_rdma"].as<bool>() ? v1::FACT_YES : v1::FACT_NO);
    }
  }
  EXPECT_EQ(peers, single["peers"].as<int>());
  if (peers == 0) {
    for (const v1::ThunderboltPort& port : facts.ports()) {
      const std::set<std::string> codes = CodesOf(facts, port);
      all.insert(codes.begin(), codes.end());
    }
    if (facts.has_thunderbolt() == v1::FACT_NO) all.insert("NO_THUNDERBOLT");
  }
  if (single["reasons"]) {
    EXPECT_EQ(all, ListOf(single["reasons"]));
  }
}

TEST(ExpectedVerdicts, OfSingleMachines) {
  if (Folders().empty()) GTEST_SKIP() << "MACRAME_EXTRA_CAPTURES names no such folder";
  for (const fs::path& folder : Folders()) {
    const YAML::Node file = YAML::LoadFile((folder / "expected-verdicts.yaml").string());
    for (const YAML::Node& single : file["single_files"]) {
      SCOPED_TRACE(single["file"].as<std::string>());
      HoldSingle(single, SingleFacts(folder, single));
    }
  }
}

}  // namespace
}  // namespace macrame::tests
