#include "agentd/cores/energy_ledger.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "proto/power_parts.h"
#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

constexpr size_t kDeploymentsMax = 256;

// The parts of both; `differ` when one has more.
std::vector<v1::PowerPart> Common(const std::vector<v1::PowerPart>& a,
                                  const std::vector<v1::PowerPart>& b, bool* differ) {
  *differ = *differ || a != b;
  std::vector<v1::PowerPart> common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
  return common;
}

uint64_t Whole(double sum) { return sum > 0 && sum < 1e18 ? static_cast<uint64_t>(sum) : 0; }

}  // namespace

std::optional<EnergyLedger::Reading> EnergyLedger::Read(const v1::DeploymentStatus& gang,
                                                        const PartsOfNodes& parts) {
  const int ranks = gang.plan().assignments_size();
  if (gang.state() != v1::DEPLOYMENT_STATE_READY || ranks == 0 || gang.ranks_size() != ranks) {
    return std::nullopt;
  }
  Reading reading;
  for (const v1::RankStatus& rank : gang.ranks()) {
    const auto covers = parts.find(rank.node_id());
    const bool is_told = rank.has_energy_joules() && std::isfinite(rank.energy_joules());
    if (!is_told || covers == parts.end()) return std::nullopt;
    reading.joules += rank.energy_joules();
    const bool is_first = &rank == &gang.ranks(0);
    reading.parts =
        is_first ? covers->second : Common(reading.parts, covers->second, &reading.parts_differ);
    if (rank.rank() != 0) continue;
    reading.prefill_us = rank.timings().prefill_step_us().sum();
    reading.decode_us = rank.timings().decode_step_us().sum();
    reading.prompt_tokens = Whole(rank.timings().prefill_tokens().sum());
    reading.generated_tokens = rank.tokens_generated_total();
  }
  return reading;
}

// What passed since the last look, once energy and steps have both gone on.
void EnergyLedger::Advance(const std::string& name, Gang& gang, Reading reading) {
  const bool is_other = gang.last && (gang.last->parts != reading.parts ||
                                      gang.last->parts_differ != reading.parts_differ);
  if (is_other) gang.total.Clear();
  const bool went_back = gang.last && (reading.joules < gang.last->joules ||
                                       reading.prefill_us < gang.last->prefill_us ||
                                       reading.decode_us < gang.last->decode_us ||
                                       reading.prompt_tokens < gang.last->prompt_tokens ||
                                       reading.generated_tokens < gang.last->generated_tokens);
  if (!gang.last || is_other || went_back) {
    gang.last = std::move(reading);
    return;
  }
  const double joules = reading.joules - gang.last->joules;
  const double prefill_us = reading.prefill_us - gang.last->prefill_us;
  const double steps_us = prefill_us + reading.decode_us - gang.last->decode_us;
  if (!(joules > 0) || !(steps_us > 0)) return;
  const double prefill_joules = joules * prefill_us / steps_us;
  const uint64_t prompt_tokens = reading.prompt_tokens - gang.last->prompt_tokens;
  const uint64_t generated_tokens = reading.generated_tokens - gang.last->generated_tokens;
  v1::ModelEnergy& total = gang.total;
  total.set_joules(total.joules() + joules);
  total.set_prefill_joules(total.prefill_joules() + prefill_joules);
  total.set_seconds(total.seconds() + steps_us * 1e-6);
  total.set_prompt_tokens(total.prompt_tokens() + prompt_tokens);
  total.set_generated_tokens(total.generated_tokens() + generated_tokens);
  total.clear_parts();
  for (const v1::PowerPart part : reading.parts) total.add_parts(part);
  total.set_parts_differ(reading.parts_differ);
  Totals& all = deployments_[DeploymentOfReplica(name)];
  all.joules += joules;
  all.prefill_joules += prefill_joules;
  all.seconds += steps_us * 1e-6;
  all.prompt_tokens += prompt_tokens;
  all.generated_tokens += generated_tokens;
  gang.last = std::move(reading);
}

void EnergyLedger::Observe(const std::vector<v1::DeploymentStatus>& gangs,
                           const PartsOfNodes& parts, MonotonicTime now) {
  std::map<std::string, Gang> kept;
  for (const v1::DeploymentStatus& status : gangs) {
    const std::string& name = status.deployment().name();
    if (kept.size() >= kDeploymentsMax) break;
    Gang gang = std::move(gangs_[name]);
    if (gang.epoch != status.epoch()) gang = Gang{status.epoch(), {}, {}};
    std::optional<Reading> reading = Read(status, parts);
    if (reading) {
      Advance(name, gang, *std::move(reading));
    } else {
      gang.last.reset();
    }
    kept[name] = std::move(gang);
  }
  gangs_ = std::move(kept);
  NotePoints(now);
  Settle(now);
}

