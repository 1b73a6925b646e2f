#include "agentd/node/rankd_device_probe.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/fresh_folder.h"
#include "transport/asio_dispatcher.h"

namespace macrame::agentd {
namespace {

using std::chrono::seconds;

TEST(DeviceMemoryTextTest, ANumberIsReadAndAllElseIsUnknown) {
  EXPECT_EQ(ParseDeviceMemory("working_set_bytes 115448725504\n"), 115448725504u);
  EXPECT_EQ(ParseDeviceMemory("working_set_bytes 0\n"), std::nullopt);
  EXPECT_EQ(ParseDeviceMemory(""), std::nullopt);
  EXPECT_EQ(ParseDeviceMemory("working_set_bytes -1\n"), std::nullopt);
  EXPECT_EQ(ParseDeviceMemory("working_set_bytes 99999999999999999999\n"), std::nullopt);
  EXPECT_EQ(ParseDeviceMemory("rankd: unknown option\n"), std::nullopt);
}

// A program in rankd's place that writes this and ends with this code.
std::string Rankd(const std::string& folder, const std::string& script) {
  const std::string path = folder + "/rankd";
  std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

std::optional<uint64_t> Asked(const std::string& rankd) {
  transport::AsioDispatcher dispatcher;
  RankdDeviceProbe probe(dispatcher);
  std::optional<uint64_t> found;
  bool answered = false;
  probe.Start(rankd, [&](std::optional<uint64_t> bytes) {
    found = bytes;
    answered = true;
    dispatcher.Stop();
  });
  dispatcher.PostAfter(seconds(30), [&] { dispatcher.Stop(); });
  dispatcher.Run();
  EXPECT_TRUE(answered);
  return found;
}

TEST(RankdDeviceProbeTest, RankdIsAskedForTheDevicesMemory) {
  const std::string folder = FreshFolder();
  EXPECT_EQ(Asked(Rankd(folder, "[ \"$*\" = --device-memory ] && echo working_set_bytes 4096")),
            4096u);
}

TEST(RankdDeviceProbeTest, ARankdThatFailsReportsNothing) {
  const std::string folder = FreshFolder();
  EXPECT_EQ(Asked(Rankd(folder, "echo working_set_bytes 4096; exit 64")), std::nullopt);
  EXPECT_EQ(Asked(folder + "/nothing"), std::nullopt);
}

}  // namespace
}  // namespace macrame::agentd
