#pragma once

// What machines tell of the power that they draw: files of Linux, `powermetrics` and `macmon` of a
// Mac, `nvidia-smi`. Pure; any bytes are safe; what is not there, cut off or out of bounds is
// nullopt, never 0.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "macrame/v1/node.pb.h"

namespace macrame::discovery {

// More than any machine draws: a larger figure is a misreading.
inline constexpr double kWattsMax = 100'000;

// Mean or present power, and what it is the power of; parts rise, each at most once.
struct PartsPower {
  std::vector<v1::PowerPart> parts;
  double watts = 0;
};

// A counter of energy (RAPL), in microjoules, that begins again at 0 once it has reached `range`.
// nullopt: it went back and is not known to have a range, or the range is smaller than it was.
// Linux, Documentation/power/powercap: energy_uj, max_energy_range_uj.
std::optional<uint64_t> CounterStep(uint64_t before, uint64_t after, uint64_t range);

// `powermetrics --samplers cpu_power,gpu_power`, its last sample. The sum that it prints itself
// ("Combined Power (CPU + GPU + ANE)", macOS 13 on) counts; without that, a package's ("Package
// Power" of the first M1 systems, "Intel energy model derived package power"); without that, the
// parts that have a line. Memory's own line ("DRAM Power") comes on top.
std::optional<PartsPower> ParsePowermetrics(std::string_view text);
// Whether it refused because it wants the superuser.
bool WantsSuperuser(std::string_view stderr_text);

// `macmon pipe -s 1`, its last line: one JSON object. Versions before and after 0.8 name loads
// differently, and powers alike. `sys_power` is the whole machine's. Where macmon can't read that
// it prints 0, or the chip's own sum instead (src/metrics.rs); then the parts count that it could
// read. A processor that draws exactly 0 W was not read: with macmon 0.8 so on some macOS 27.
std::optional<PartsPower> ParseMacmon(std::string_view text);

// `nvidia-smi --query-gpu=power.draw --format=csv,noheader,nounits`: watts of all GPUs. nullopt
// when one of them does not tell.
std::optional<double> ParseNvidiaWatts(std::string_view text);

}  // namespace macrame::discovery
