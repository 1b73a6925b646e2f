#include "discovery/probe/machine_id.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "discovery/probe/link_facts.h"
#include "discovery/probe/mac_probe.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::discovery {
namespace {

namespace fs = std::filesystem;

const NodeId kA("000000000000000000000000000000aa");
const NodeId kB("000000000000000000000000000000bb");

class MachineIdTest : public ::testing::Test {
 protected:
  void SetUp() override { root_ = FreshFolder(); }

  void Put(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }
  void PutInterface(const std::string& name, const std::string& device, const std::string& address,
                    const std::string& kind = "0") {
    fs::create_directories(root_ + device);
    const std::string folder = "/sys/class/net/" + name;
    Put(folder + "/address", address);
    Put(folder + "/addr_assign_type", kind);
    fs::create_directory_symlink(root_ + device, root_ + folder + "/device");
  }
  std::string Id() const { return LinuxMachineId(root_); }

  std::string root_;
};

TEST_F(MachineIdTest, ACopiedDiskInAnotherMachineIsAnother) {
  EXPECT_EQ(Id(), "") << "nothing tells this machine from others";
  Put("/etc/machine-id", "3d1219c7c4c5404aaa1f6d2a48adfda4");
  const std::string disk_alone = Id();
  EXPECT_NE(disk_alone, "");
  PutInterface("eth0", "/sys/devices/pci0000:00/0000:00:03.0", "02:00:00:00:00:01");
  const std::string here = Id();
  EXPECT_NE(here, disk_alone);
  Put("/sys/class/net/eth0/address", "02:00:00:00:00:02");
  EXPECT_NE(Id(), here);
  Put("/sys/class/dmi/id/product_uuid", "4C4C4544-0042-3510-8052-B4C04F4A4E32");
  const std::string by_firmware = Id();
  Put("/sys/class/net/eth0/address", "02:00:00:00:00:03");
  EXPECT_EQ(Id(), by_firmware) << "what the firmware says outlives a network card";
}

TEST_F(MachineIdTest, ContainersOfOneImageOnOneHostAreTwo) {
  Put("/etc/machine-id", "3d1219c7c4c5404aaa1f6d2a48adfda4");
  Put("/proc/self/mountinfo",
      "24 29 0:22 / /proc rw - proc proc rw\n29 1 8:1 / / rw,noatime shared:1 - ext4 /dev/sda1 rw");
  const std::string on_host = Id();
  const auto in = [&](const std::string& layer) {
    Put("/proc/self/mountinfo",
        "812 720 0:60 / / rw - overlay overlay rw,lowerdir=/o/l/A:/o/l/B,upperdir=/o/" + layer +
            "/diff,workdir=/o/" + layer + "/work");
    return Id();
  };
  const std::string first = in("c1");
  EXPECT_NE(first, on_host);
  EXPECT_NE(in("c2"), first);
  EXPECT_EQ(in("c1"), first) << "a container that is started again is the same";
  // Containers of other makers are folders of the host.
  Put("/proc/self/mountinfo", "29 1 8:1 /var/lib/lxc/one/rootfs / rw - ext4 /dev/sda1 rw");
  const std::string lxc = Id();
  Put("/proc/self/mountinfo", "29 1 8:1 /var/lib/lxc/two/rootfs / rw - ext4 /dev/sda1 rw");
  EXPECT_NE(Id(), lxc);
  Put("/proc/self/mountinfo", "29 1 8:1 / / rw\n - \n\n29");
  EXPECT_EQ(Id(), on_host) << "what can't be read tells nothing";
}

TEST_F(MachineIdTest, WhatComesAndGoesIsLeftOut) {
  Put("/etc/machine-id", "3d1219c7c4c5404aaa1f6d2a48adfda4");
  const std::string before = Id();
  PutInterface("dock0", "/sys/devices/pci0000:00/0000:00:14.0/usb2/2-1", "02:00:00:00:00:05");
  PutInterface("wlan0", "/sys/devices/pci0000:00/0000:00:15.0", "02:00:00:00:00:06");
  Put("/sys/class/net/wlan0/phy80211/name", "phy0");
  PutInterface("set0", "/sys/devices/pci0000:00/0000:00:16.0", "02:00:00:00:00:07", "3");
  Put("/sys/class/net/veth0/address", "02:00:00:00:00:08");
  Put("/sys/class/net/veth0/addr_assign_type", "0");
  Put("/sys/class/dmi/id/product_uuid", "03000200-0400-0500-0006-000700080009");
  EXPECT_EQ(Id(), before);
}

TEST_F(MachineIdTest, AMarkHidesTheIdAndIsOfOneNode) {
  const std::string mark = MachineMark("secret serial", kA);
  EXPECT_EQ(mark.size(), kMachineMarkBytes);
  EXPECT_EQ(mark, MachineMark("secret serial", kA));
  EXPECT_NE(mark, MachineMark("secret serial", kB));
  EXPECT_NE(mark, MachineMark("another serial", kA));
  EXPECT_EQ(MachineMark("", kA), "");
}

TEST(BootDigest, IsOneForAllAgentsOfABootAndOtherForOthers) {
  const std::string digest = BootDigest("6c0fb6f1-4e0c-4b0e-9d2f-0a1b2c3d4e5f");
  EXPECT_EQ(digest.size(), 8u);
  EXPECT_EQ(digest, BootDigest("6c0fb6f1-4e0c-4b0e-9d2f-0a1b2c3d4e5f"));
  EXPECT_NE(digest, BootDigest("6c0fb6f1-4e0c-4b0e-9d2f-0a1b2c3d4e60"));
  EXPECT_EQ(BootDigest(""), "");
}

TEST_F(MachineIdTest, AFileStandsForTheMachine) {
  Put("/id", "one");
  const std::string one = ThisMachineMark(root_ + "/id", kA);
  Put("/id", "two");
  EXPECT_NE(ThisMachineMark(root_ + "/id", kA), one);
  EXPECT_EQ(ThisMachineMark(root_ + "/missing", kA), "");
}

TEST(MacMachineId, IsThePlatformUuid) {
  ReplayCommandRunner answers;
  CommandResult result;
  result.outcome = CommandOutcome::kExited;
  result.exit_code = 0;
  result.out = "+-o J614cAP\n    {\n      \"IOPlatformUUID\" = \"0A1B2C3D-1111\"\n    }\n";
  answers.Set(CommandLine(PlatformUuidCommand()), result);
  EXPECT_NE(MacProbe(answers).CollectMachineId().find("0A1B2C3D-1111"), std::string::npos);
  ReplayCommandRunner silent;
  EXPECT_EQ(MacProbe(silent).CollectMachineId(), "");
}

}  // namespace
}  // namespace macrame::discovery
