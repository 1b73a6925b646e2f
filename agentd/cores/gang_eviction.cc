// Preemption: a deployment of higher priority ends others that it does not fit beside, and those
// wait until it is ready or won't be soon. One of gang_reconciler.h's parts.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agentd/cores/gang_round.h"
#include "proto/reasons.h"

namespace macrame::agentd {

bool GangReconciler::AwaitsVictim(const std::string& name) const {
  return std::any_of(gangs_.begin(), gangs_.end(), [&](const auto& item) {
    return item.second.yields_to == name && item.second.stage == Stage::kEnding;
  });
}

bool GangReconciler::IsEvicting(const std::string& name, const Gang& gang,
                                MonotonicTime now) const {
  if (!gang.evicted_at.has_value()) return false;
  return now - *gang.evicted_at < options_.eviction_limit || AwaitsVictim(name);
}

// What was evicted is planned again once the one that preempted it is ready, or won't be soon.
bool GangReconciler::HasYielded(const Round& round, Gang& gang) const {
  if (gang.yields_to.empty()) return true;
  const auto found = gangs_.find(gang.yields_to);
  bool waits = false;
  if (found != gangs_.end() && !found->second.removing && found->second.evicted_at.has_value()) {
    const Gang& preemptor = found->second;
    const bool on_its_way =
        preemptor.stage == Stage::kPlanning || preemptor.stage == Stage::kWriting ||
        preemptor.stage == Stage::kLaunching || preemptor.stage == Stage::kStarting;
    waits = on_its_way || IsEvicting(gang.yields_to, preemptor, round.now);
  }
  if (waits) gang.refused = gang.failure;
  if (!waits) gang.yields_to.clear();
  return !waits;
}

// Ends those that have to go; the plan is made again when they are gone.
void GangReconciler::Evict(Round& round, const std::string& name, Gang& gang,
                           const v1::PlanResult& result) {
  const v1::Deployment& preemptor = *round.deployments.at(name);
  const int32_t priority = preemptor.priority();
  std::vector<std::string> gone;
  for (const std::string& other : result.evicted()) {
    const auto victim = gangs_.find(other);
    const auto wanted = round.deployments.find(other);
    if (!preemptor.may_evict() || victim == gangs_.end() || wanted == round.deployments.end() ||
        victim->second.removing || wanted->second->priority() >= priority) {
      continue;
    }
    victim->second.failure = MakeReason(
        reasons::kEvicted,
        absl::StrCat("'", other, "' is preempted by '", name, "', which has priority ", priority));
    victim->second.retry_at = round.now;
    victim->second.yields_to = name;
    victim->second.evicted_at.reset();  // what went for it need not wait for it any more
    victim->second.gave_way.reset();
    BeginEnding(round, other, victim->second);
    gone.push_back(other);
  }
  if (gone.empty()) {
    return Refuse(
        round, name, gang,
        MakeReason(reasons::kMemoryShort,
                   absl::StrCat("'", name, "' fits only without ",
                                absl::StrJoin(result.evicted(), ", "), ", which can't go for it")));
  }
  gang.evicted_at = round.now;
  Refuse(round, name, gang,
         MakeReason(reasons::kAwaitsRoom,
                    absl::StrCat("'", name, "' waits until ", absl::StrJoin(gone, ", "),
                                 " freed its memory")));
}

}  // namespace macrame::agentd
