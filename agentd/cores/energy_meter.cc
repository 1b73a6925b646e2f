#include "agentd/cores/energy_meter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/power_parts.h"

namespace macrame::agentd {
namespace {

// Readings come each ten seconds, and are seen up to two later.
constexpr double kStepsAheadMax = 12;

double BusySeconds(const v1::RankStatus& rank) {
  const double us = rank.timings().prefill_step_us().sum() + rank.timings().decode_step_us().sum();
  return us > 0 ? us * 1e-6 : 0;
}

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// Between the last reading and this one, which were seen `seen` seconds apart.
double TimeOf(double joules, double watts, double seen) {
  const double told = watts > 0 ? joules / watts : seen;
  return std::abs(told - seen) <= Seconds(kReadingSeenLate) ? told : seen;
}

}  // namespace

EnergyMeter::RankKey EnergyMeter::KeyOf(const v1::RankStatus& rank) {
  return {rank.deployment(), rank.epoch(), rank.rank()};
}

// What each has computed since it was last asked, and who is gone is forgotten. One that is new, or
// began to count anew, has computed all that it tells since then.
std::map<EnergyMeter::RankKey, double> EnergyMeter::TakeBusy(
    const std::vector<v1::RankStatus>& ranks, double seconds_max) {
  std::map<RankKey, double> busy;
  std::map<RankKey, Share> shares;
  for (const v1::RankStatus& rank : ranks) {
    const RankKey key = KeyOf(rank);
    const auto before = shares_.find(key);
    Share share = before == shares_.end() ? Share() : before->second;
    const double told = BusySeconds(rank);
    const double since = told >= share.busy_seconds ? told - share.busy_seconds : told;
    if (since > 0) busy[key] = std::min(since, seconds_max);
    share.busy_seconds = told;
    shares[key] = share;
  }
  shares_ = std::move(shares);
  return busy;
}

void EnergyMeter::NoteRest(double joules, double seconds) {
  const double watts = joules / seconds;
  held_joules_ = 0;
  if (!resting_watts_ || watts <= *resting_watts_) {
    resting_watts_ = watts;
    return;
  }
  held_joules_ = joules - *resting_watts_ * seconds;
  *resting_watts_ += (watts - *resting_watts_) * kRestingRise;
}

void EnergyMeter::ShareOut(double joules, double seconds, const std::map<RankKey, double>& busy) {
  double busy_seconds = 0;
  for (const auto& [key, since] : busy) busy_seconds += since;
  const double covered = std::min(busy_seconds, seconds);
  double shared = joules * covered / seconds;
  if (resting_watts_) {
    const double above = std::max(0.0, joules - *resting_watts_ * seconds);
    shared = std::min(joules, above + *resting_watts_ * covered) + held_joules_;
  }
  held_joules_ = 0;
  for (const auto& [key, since] : busy) {
    shares_[key].joules += shared * since / busy_seconds;
    shares_[key].joules_per_second = shared / busy_seconds;
  }
}

void EnergyMeter::Observe(const v1::NodeLoad& load, const std::vector<v1::RankStatus>& ranks,
                          MonotonicTime now) {
  if (!load.has_energy_joules()) {
    last_joules_.reset();
    held_joules_ = 0;
    return;
  }
  if (last_joules_ == load.energy_joules()) return;
  const std::vector<v1::PowerPart> parts = PartsOf(load.power_parts());
  if (parts != parts_) {
    *this = EnergyMeter();
    parts_ = parts;
  }
  const double joules = load.energy_joules() - last_joules_.value_or(0);
  const double seconds =
      last_joules_ ? TimeOf(joules, load.power_watts(), Seconds(now - last_at_)) : 0;
  const auto busy = TakeBusy(ranks, seconds);
  last_joules_ = load.energy_joules();
  last_at_ = now;
  if (!(seconds > 0) || !(joules >= 0)) return;
  if (busy.empty()) {
    NoteRest(joules, seconds);
  } else {
    ShareOut(joules, seconds, busy);
  }
}

std::optional<double> EnergyMeter::JoulesOf(const v1::RankStatus& rank) const {
  if (!last_joules_) return std::nullopt;
  const auto found = shares_.find(KeyOf(rank));
  if (found == shares_.end()) return std::nullopt;
  const Share& share = found->second;
  const double since = std::clamp(BusySeconds(rank) - share.busy_seconds, 0.0, kStepsAheadMax);
  share.told = std::max(share.told, share.joules + since * share.joules_per_second);
  return share.told;
}

}  // namespace macrame::agentd
