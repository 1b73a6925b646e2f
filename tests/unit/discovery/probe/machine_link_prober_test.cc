#include "discovery/probe/machine_link_prober.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "tests/support/fake_dispatcher.h"
#include "tests/unit/discovery/fake_cluster.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::discovery {
namespace {

LinkInputs Inputs() {
  LinkInputs inputs;
  inputs.node_id = NodeId("000000000000000000000000000000aa");
  inputs.hostname = "oak";
  return inputs;
}

CommandResult Said(const std::string& text) {
  CommandResult result;
  result.outcome = CommandOutcome::kExited;
  result.exit_code = 0;
  result.out = text;
  return result;
}

class MachineLinkProberTest : public ::testing::Test {
 protected:
  MachineLinkProberTest()
      : runner_(*ReplayCommandRunner::Open(tests::MakeCluster("mesh-2") + "/oak")),
        prober_(dispatcher_, Inputs(), OptionsOf(&runner_)) {
    prober_.Start([this](const v1::LinkFacts&) { ++changes_; });
  }

  MachineLinkProber::Options OptionsOf(CommandRunner* runner) const {
    MachineLinkProber::Options options;
    options.runner = runner;
    options.is_mac = true;
    options.panic_reports = panic_reports_;
    return options;
  }

  // The worker posts when it is done; at most five seconds.
  bool Until(const std::function<bool()>& condition) {
    for (int i = 0; i < 500 && !condition(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      dispatcher_.RunPosted();
    }
    return condition();
  }

  void Probe() {
    bool done = false;
    prober_.ProbeNow([&] { done = true; });
    ASSERT_TRUE(Until([&] { return done; }));
  }

  // The first `old` behind `behind` in what the command says.
  void Change(const std::string& command, const std::string& behind, const std::string& old,
              const std::string& changed) {
    std::string said = runner_.answers().at(command).out;
    const size_t at = said.find(old, said.find(behind));
    ASSERT_NE(at, said.npos);
    runner_.Set(command, Said(said.replace(at, old.size(), changed)));
  }

  // The next probe by itself, and its end.
  void ProbeLater() {
    const uint64_t before = prober_.facts().probed_unix_ms();
    dispatcher_.AdvanceBy(std::chrono::seconds(31));
    ASSERT_TRUE(Until([&] { return prober_.facts().probed_unix_ms() != before; }));
  }

  uint32_t DropsAt(uint32_t socket) const {
    for (const v1::ThunderboltPort& port : prober_.facts().ports()) {
      if (port.socket() == socket) return port.drops_last_hour();
    }
    ADD_FAILURE() << "no socket " << socket;
    return 0;
  }

  // The slow answer changes, and the next probe sees it.
  void ExpectProfilerIsAskedAgain() {
    runner_.Set("system_profiler SPThunderboltDataType -json",
                Said(R"({"SPThunderboltDataType": []})"));
    dispatcher_.AdvanceBy(std::chrono::seconds(31));
    EXPECT_TRUE(Until([&] { return prober_.facts().has_thunderbolt() == v1::FACT_NO; }));
  }

  const std::string panic_reports_ = FreshFolder();
  transport::FakeDispatcher dispatcher_;
  ReplayCommandRunner runner_;
  MachineLinkProber prober_;
  int changes_ = 0;
};

TEST_F(MachineLinkProberTest, TellsTheFirstFactsAndThenOnlyChanges) {
  ASSERT_TRUE(Until([&] { return changes_ == 1; }));
  EXPECT_EQ(prober_.facts().rdma_enabled(), v1::FACT_YES);
  EXPECT_GT(prober_.facts().probed_unix_ms(), 0u);
  Probe();
  EXPECT_EQ(changes_, 1);
  runner_.Set("rdma_ctl status", Said("disabled\n"));
  Probe();
  EXPECT_EQ(changes_, 2);
  EXPECT_EQ(prober_.facts().rdma_enabled(), v1::FACT_NO);
}

TEST_F(MachineLinkProberTest, LooksAgainByItself) {
  ASSERT_TRUE(Until([&] { return changes_ == 1; }));
  runner_.Set("rdma_ctl status", Said("disabled\n"));
  dispatcher_.AdvanceBy(std::chrono::seconds(31));
  EXPECT_TRUE(Until([&] { return changes_ == 2; }));
}

// macOS writes a report minutes after the restart: the next look finds it.
TEST_F(MachineLinkProberTest, APanicReportIsToldOnceItIsWritten) {
  ASSERT_TRUE(Until([&] { return changes_ == 1; }));
  EXPECT_EQ(prober_.facts().panics_size(), 0);
  std::ofstream(panic_reports_ + "/panic-full-2026-09-21-130000.0002.panic")
      << R"({"bug_type":"210","timestamp":"2026-09-21 13:00:00.00 +0000"})"
      << "\n"
      << R"({"panicString":"panic(cpu 2 caller 0x1): DART\nMore"})"
      << "\n";
  dispatcher_.AdvanceBy(std::chrono::seconds(31));
  ASSERT_TRUE(Until([&] { return changes_ == 2; }));
  ASSERT_EQ(prober_.facts().panics_size(), 1);
  EXPECT_EQ(prober_.facts().panics(0).text(), "panic(cpu 2 caller 0x1): DART");
  Probe();
  EXPECT_EQ(changes_, 2) << "it is no news again";
}

TEST_F(MachineLinkProberTest, SlowAnswersAreKeptUntilSomethingMovesOrSomebodyAsks) {
  ASSERT_TRUE(Until([&] { return changes_ == 1; }));
  const std::string pulled = R"({"SPThunderboltDataType": []})";
  runner_.Set("system_profiler SPThunderboltDataType -json", Said(pulled));
  const uint64_t before = prober_.facts().probed_unix_ms();
  dispatcher_.AdvanceBy(std::chrono::seconds(31));
  ASSERT_TRUE(Until([&] { return prober_.facts().probed_unix_ms() != before; }));
  EXPECT_EQ(prober_.facts().has_thunderbolt(), v1::FACT_YES);
  Probe();
  EXPECT_EQ(prober_.facts().has_thunderbolt(), v1::FACT_NO);
}

TEST_F(MachineLinkProberTest, APulledCableShowsInTheInterfacesAndHasEverythingAskedAgain) {
  ASSERT_TRUE(Until([&] { return changes_ == 1; }));
  Change("ifconfig", "en3: ", "status: active", "status: inactive");
  ExpectProfilerIsAskedAgain();
}

// The link behind a port may change at both ends at once, without the interface ever being down.
TEST_F(MachineLinkProberTest, APortThatChangesHasEverythingAskedAgain) {
  ASSERT_TRUE(Until([&] { return changes_ == 1; }));
  Change("ibv_devinfo -v", "", "PORT_ACTIVE (4)", "PORT_DOWN (1)");
  ExpectProfilerIsAskedAgain();
}

// What is slow to ask also follows a change late: the probe in between must not be kept.
TEST_F(MachineLinkProberTest, ASlowAnswerThatFollowsAChangeLateIsSeenAtTheNextProbe) {
  ASSERT_TRUE(Until([&] { return changes_ == 1; }));
  Change("ifconfig", "en3: ", "status: active", "status: inactive");
  dispatcher_.AdvanceBy(std::chrono::seconds(31));
  ASSERT_TRUE(Until([&] { return changes_ == 2; }));
  EXPECT_EQ(prober_.facts().has_thunderbolt(), v1::FACT_YES);
  ExpectProfilerIsAskedAgain();
}

// A plug that is badly seated: its interface goes and comes, and each time a probe sees it.
TEST_F(MachineLinkProberTest, ALinkThatGoesAndComesIsCounted) {
  ASSERT_TRUE(Until([&] { return changes_ == 1; }));
  EXPECT_EQ(DropsAt(2), 0u);
  for (uint32_t times = 1; times <= 3; ++times) {
    Change("ifconfig", "en3: ", "status: active", "status: inactive");
    ProbeLater();
    EXPECT_EQ(DropsAt(2), times - 1);
    Change("ifconfig", "en3: ", "status: inactive", "status: active");
    ProbeLater();
    EXPECT_EQ(DropsAt(2), times);
  }
  EXPECT_EQ(DropsAt(1), 0u);
  const int before = changes_;
  dispatcher_.AdvanceBy(std::chrono::minutes(61));
  Probe();
  EXPECT_EQ(DropsAt(2), 0u);
  EXPECT_EQ(changes_, before + 1) << "that an hour is over is told";
}

TEST_F(MachineLinkProberTest, ASocketThatIsEmptyAndThenNotIsCountedAndAPulledCableIsNot) {
  ASSERT_TRUE(Until([&] { return changes_ == 1; }));
  const std::string command = "system_profiler SPThunderboltDataType -json";
  // An interface that is off tells nothing of its cable.
  Change("ifconfig", "en3: ", "<UP,BROADCAST,SMART,RUNNING,", "<BROADCAST,SMART,");
  Change("ifconfig", "en3: ", "status: active", "status: inactive");
  Probe();
  const std::string there = runner_.answers().at(command).out;
  Change(command, "", "receptacle_connected", "receptacle_no_devices_connected");
  const std::string gone = runner_.answers().at(command).out;
  Probe();
  runner_.Set(command, Said(there));
  Probe();
  EXPECT_EQ(DropsAt(2), 1u);
  runner_.Set(command, Said(gone));
  Probe();
  dispatcher_.AdvanceBy(std::chrono::seconds(61));
  Probe();
  runner_.Set(command, Said(there));
  Probe();
  EXPECT_EQ(DropsAt(2), 1u);
}

// It changes with a restart alone, and is slow to ask; one that was not told is asked for again.
TEST_F(MachineLinkProberTest, TheFirmwareIsAskedForUntilItIsKnown) {
  const std::string command = "system_profiler SPHardwareDataType -json";
  ASSERT_TRUE(Until([&] { return changes_ == 1; }));
  EXPECT_EQ(prober_.facts().system_firmware(), "13822.81.10");
  const CommandResult told = runner_.answers().at(command);
  CommandResult silent;
  silent.outcome = CommandOutcome::kTimedOut;
  runner_.Set(command, silent);
  Probe();
  EXPECT_EQ(prober_.facts().system_firmware(), "13822.81.10");
  MachineLinkProber late(dispatcher_, Inputs(), OptionsOf(&runner_));
  bool done = false;
  late.Start([&](const v1::LinkFacts&) { done = true; });
  ASSERT_TRUE(Until([&] { return done; }));
  EXPECT_EQ(late.facts().system_firmware(), "");
  EXPECT_EQ(late.facts().unknown_size(), 1);
  runner_.Set(command, told);
  done = false;
  late.ProbeNow([&] { done = true; });
  ASSERT_TRUE(Until([&] { return done; }));
  EXPECT_EQ(late.facts().system_firmware(), "13822.81.10");
}

TEST(LinuxLinks, RoutesForwardingAndDevicesAreTold) {
  const std::string root = FreshFolder();
  std::filesystem::create_directories(root + "/proc/net");
  std::filesystem::create_directories(root + "/proc/sys/net/ipv4");
  std::ofstream(root + "/proc/sys/net/ipv4/ip_forward") << "1\n";
  std::ofstream(root + "/proc/net/route")
      << "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
      << "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
      << "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
      << "eth1\t000A00C0\t00000000\t0000\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
      << "eth1\tcut";
  v1::RdmaDevice device;
  device.set_name("rxe0");
  const v1::LinkFacts facts =
      CollectLinuxLinks(root, Inputs(), [&](bool*) { return std::vector<v1::RdmaDevice>{device}; });
  EXPECT_EQ(facts.is_mac(), v1::FACT_NO);
  EXPECT_EQ(facts.ip_forwarding(), v1::FACT_YES);
  ASSERT_EQ(facts.routes_size(), 2);
  EXPECT_EQ(facts.routes(0).destination(), "default");
  EXPECT_EQ(facts.routes(0).gateway(), "192.0.2.1");
  EXPECT_EQ(facts.routes(1).destination(), "192.0.2.0/24");
  EXPECT_EQ(facts.rdma_devices_listed(), v1::FACT_YES);
  ASSERT_EQ(facts.rdma_devices_size(), 1);
}

// Two agents on one machine must find out that they share it, also where nothing was ever set up.
TEST(LinuxLinks, ABareSystemIsKnownByItsKernel) {
  const std::string root = FreshFolder();
  std::filesystem::create_directories(root + "/proc/sys/kernel/random");
  std::filesystem::create_directories(root + "/etc");
  std::ofstream(root + "/proc/sys/kernel/random/boot_id")
      << "0f0e0d0c-0b0a-4908-8706-050403020100\n";
  const std::string by_kernel = CollectLinuxLinks(root, Inputs(), {}).hardware_id();
  EXPECT_EQ(by_kernel.size(), 16u);
  std::ofstream(root + "/etc/machine-id") << "0123456789abcdef0123456789abcdef\n";
  const std::string by_machine = CollectLinuxLinks(root, Inputs(), {}).hardware_id();
  EXPECT_EQ(by_machine.size(), 16u);
  EXPECT_NE(by_machine, by_kernel);
}

TEST(LinuxLinks, NoLibraryIsNoEmptyList) {
  const v1::LinkFacts facts = CollectLinuxLinks(
      "", Inputs(), [](bool* missing) -> std::optional<std::vector<v1::RdmaDevice>> {
        *missing = true;
        return std::nullopt;
      });
  EXPECT_TRUE(facts.verbs_library_missing());
  EXPECT_EQ(facts.rdma_devices_listed(), v1::FACT_UNKNOWN);
  EXPECT_GT(facts.interfaces_size(), 0);
}

}  // namespace
}  // namespace macrame::discovery
