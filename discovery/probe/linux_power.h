#pragma once

// What a Linux machine tells of its power, from files below a root folder and from nvidia-smi:
//
//   on battery   /sys/class/power_supply: power_now, else current_now * voltage_now, of all
//                batteries: the whole machine, and then nothing else is read
//   package      /sys/class/powercap/intel-rapl:N, "package-N" (AMD's processors have them, too)
//   memory       its domains "dram", where the machine has them
//   GPU          hwmon of amdgpu cards (power1_average, else power1_input;
//   Documentation/gpu/amdgpu)
//                and `nvidia-smi`, where the NVIDIA driver is loaded: all cards, or it is not known
//
// Not counted: intel-rapl-mmio (the same packages once more), "core" and "uncore" (within the
// package), "psys" (holds the packages, and what else differs by machine), and an amdgpu that is
// part of the processor, as its gpu_metrics say (format 2 on): the package has it already.
//
// The counters can be read by root alone since Linux 5.10: what can't be read is not known.

#include <string>

#include "discovery/probe/command_runner.h"
#include "discovery/probe/energy_counter.h"

namespace macrame::discovery {

Command NvidiaPowerCommand();
// Blocks for as long as nvidia-smi may. Without a runner NVIDIA's cards are not known.
// `on_battery`: nothing feeds the machine but its batteries.
PowerReading ReadLinuxPower(const std::string& root, CommandRunner* runner, bool on_battery);
// Why the processor's power is not known though the machine has counters for it; empty: it is
// known, or there are none.
std::string WhyNoLinuxPower(const std::string& root);

}  // namespace macrame::discovery
