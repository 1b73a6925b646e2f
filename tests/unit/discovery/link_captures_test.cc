// Every parser of link facts on whole captures: of the made-up clusters, and of further folders
// (MACRAME_EXTRA_CAPTURES), where a file's name begins with what printed it. Then the same files
// cut at every byte and damaged: nothing may crash, and a cut may never turn a "yes" into a "no".

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "discovery/link_parsers.h"
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

// What must be read from a file of this name; true when the name is known.
bool CheckThunderbolt(const std::string& name, const std::string& text) {
  if (name.starts_with("thunderbolt-text")) {
    EXPECT_TRUE(ParseThunderboltText(text).read) << name;
    return true;
  }
  if (name.starts_with("thunderbolt-") && name.ends_with(".json")) {
    const ThunderboltBuses buses = ParseThunderboltBuses(text);
    EXPECT_TRUE(buses.read) << name;
    for (const v1::ThunderboltPort& port : buses.ports) {
      if (port.peers_size() > 0 && port.socket() != 0) {
        EXPECT_GT(port.speed_gbps(), 0u) << name;
      }
      EXPECT_FALSE(port.socket() != 0 && port.speed_text().empty()) << name;
    }
    return true;
  }
  if (name.starts_with("ioreg-thunderbolt")) {
    EXPECT_FALSE(ParseThunderboltSockets(text).empty()) << name;
    return true;
  }
  return false;
}

bool CheckRdma(const std::string& name, const std::string& text) {
  if (name.starts_with("ibv_devices-")) {
    const auto devices = ParseIbvDevices(text);
    EXPECT_TRUE(devices) << name;
    if (devices && Has(text, "rdma_")) {
      EXPECT_FALSE(devices->empty()) << name;
    }
    return true;
  }
  if (name.starts_with("ibv_devinfo-")) {
    const auto devices = ParseIbvDevinfo(text);
    EXPECT_EQ(devices.empty(), !Has(text, "hca_id")) << name;
    for (const v1::RdmaDevice& device : devices) {
      EXPECT_NE(device.port_state(), v1::RDMA_PORT_STATE_UNKNOWN) << name;
      EXPECT_EQ(device.gids_size() > 0, Has(text, "GID[")) << name;
    }
    return true;
  }
  if (name.starts_with("rdma_ctl-status-enabled") || name.starts_with("rdma_ctl-status-disabled")) {
    EXPECT_EQ(ParseRdmaCtl(text), Has(name, "enabled") ? v1::FACT_YES : v1::FACT_NO) << name;
    return true;
  }
  if (name.starts_with("ioclasscount")) {
    EXPECT_FALSE(ParseClassCounts(text).empty()) << name;
    return true;
  }
  return false;
}

bool CheckKernel(const std::string& name, const std::string& text) {
  if (name.starts_with("kmutil-showloaded")) {
    EXPECT_EQ(ParseKextLoaded(text, "com.apple.driver.AppleThunderboltRDMA"),
              Has(text, "com.apple.driver.AppleThunderboltRDMA") ? v1::FACT_YES : v1::FACT_NO)
        << name;
    return true;
  }
  if (name.starts_with("kernel-log")) {
    const KernelLog log = ParseKernelLog(text);
    EXPECT_TRUE(log.read) << name;
    EXPECT_EQ(log.refuses_rdma == v1::FACT_YES, Has(text, "does not support Thunderbolt 5"))
        << name;
    return true;
  }
  return false;
}

bool CheckNetwork(const std::string& name, const std::string& text) {
  if (Has(name, ".stderr") || Has(name, "missing")) return false;
  if (name.starts_with("hardware-ports") || name.starts_with("listallhardwareports")) {
    EXPECT_FALSE(ParseHardwarePortNames(text).empty()) << name;
  } else if (name.starts_with("service-order")) {
    EXPECT_FALSE(ParseServiceOrder(text).empty()) << name;
  } else if (name.starts_with("ifconfig")) {
    EXPECT_FALSE(ParseIfconfig(text).interfaces.empty()) << name;
  } else if (name.starts_with("netstat-rn")) {
    EXPECT_TRUE(ParseRoutes(text).read) << name;
    EXPECT_FALSE(ParseRoutes(text).routes.empty()) << name;
  } else if (name.starts_with("route-get")) {
    EXPECT_TRUE(ParseRouteGet(text)) << name;
  } else if (name.starts_with("internet-sharing-devices")) {
    EXPECT_TRUE(ParseSharingDevices(text)) << name;
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
  ParseRouteGet(text);
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
    const std::string text = tests::ReadWholeFile(path);
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
