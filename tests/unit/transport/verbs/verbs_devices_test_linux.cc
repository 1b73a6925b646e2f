#include "transport/verbs/verbs_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <filesystem>
#include <fstream>

#include "proto/reasons.h"
#include "tests/unit/fresh_folder.h"
#include "tests/unit/transport/verbs/fake_ibverbs.h"

namespace macrame::transport {
namespace {

using tests::FakeVerbs;
using tests::FakeVerbsDevice;
using tests::VerbsFault;

class VerbsDevicesTest : public testing::Test {
 protected:
  void SetUp() override {
    FakeVerbs::Reset();
    root_ = FreshFolder();
  }
  void TearDown() override {
    EXPECT_THAT(FakeVerbs::Held(), testing::IsEmpty());
    EXPECT_THAT(FakeVerbs::Complaints(), testing::IsEmpty());
  }

  // Below the device's folder in sysfs.
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ / "sys/class/infiniband" / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  v1::RdmaDevice Only(const FakeVerbsDevice& device) {
    FakeVerbs::Add(device);
    bool missing = true;
    const auto devices = ListVerbsDevices(root_.string(), &missing);
    EXPECT_FALSE(missing);
    if (!devices || devices->size() != 1) {
      ADD_FAILURE() << "one device is there";
      return {};
    }
    return (*devices)[0];
  }

  std::filesystem::path root_;
};

TEST_F(VerbsDevicesTest, TellsWhatAPortIsAndHas) {
  Write("mlx5_0/ports/1/gid_attrs/ndevs/0", "\n");
  Write("mlx5_0/ports/1/gid_attrs/ndevs/1", "cable0.7\n");
  Write("mlx5_0/parent", "cable0\n");
  const v1::RdmaDevice device =
      Only({.name = "mlx5_0", .gids = {"fe80", "10.4.0.1", "", "192.168.9.1"}});
  EXPECT_EQ(device.name(), "mlx5_0");
  EXPECT_EQ(device.interface_name(), "cable0.7") << "a VLAN's, not its parent's";
  EXPECT_EQ(device.node_guid(), "0200000000000001");
  EXPECT_EQ(device.port_state(), v1::RDMA_PORT_STATE_ACTIVE);
  EXPECT_EQ(device.active_width(), 4u);
  EXPECT_EQ(device.link_layer(), "Ethernet");
  EXPECT_FALSE(device.has_fault());
  EXPECT_TRUE(device.gids_known());
  ASSERT_EQ(device.gids_size(), 3) << "an empty place is none";
  EXPECT_EQ(device.gids(0).ipv4(), "");
  EXPECT_EQ(device.gids(1).ipv4(), "10.4.0.1");
  EXPECT_EQ(device.gids(1).index(), 1u);
  EXPECT_EQ(device.gids(2).ipv4(), "192.168.9.1");
  EXPECT_EQ(device.gids(2).index(), 3u);
}

TEST_F(VerbsDevicesTest, GidsOfTheOldProtocolMeetNobody) {
  Write("rxe0/ports/1/gid_attrs/types/0", "IB/RoCE v1\n");
  Write("rxe0/ports/1/gid_attrs/types/1", "RoCE v2\n");
  const v1::RdmaDevice device = Only({.name = "rxe0", .gids = {"10.4.0.1", "10.4.0.1"}});
  ASSERT_EQ(device.gids_size(), 1);
  EXPECT_EQ(device.gids(0).index(), 1u);
}

TEST_F(VerbsDevicesTest, EveryStateOfAPortIsTold) {
  const std::pair<int, v1::RdmaPortState> states[] = {
      {IBV_PORT_NOP, v1::RDMA_PORT_STATE_UNKNOWN},   {IBV_PORT_DOWN, v1::RDMA_PORT_STATE_DOWN},
      {IBV_PORT_INIT, v1::RDMA_PORT_STATE_INIT},     {IBV_PORT_ARMED, v1::RDMA_PORT_STATE_ARMED},
      {IBV_PORT_ACTIVE, v1::RDMA_PORT_STATE_ACTIVE}, {77, v1::RDMA_PORT_STATE_UNKNOWN}};
  for (const auto& [state, told] : states) {
    FakeVerbs::Reset();
    EXPECT_EQ(Only({.name = "d", .gids = {}, .port_state = state}).port_state(), told) << state;
  }
}

TEST_F(VerbsDevicesTest, ADeviceThatIsListedAndUselessCarriesItsFault) {
  const v1::RdmaDevice closed =
      Only({.name = "d", .gids = {}, .fault = VerbsFault::kOpen, .fault_errno = EACCES});
  EXPECT_EQ(closed.fault().code(), reasons::kNoVerbsDevice);
  EXPECT_EQ(closed.fault().message(), "d can't be opened: Permission denied");
  EXPECT_EQ(closed.port_state(), v1::RDMA_PORT_STATE_UNKNOWN);
  FakeVerbs::Reset();
  const v1::RdmaDevice full = Only({.name = "d",
                                    .gids = {"10.0.0.1"},
                                    .fault = VerbsFault::kProtectionDomain,
                                    .fault_errno = ENOMEM});
  EXPECT_EQ(full.fault().code(), reasons::kNoProtectionDomain);
  EXPECT_EQ(full.fault().message(), "d gives no protection domain: Cannot allocate memory");
  EXPECT_EQ(full.port_state(), v1::RDMA_PORT_STATE_ACTIVE) << "what was read stays";
}

TEST_F(VerbsDevicesTest, APortThatCannotBeAskedIsUnknownAndNotDown) {
  const v1::RdmaDevice device =
      Only({.name = "d", .gids = {"10.0.0.1"}, .fault = VerbsFault::kQueryPort});
  EXPECT_EQ(device.port_state(), v1::RDMA_PORT_STATE_UNKNOWN);
  EXPECT_FALSE(device.gids_known());
}

TEST_F(VerbsDevicesTest, TheInterfaceIsTheParentOrWhatSysfsNames) {
  Write("a/parent", "cable1\n");
  Write("b/device/net/cable2/address", "");
  FakeVerbs::Add({.name = "a", .gids = {}});
  FakeVerbs::Add({.name = "b", .gids = {}});
  FakeVerbs::Add({.name = "c", .gids = {}});
  bool missing = false;
  const auto devices = ListVerbsDevices(root_.string(), &missing);
  ASSERT_TRUE(devices.has_value());
  ASSERT_EQ(devices->size(), 3u);
  EXPECT_EQ((*devices)[0].interface_name(), "cable1");
  EXPECT_EQ((*devices)[1].interface_name(), "cable2");
  EXPECT_EQ((*devices)[2].interface_name(), "") << "not known, and not guessed";
}

TEST_F(VerbsDevicesTest, NoListIsUnknownButOfAKernelWithoutRdmaItIsNone) {
  bool missing = true;
  FakeVerbs::RefuseList(ENOSYS);
  const auto none = ListVerbsDevices(root_.string(), &missing);
  ASSERT_TRUE(none.has_value());
  EXPECT_TRUE(none->empty());
  EXPECT_FALSE(missing) << "the library is there";
  FakeVerbs::RefuseList(EPERM);
  EXPECT_FALSE(ListVerbsDevices(root_.string(), &missing).has_value());
  FakeVerbs::RefuseList(0);
  EXPECT_TRUE(ListVerbsDevices(root_.string(), &missing)->empty());
}

}  // namespace
}  // namespace macrame::transport