void EnergyLedger::NotePoints(MonotonicTime now) {
  std::map<std::string, Totals> deployments;
  std::map<std::string, std::deque<Point>> points;
  for (const auto& [name, gang] : gangs_) {
    const std::string deployment = DeploymentOfReplica(name);
    if (deployments.contains(deployment)) continue;
    const Totals& totals = deployments[deployment] = deployments_[deployment];
    std::deque<Point>& all = points[deployment] = std::move(points_[deployment]);
    if (!all.empty() && all.back().totals.joules == totals.joules) continue;
    all.push_back({now, totals});
    if (all.size() > kPricePointsMax) all.pop_front();
  }
  deployments_ = std::move(deployments);
  points_ = std::move(points);
}

const v1::ModelEnergy* EnergyLedger::Find(const std::string& gang, uint64_t epoch) const {
  const auto found = gangs_.find(gang);
  if (found == gangs_.end() || found->second.epoch != epoch) return nullptr;
  const bool is_known = found->second.last.has_value() && found->second.total.joules() > 0;
  return is_known ? &found->second.total : nullptr;
}

void EnergyLedger::Charge(const std::string& key, const std::string& deployment, TokensUsed used,
                          MonotonicTime begun, MonotonicTime now) {
  if (used.prompt == 0 && used.generated == 0) return;
  const auto whose = std::pair(key, DeploymentOfReplica(deployment));
  const auto found = pending_.find(whose);
  if (found == pending_.end()) {
    if (pending_.size() < kPendingUsesMax) pending_[whose] = {used, begun, now, now};
    return;
  }
  Use& use = found->second;
  use.used.prompt += used.prompt;
  use.used.generated += used.generated;
  use.begun = std::min(use.begun, begun);
  use.last_at = now;
}

std::optional<double> EnergyLedger::Price(const std::string& deployment, const Use& use,
                                          bool is_last) const {
  const auto found = points_.find(deployment);
  if (found == points_.end() || found->second.size() < 2) return std::nullopt;
  const std::deque<Point>& points = found->second;
  if (points.back().at <= use.last_at && !is_last) return std::nullopt;
  // The last point before it began; what is not kept any more is taken to have cost the same.
  const Point* from = &points.front();
  for (const Point& point : points) {
    if (point.at <= use.begun) from = &point;
  }
  const Totals &a = from->totals, &b = points.back().totals;
  const uint64_t prompt = b.prompt_tokens - a.prompt_tokens;
  const uint64_t generated = b.generated_tokens - a.generated_tokens;
  const auto is_enough = [is_last](uint64_t used, uint64_t of) {
    return is_last ? used == 0 || of > 0 : used <= 2 * of;
  };
  if (!is_enough(use.used.prompt, prompt) || !is_enough(use.used.generated, generated)) {
    return std::nullopt;
  }
  const double prefill_joules = b.prefill_joules - a.prefill_joules;
  const double decode_joules = b.joules - a.joules - prefill_joules;
  const auto part = [is_last](uint64_t used, uint64_t of) {
    const double share = used == 0 ? 0 : static_cast<double>(used) / static_cast<double>(of);
    return is_last ? std::min(1.0, share) : share;
  };
  return prefill_joules * part(use.used.prompt, prompt) +
         decode_joules * part(use.used.generated, generated);
}

void EnergyLedger::Settle(MonotonicTime now) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    const auto& [whose, use] = *it;
    const bool is_last = now - use.waits_from > kPriceWaitMax;
    const std::optional<double> joules = Price(whose.second, use, is_last);
    if (joules) {
      v1::KeyEnergy& key = keys_[whose.first];
      key.set_key_id(whose.first);
      key.set_joules(key.joules() + *joules);
      key.set_prompt_tokens(key.prompt_tokens() + use.used.prompt);
      key.set_generated_tokens(key.generated_tokens() + use.used.generated);
    }
    it = joules || is_last ? pending_.erase(it) : std::next(it);
  }
}

std::vector<v1::KeyEnergy> EnergyLedger::Keys() const {
  std::vector<v1::KeyEnergy> keys;
  for (const auto& [id, key] : keys_) keys.push_back(key);
  return keys;
}

}  // namespace macrame::agentd
