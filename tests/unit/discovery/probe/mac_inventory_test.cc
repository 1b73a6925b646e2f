#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "discovery/base/plain_text.h"
#include "discovery/probe/inventory.h"
#include "discovery/probe/mac_probe.h"
#include "tests/unit/discovery/mutation.h"

namespace macrame::discovery {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

ReplayCommandRunner Machine(const std::string& name) {
  auto runner = ReplayCommandRunner::Open("tests/captures/" + name);
  EXPECT_TRUE(runner.ok()) << runner.status().message();
  return *std::move(runner);
}

InventoryInputs Inputs(std::vector<std::string> disks = {"/"}) {
  InventoryInputs inputs;
  inputs.node_id = NodeId("000000000000000000000000000000aa");
  inputs.disk_paths = std::move(disks);
  v1::Engine engine;
  engine.set_name("mlx");
  inputs.engines = {engine};
  return inputs;
}

// The facts that are told to be unknown, by field.
std::set<std::string> Unknown(const v1::Inventory& inventory) {
  std::set<std::string> fields;
  for (const v1::Reason& reason : inventory.unknown()) {
    fields.insert(reason.message().substr(0, reason.message().find(':')));
  }
  return fields;
}

TEST(MacInventory, AStudioIsKnownThroughAndThrough) {
  ReplayCommandRunner runner = Machine("studio-m3-ultra-512");
  const v1::Inventory got = CollectMacInventory(runner, Inputs({"/", "/Volumes/Model Store"}));
  EXPECT_EQ(got.os_name(), "macOS");
  EXPECT_EQ(got.os_version(), "26.4.1");
  EXPECT_EQ(got.os_build(), "25E253");
  EXPECT_EQ(got.machine_model(), "Mac15,14");
  EXPECT_EQ(got.chip(), "Apple M3 Ultra");
  EXPECT_EQ(got.cpu_cores(), 32u);
  EXPECT_EQ(got.performance_cores(), 24u);
  EXPECT_EQ(got.gpu_cores(), 80u);
  EXPECT_EQ(got.memory_total_bytes(), 512 * kGiB);
  EXPECT_EQ(got.memory_gpu_usable_bytes(), 480 * kGiB);  // iogpu.wired_limit_mb
  EXPECT_EQ(got.boot_time_unix_seconds(), 1793610120u);
  ASSERT_EQ(got.disks_size(), 2);
  EXPECT_EQ(got.disks(1).path(), "/Volumes/Model Store");
  EXPECT_EQ(got.engines_size(), 1);
  EXPECT_THAT(Unknown(got), ::testing::IsEmpty());
}

TEST(MacInventory, TheBudgetIsMlxsOrAnEstimateThatSaysSo) {
  ReplayCommandRunner runner = Machine("mini-m4-pro-24-busy");
  InventoryInputs inputs = Inputs();
  const v1::Inventory estimated = CollectMacInventory(runner, inputs);
  EXPECT_EQ(estimated.memory_gpu_usable_bytes(), 18 * kGiB);
  EXPECT_THAT(Unknown(estimated), ::testing::ElementsAre("memory_gpu_usable_bytes"));
  EXPECT_NE(estimated.unknown(0).message().find("estimate"), std::string::npos);
  inputs.mlx_working_set_bytes = 19 * kGiB;
  const v1::Inventory told = CollectMacInventory(runner, inputs);
  EXPECT_EQ(told.memory_gpu_usable_bytes(), 19 * kGiB);
  EXPECT_EQ(WorkingSetOf(told), 19 * kGiB);
  EXPECT_EQ(WorkingSetOf(estimated), 18 * kGiB);
  EXPECT_THAT(Unknown(told), ::testing::IsEmpty());
}

TEST(MacInventory, AVirtualMacHasGapsThatAreNamed) {
  ReplayCommandRunner runner = Machine("virtual-mac");
  const v1::Inventory got = CollectMacInventory(runner, Inputs());
  EXPECT_EQ(got.machine_model(), "VirtualMac2,1");
  EXPECT_EQ(got.chip(), "Apple M4 (Virtual)");  // system_profiler stood in
  EXPECT_EQ(got.memory_total_bytes(), 8 * kGiB);
  EXPECT_EQ(got.gpu_name(), "Apple Paravirtual device");
  EXPECT_EQ(got.gpu_cores(), 0u);
  EXPECT_TRUE(Unknown(got).contains("gpu_cores"));
  EXPECT_TRUE(Unknown(got).contains("performance_cores"));
  EXPECT_FALSE(Unknown(got).contains("gpu_name"));
}

TEST(MacInventory, SystemProfilerAloneIsEnoughForTheMachine) {
  ReplayCommandRunner runner = Machine("studio-m3-ultra-profiler");
  const v1::Inventory got = CollectMacInventory(runner, Inputs());
  EXPECT_EQ(got.chip(), "Apple M3 Ultra");
  EXPECT_EQ(got.memory_total_bytes(), 256 * kGiB);
  EXPECT_EQ(got.gpu_cores(), 60u);
  std::map<std::string, std::string> codes;
  for (const v1::Reason& reason : got.unknown()) {
    codes[reason.message().substr(0, reason.message().find(':'))] = reason.code();
  }
  EXPECT_EQ(codes["os_version"], "COMMAND_MISSING");
  EXPECT_EQ(codes["boot_time_unix_seconds"], "COMMAND_TIMED_OUT");
  EXPECT_EQ(codes["disks"], "COMMAND_MISSING");
}

TEST(MacInventory, WithoutAnyCommandEverythingIsUnknownAndNothingIsNo) {
  ReplayCommandRunner runner = Machine("studio-m3-ultra-512");
  ReplayCommandRunner empty = runner;
  for (const auto& [line, result] : runner.answers()) {
    CommandResult missing;
    missing.outcome = CommandOutcome::kNotFound;
    empty.Set(line, missing);
  }
  const v1::Inventory got = CollectMacInventory(empty, Inputs());
  for (const char* fact :
       {"os_name", "os_version", "os_build", "machine_model", "chip", "cpu_cores",
        "performance_cores", "gpu_name", "gpu_cores", "memory_total_bytes",
        "memory_gpu_usable_bytes", "swap_total_bytes", "boot_time_unix_seconds", "disks"}) {
    EXPECT_TRUE(Unknown(got).contains(fact)) << fact;
  }
  const v1::NodeLoad load = MacProbe(empty).CollectSlowLoad(MonotonicTime());
  EXPECT_LT(load.gpu_busy_ratio(), 0);
  EXPECT_EQ(load.memory_pressure(), v1::MEMORY_PRESSURE_UNSPECIFIED);
  EXPECT_EQ(load.thermal_state(), v1::THERMAL_STATE_UNSPECIFIED);
}

TEST(MacInventory, ALocalisedAnswerIsUnknown) {
  ReplayCommandRunner runner = Machine("studio-m3-ultra-512");
  CommandResult german;
  german.outcome = CommandOutcome::kExited;
  german.exit_code = 0;
  german.out = "Produktname:\tmacOS\nProduktversion:\t26.4.1\n";
  runner.Set("sw_vers", german);
  const v1::Inventory got = CollectMacInventory(runner, Inputs({"/", "/Volumes/Model Store"}));
  EXPECT_EQ(got.os_version(), "");
  ASSERT_EQ(got.unknown_size(), 3);
  EXPECT_EQ(got.unknown(0).code(), "OUTPUT_UNREADABLE");
  EXPECT_EQ(got.unknown(0).evidence(), "Produktname:\tmacOS");
}

TEST(MacLoad, BusyAndIdleMachines) {
  ReplayCommandRunner busy = Machine("mini-m4-pro-24-busy");
  const v1::NodeLoad load = MacProbe(busy).CollectSlowLoad(MonotonicTime());
  EXPECT_EQ(load.memory_pressure(), v1::MEMORY_PRESSURE_WARNING);
  EXPECT_EQ(load.memory_available_bytes(), 10000ull * 16384);  // free and speculative only
  EXPECT_EQ(load.swap_used_bytes(), (uint64_t{2048} << 20) + (uint64_t{1} << 19));
  EXPECT_DOUBLE_EQ(load.cpu_busy_ratio(), 1.0);
  EXPECT_DOUBLE_EQ(load.gpu_busy_ratio(), 1.0);
  EXPECT_EQ(load.thermal_state(), v1::THERMAL_STATE_THROTTLED);
  EXPECT_FALSE(load.on_battery());
  ReplayCommandRunner air = Machine("macbook-air-m4-on-battery");
  EXPECT_TRUE(MacProbe(air).CollectSlowLoad(MonotonicTime()).on_battery());
  EXPECT_DOUBLE_EQ(MacProbe(air).CollectSlowLoad(MonotonicTime()).cpu_busy_ratio(), 0.15);
}

TEST(MacLoad, InterfaceKinds) {
  ReplayCommandRunner runner = Machine("studio-m3-ultra-512");
  EXPECT_EQ(MacProbe(runner).CollectInterfaceKinds().at("en4"), v1::INTERFACE_KIND_THUNDERBOLT);
}

TEST(MacInventoryProperty, DamagedAnswersCrashNothingAndStayText) {
  std::mt19937_64 random(1);
  const ReplayCommandRunner whole = Machine("studio-m3-ultra-512");
  for (int i = 0; i < 400; ++i) {
    ReplayCommandRunner damaged = whole;
    for (const auto& [line, result] : whole.answers()) {
      CommandResult changed = result;
      changed.out = tests::Mutate(result.out, random);
      damaged.Set(line, changed);
    }
    const v1::Inventory got = CollectMacInventory(damaged, Inputs({"/", "/Volumes/Model Store"}));
    ASSERT_TRUE(IsPlainText(got.chip()));
    ASSERT_TRUE(IsPlainText(got.machine_model()));
    ASSERT_LE(got.memory_gpu_usable_bytes(), uint64_t{1} << 50);
    MacProbe(damaged).CollectSlowLoad(MonotonicTime());
  }
}

}  // namespace
}  // namespace macrame::discovery
