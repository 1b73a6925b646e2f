#pragma once

// A node's power and energy from what its machine tells at each reading: counters of energy
// (RAPL), and powers that are taken to have held since the reading before. Pure; time is handed in.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "discovery/parsers/power_parsers.h"
#include "macrame/v1/node.pb.h"
#include "proto/monotonic_time.h"

namespace macrame::discovery {

// Between two readings that are further apart nothing is counted: the machine slept, and a counter
// may have gone round more than once (65 kJ at 500 W last 131 s).
inline constexpr Duration kEnergyGapMax = std::chrono::seconds(60);
// Parts that can be read change (a battery, a tool that did not answer in time): so many readings
// in a row have to agree before the node's figure is of the new ones.
inline constexpr int kReadingsToChange = 3;
// More than one counter's processor draws: it was set back, and did not go round.
inline constexpr double kCounterWattsMax = 2'000;

// What a machine told at one moment. Empty: nothing.
struct PowerReading {
  struct Counter {
    std::string name;  // "intel-rapl:0"
    v1::PowerPart part = v1::POWER_PART_PACKAGE;
    uint64_t microjoules = 0;
    uint64_t range_microjoules = 0;  // 0: it does not go round
  };
  std::vector<Counter> counters;
  std::vector<PartsPower> powers;  // no part twice, here or in the counters
};

class EnergyCounter {
 public:
  // Fills power_watts, power_parts and energy_joules of `load`, or leaves them as not known: of
  // counters the first reading tells no power.
  void Take(PowerReading reading, MonotonicTime now, v1::NodeLoad& load);

 private:
  struct Step {
    double joules = 0;
    double watts = 0;
  };
  std::optional<Step> StepTo(const PowerReading& reading, MonotonicTime now) const;
  bool Adopts(const std::vector<v1::PowerPart>& parts);

  std::vector<v1::PowerPart> parts_;  // that joules_ are of
  double joules_ = 0;
  std::optional<PowerReading> last_;
  MonotonicTime last_at_;
  std::vector<v1::PowerPart> other_parts_;
  int other_readings_ = 0;
};

}  // namespace macrame::discovery
