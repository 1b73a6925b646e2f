#include "agentd/state/entry_table.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agentd/cores/cluster_pause.h"
#include "macrame/v1/agent.pb.h"
#include "proto/reasons.h"
#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

// Counts of more replicas than this are forgotten when they are 0.
constexpr size_t kReplicasCountedMax = 1024;
constexpr size_t kNamesShownMax = 8;

}  // namespace

absl::Status EntryTable::NotLoaded(const std::string& asked,
                                   const std::vector<std::string>& loaded) {
  std::vector<std::string> names(
      loaded.begin(),
      loaded.begin() + static_cast<ptrdiff_t>(std::min(loaded.size(), kNamesShownMax)));
  if (loaded.size() > kNamesShownMax) names.push_back("…");
  return ReasonStatus(
      absl::StatusCode::kNotFound, reasons::kModelNotLoaded,
      absl::StrCat("no model '", asked.substr(0, 128), "' is loaded",
                   names.empty() ? "" : absl::StrCat("; loaded: ", absl::StrJoin(names, ", "))));
}

bool EntryTable::IsWanted(const std::string& asked) const {
  return desired_.FindDeployment(DeploymentOfReplica(asked)) != nullptr;
}

bool EntryTable::HasChoice(const std::string& asked) const {
  const v1::Deployment* wanted = desired_.FindDeployment(asked);
  return wanted != nullptr && wanted->replicas() > 1;
}

absl::StatusOr<EntryTable::Entry> EntryTable::Find(const std::string& asked,
                                                   const std::vector<PromptStep>& prompt) const {
  const std::string deployment = DeploymentOfReplica(asked);
  const v1::Deployment* wanted = desired_.FindDeployment(deployment);
  if (wanted == nullptr) {
    if (const auto paused = PausedReason(desired_); paused.has_value()) {
      return ReasonStatus(absl::StatusCode::kUnavailable, *paused);
    }
    std::vector<std::string> loaded;
    for (const auto& [name, one] : desired_.deployments()) loaded.push_back(name);
    return NotLoaded(asked, loaded);
  }
  const std::vector<Choice> choices = ChoicesOf(asked, deployment, *wanted, prompt);
  if (choices.empty()) {
    return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNotReady,
                        absl::StrCat(asked, " is not placed on any node yet"));
  }
  const Choice& idlest = IdlestOf(choices);
  const Choice* nearest = NearestOf(choices, idlest.under_way + kAffinityRequests);
  return (nearest != nullptr ? *nearest : idlest).entry;
}

std::vector<EntryTable::Choice> EntryTable::ChoicesOf(const std::string& asked,
                                                      const std::string& deployment,
                                                      const v1::Deployment& wanted,
                                                      const std::vector<PromptStep>& prompt) const {
  static const Sent kNothing;
  std::vector<Choice> choices;
  for (uint32_t index = 0; index < std::clamp(wanted.replicas(), 1u, kReplicasMax); ++index) {
    const std::string replica = ReplicaName(deployment, index);
    if (asked != deployment && asked != replica) continue;
    const v1::GangRecord* gang = desired_.FindGang(replica);
    if (gang == nullptr || gang->entry_node_id().empty()) continue;
    const auto sent = sent_.find(replica);
    const Sent& known = sent == sent_.end() ? kNothing : sent->second;
    const bool failed =
        IsDead(NodeId(gang->entry_node_id())) ||
        (known.failed_at.has_value() && clock_.Now() - *known.failed_at < kFailedReplicaPause);
    // Ranks that were launched anew have computed nothing yet.
    const bool knows = !failed && known.epoch == gang->epoch();
    choices.push_back({Entry{replica, NodeId(gang->entry_node_id()), gang->epoch(), failed},
                       known.under_way, known.last, knows ? known.prompts.Matched(prompt) : 0});
  }
  return choices;
}

const EntryTable::Choice& EntryTable::IdlestOf(const std::vector<Choice>& choices) {
  const auto rank = [](const Choice& one) {
    return std::tuple(one.entry.failed_lately, one.under_way, one.last);
  };
  return *std::min_element(
      choices.begin(), choices.end(),
      [&](const Choice& one, const Choice& other) { return rank(one) < rank(other); });
}

const EntryTable::Choice* EntryTable::NearestOf(const std::vector<Choice>& choices,
                                                uint32_t under_way_max) {
  const Choice* nearest = nullptr;
  for (const Choice& choice : choices) {
    if (choice.matched < kAffinityBytesMin || choice.under_way > under_way_max) continue;
    const bool is_nearer =
        nearest == nullptr || choice.matched > nearest->matched ||
        (choice.matched == nearest->matched && choice.under_way < nearest->under_way);
    if (is_nearer) nearest = &choice;
  }
  return nearest;
}

bool EntryTable::HasMovedOn(const Entry& entry) const {
  const v1::GangRecord* gang = desired_.FindGang(entry.replica);
  return gang == nullptr || gang->epoch() > entry.epoch ||
         gang->entry_node_id() != entry.node.value();
}

bool EntryTable::MovesInOrder(const Entry& entry) const {
  const v1::GangRecord* gang = desired_.FindGang(entry.replica);
  return gang != nullptr && gang->last_failure().code() == reasons::kNodeLeft;
}

Duration EntryTable::DrainTime() const {
  Duration longest = Duration::zero();
  for (const auto& [node, cordon] : desired_.cordons()) {
    if (!cordon.drain()) continue;
    longest = std::max<Duration>(longest, std::chrono::milliseconds(cordon.deadline_ms()));
  }
  return longest;
}

absl::Status EntryTable::Told(const std::string& asked, const absl::Status& status) const {
  if (!absl::IsNotFound(status) || !IsWanted(asked)) return status;
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNotReady,
                      absl::StrCat("model ", asked.substr(0, 128),
                                   " is being brought up again: ", ReasonOf(status).message()));
}

void EntryTable::NoteSent(const Entry& entry, const std::vector<PromptStep>& prompt) {
  Sent& sent = sent_[entry.replica];
  ++sent.under_way;
  sent.last = ++requests_sent_;
  if (prompt.empty()) return;
  if (std::exchange(sent.epoch, entry.epoch) != entry.epoch) sent.prompts = {};
  sent.prompts.Note(prompt);
}

void EntryTable::NoteOver(const std::string& replica, bool failed) {
  Sent& sent = sent_[replica];
  --sent.under_way;
  sent.failed_at.reset();
  if (failed) {
    sent.failed_at = clock_.Now();
    sent.prompts = {};
  }
  if (sent.under_way == 0 && sent_.size() > kReplicasCountedMax) sent_.erase(replica);
}

}  // namespace macrame::agentd
