#include "discovery/probe/energy_counter.h"

#include <algorithm>
#include <set>
#include <utility>

namespace macrame::discovery {
namespace {

std::vector<v1::PowerPart> PartsOf(const PowerReading& reading) {
  std::set<v1::PowerPart> parts;
  for (const PowerReading::Counter& counter : reading.counters) parts.insert(counter.part);
  for (const PartsPower& power : reading.powers) {
    parts.insert(power.parts.begin(), power.parts.end());
  }
  return {parts.begin(), parts.end()};
}

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

// nullopt: nothing can be said of the time since the last reading.
std::optional<EnergyCounter::Step> EnergyCounter::StepTo(const PowerReading& reading,
                                                         MonotonicTime now) const {
  Step step;
  for (const PartsPower& power : reading.powers) step.watts += power.watts;
  const bool follows = last_.has_value() && now > last_at_ && now - last_at_ <= kEnergyGapMax;
  const double seconds = follows ? Seconds(now - last_at_) : 0;
  step.joules = step.watts * seconds;
  if (reading.counters.empty()) return step;
  if (!follows || last_->counters.size() != reading.counters.size()) return std::nullopt;
  for (size_t i = 0; i < reading.counters.size(); ++i) {
    const PowerReading::Counter& before = last_->counters[i];
    const PowerReading::Counter& after = reading.counters[i];
    if (before.name != after.name) return std::nullopt;
    const auto microjoules =
        CounterStep(before.microjoules, after.microjoules, after.range_microjoules);
    if (!microjoules) return std::nullopt;
    const double joules = static_cast<double>(*microjoules) * 1e-6;
    if (joules > kCounterWattsMax * seconds) return std::nullopt;
    step.joules += joules;
    step.watts += joules / seconds;
  }
  return step;
}

// Whether the node's figure is of these parts, from now on or as before.
bool EnergyCounter::Adopts(const std::vector<v1::PowerPart>& parts) {
  if (parts == parts_) {
    other_readings_ = 0;
    return true;
  }
  other_readings_ = parts == other_parts_ ? other_readings_ + 1 : 1;
  other_parts_ = parts;
  if (!parts_.empty() && other_readings_ < kReadingsToChange) return false;
  parts_ = parts;
  joules_ = 0;
  other_readings_ = 0;
  last_.reset();
  return true;
}

void EnergyCounter::Take(PowerReading reading, MonotonicTime now, v1::NodeLoad& load) {
  load.set_power_watts(-1);
  load.clear_power_parts();
  load.clear_energy_joules();
  const std::vector<v1::PowerPart> parts = PartsOf(reading);
  if (parts.empty() || !Adopts(parts)) {
    last_.reset();
    return;
  }
  const std::optional<Step> step = StepTo(reading, now);
  last_ = std::move(reading);
  last_at_ = now;
  if (!step || step->watts > kWattsMax) return;
  joules_ += step->joules;
  load.set_power_watts(step->watts);
  load.set_energy_joules(joules_);
  for (const v1::PowerPart part : parts_) load.add_power_parts(part);
}

}  // namespace macrame::discovery
