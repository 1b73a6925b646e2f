// Every parser of link facts on whole captures: of the simulated clusters, and of further folders
// (MACRAME_EXTRA_CAPTURES), where a file's name begins with what printed it. Then the same files
// cut at every byte and damaged: nothing may crash, and a cut may never turn a "yes" into a "no".

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "discovery/parsers/link_parsers.h"
#include "discovery/parsers/text_scan.h"
#include "tests/unit/discovery/fake_cluster.h"
#include "tests/unit/discovery/mutation.h"

namespace macrame::discovery {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> FilesBelow(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.file_size() < 1u << 20) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool Has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

// Checks hold what is read against what stands in the file: one that is cut or empty on purpose
// need not be readable. True when the name is known.
bool CheckThunderbolt(const std::string& name, const std::string& text) {
  if (name.starts_with("thunderbolt-text")) {
    EXPECT_EQ(ParseThunderboltText(text).read, Has(text, " Bus ")) << name;
    return true;
  }
  if (name.starts_with("thunderbolt-") && name.ends_with(".json")) {
    const ThunderboltBuses buses = ParseThunderboltBuses(text);
    const bool is_whole = nlohmann::json::accept(text) && Has(text, "SPThunderboltDataType");
    EXPECT_EQ(buses.read, is_whole) << name;
    for (const v1::ThunderboltPort& port : buses.ports) {
      if (port.peers_size() > 0 && Has(port.speed_text(), " Gb/s")) {
        EXPECT_GT(port.speed_gbps(), 0u) << name;
      }
    }
    return true;
  }
  if (name.starts_with("ioreg-thunderbolt")) {
    const bool tells = Has(text, "\"Socket ID\"") && Has(text, "\"Supported Link Speed\"");
    EXPECT_EQ(ParseThunderboltSockets(text).empty(), !tells) << name;
    return true;
  }
  return false;
}

bool CheckRdma(const std::string& name, const std::string& text) {
  if (name.starts_with("ibv_devices-")) {
    const auto devices = ParseIbvDevices(text);
    EXPECT_EQ(devices.has_value(), Has(text, "node GUID")) << name;
    EXPECT_EQ(devices && !devices->empty(), Has(text, "rdma_")) << name;
    return true;
  }
  if (name.starts_with("ibv_devinfo-")) {
    const auto devices = ParseIbvDevinfo(text);
    EXPECT_EQ(devices.empty(), !Has(text, "hca_id")) << name;
    size_t down = 0, active = 0, with_gids = 0;
    for (const v1::RdmaDevice& device : devices) {
      if (device.port_state() == v1::RDMA_PORT_STATE_DOWN) ++down;
      if (device.port_state() == v1::RDMA_PORT_STATE_ACTIVE) ++active;
      if (device.gids_size() > 0) ++with_gids;
    }
    EXPECT_EQ(down > 0, Has(text, "PORT_DOWN")) << name;
    EXPECT_EQ(active > 0, Has(text, "PORT_ACTIVE")) << name;
    EXPECT_EQ(with_gids > 0, Has(text, "GID[")) << name;
    return true;
  }
  if (name.starts_with("rdma_ctl-status")) {
    const v1::Fact fact = ParseRdmaCtl(text);
    EXPECT_EQ(fact == v1::FACT_YES, Trim(text) == "enabled") << name;
    EXPECT_EQ(fact == v1::FACT_NO, Trim(text) == "disabled") << name;
    return true;
  }
  if (name.starts_with("ioclasscount")) {
    EXPECT_EQ(ParseClassCounts(text).empty(), !Has(text, " = ")) << name;
    return true;
  }
  return false;
}

bool CheckKernel(const std::string& name, const std::string& text) {
  if (name.starts_with("kmutil-showloaded")) {
    const v1::Fact expected = !Has(text, "Index Refs") ? v1::FACT_UNKNOWN
                              : Has(text, "com.apple.driver.AppleThunderboltRDMA") ? v1::FACT_YES
                                                                                   : v1::FACT_NO;
    EXPECT_EQ(ParseKextLoaded(text, "com.apple.driver.AppleThunderboltRDMA"), expected) << name;
    return true;
  }
  if (name.starts_with("kernel-log")) {
    const KernelLog log = ParseKernelLog(text);
    EXPECT_EQ(log.read, Has(text, "Timestamp")) << name;
    EXPECT_EQ(log.refuses_rdma == v1::FACT_YES, Has(text, "does not support Thunderbolt 5"))
        << name;
    return true;
  }
  return false;
}

bool CheckNetwork(const std::string& name, const std::string& text) {
  if (name.starts_with("hardware-ports") || name.starts_with("listallhardwareports")) {
    EXPECT_EQ(ParseHardwarePortNames(text).empty(), !Has(text, "\nDevice: ")) << name;
  } else if (name.starts_with("service-order")) {
    EXPECT_EQ(ParseServiceOrder(text).empty(), !Has(text, "(Hardware Port:")) << name;
  } else if (name.starts_with("ifconfig")) {
    EXPECT_EQ(ParseIfconfig(text).interfaces.empty(), !Has(text, ": flags=")) << name;
  } else if (name.starts_with("netstat-rn")) {
    EXPECT_EQ(ParseRoutes(text).read, Has(text, "Gateway")) << name;
  } else if (name.starts_with("internet-sharing-devices")) {
    EXPECT_EQ(ParseSharingDevices(text).has_value(), nlohmann::json::accept(text)) << name;
  } else {
    return false;
  }
  return true;
}

// Gives the text to all of them: any output may come from any command.
void RunAll(const std::string& text) {
  ParseThunderboltBuses(text);
  ParseThunderboltText(text);
  ParseThunderboltSockets(text);
  ParseHardwarePortNames(text);
  ParseServiceOrder(text);
  ParseIfconfig(text);
  ParseRoutes(text);
  ParseIbvDevices(text);
  ParseIbvDevinfo(text);
  ParseRdmaCtl(text);
  ParseClassCounts(text);
  ParseKextLoaded(text, "com.apple.iokit.IORDMAFamily");
  ParseKernelLog(text);
  ParsePowerSettings(text);
  ParseSharingDevices(text);
}

TEST(LinkCaptures, FurtherFoldersAreRead) {
  if (tests::ExtraCaptures().empty()) GTEST_SKIP() << "MACRAME_EXTRA_CAPTURES is not set";
  size_t known = 0;
  for (const fs::path& path : FilesBelow(tests::ExtraCaptures())) {
    const std::string name = path.filename().string();
    std::string text = tests::ReadWholeFile(path);
    if (!name.ends_with(".json") && !text.empty()) text += '\n';  // captures may lack the last one
    const bool is_known = CheckThunderbolt(name, text) || CheckRdma(name, text) ||
                          CheckKernel(name, text) || CheckNetwork(name, text);
    if (is_known) ++known;
    RunAll(text);
  }
  EXPECT_GT(known, 0u) << "nothing in " << tests::ExtraCaptures() << " has a name that is known";
}

TEST(LinkCaptures, DamageToAnyOfThemIsSurvived) {
  std::vector<fs::path> files = FilesBelow(tests::MakeCluster("tb4-beside-tb5"));
  if (!tests::ExtraCaptures().empty()) {
    for (const fs::path& path : FilesBelow(tests::ExtraCaptures())) files.push_back(path);
  }
  std::mt19937_64 random(20261121);
  for (const fs::path& path : files) {
    if (path.extension() == ".yaml" || path.extension() == ".md") continue;
    const std::string text = tests::ReadWholeFile(path);
    for (int i = 0; i < 10; ++i) RunAll(tests::Mutate(text, random));
  }
}

// A whole Mac whose commands print ever less: facts may become unknown, never wrong.
TEST(LinkCaptures, ACutOutputNeverTurnsAYesIntoANo) {
  const std::string folder = tests::MakeCluster("mesh-2");
  auto opened = ReplayCommandRunner::Open(folder + "/oak");
  ASSERT_TRUE(opened.ok());
  const std::string thunderbolt = opened->Run(ThunderboltCommand()).out;
  for (size_t cut = 0; cut < thunderbolt.size() - 2; ++cut) {
    EXPECT_FALSE(ParseThunderboltBuses(thunderbolt.substr(0, cut)).read) << cut;
  }
  const std::string ioreg = opened->Run(ThunderboltSocketsCommand()).out;
  for (size_t cut = 0; cut < ioreg.size(); ++cut) {
    for (const auto& [socket, said] : ParseThunderboltSockets(ioreg.substr(0, cut))) {
      EXPECT_EQ(said.is_thunderbolt5, v1::FACT_YES) << cut;
    }
  }
  const std::string status = opened->Run(RdmaCtlCommand()).out;
  for (size_t cut = 0; cut + 1 < status.size(); ++cut) {
    EXPECT_EQ(ParseRdmaCtl(status.substr(0, cut)), v1::FACT_UNKNOWN) << cut;
  }
  const std::string devinfo = opened->Run(IbvDevinfoCommand()).out;
  for (size_t cut = 0; cut < devinfo.size(); ++cut) {
    for (const v1::RdmaDevice& device : ParseIbvDevinfo(devinfo.substr(0, cut))) {
      if (device.name() != "rdma_en3") continue;
      EXPECT_NE(device.port_state(), v1::RDMA_PORT_STATE_DOWN) << cut;
    }
  }
}

}  // namespace
}  // namespace macrame::discovery
