#include "agentd/cores/desired_state.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "agentd/cores/state_keys.h"

namespace macrame::agentd {
namespace {

// The name behind the prefix; unset for other keys.
std::optional<std::string> NameBehind(absl::string_view prefix, const std::string& key) {
  absl::string_view name = key;
  if (!absl::ConsumePrefix(&name, prefix)) return std::nullopt;
  return std::string(name);
}

template <typename Message>
void Put(const v1::StateEntry& entry, const std::string& name, std::map<std::string, Message>* to) {
  Message message;
  if (message.ParseFromString(entry.value())) (*to)[name] = std::move(message);
}

// A message that names itself otherwise than its key is left out.
template <typename Message>
void PutNamed(const v1::StateEntry& entry, const std::string& name,
              const std::string& (Message::*own_name)() const, std::map<std::string, Message>* to) {
  Message message;
  if (!message.ParseFromString(entry.value()) || (message.*own_name)() != name) return;
  (*to)[name] = std::move(message);
}

}  // namespace

const DesiredState::Parsed& DesiredState::Fresh() const {
  if (revision_ == table_.revision()) return parsed_;
  revision_ = table_.revision();
  for (auto known = versions_.begin(); known != versions_.end();) {
    const bool is_there = table_.entries().contains(known->first);
    if (!is_there) Drop(known->first);
    known = is_there ? std::next(known) : versions_.erase(known);
  }
  for (const auto& [key, entry] : table_.entries()) {
    const StateVersion version = VersionOf(entry);
    const auto [known, is_new] = versions_.try_emplace(key, version);
    if (!is_new && known->second == version) continue;
    known->second = version;
    Take(key, entry);
  }
  return parsed_;
}

void DesiredState::Take(const std::string& key, const v1::StateEntry& entry) const {
  Drop(key);
  if (const auto replica = NameBehind(kGangPrefix, key)) {
    TakeGang(*replica, entry);
  } else if (entry.removed()) {
    return;
  } else if (const auto name = NameBehind(kDeploymentPrefix, key)) {
    PutNamed(entry, *name, &v1::Deployment::name, &parsed_.deployments);
  } else if (const auto id = NameBehind(kApiKeyPrefix, key)) {
    PutNamed(entry, *id, &v1::ApiKey::id, &parsed_.api_keys);
  } else if (const auto tenant = NameBehind(kTenantPrefix, key)) {
    PutNamed(entry, *tenant, &v1::TenantLimits::name, &parsed_.tenants);
  } else if (const auto node = NameBehind(kCrashPrefix, key)) {
    Put(entry, *node, &parsed_.crashes);
  } else if (const auto cordoned = NameBehind(kCordonPrefix, key)) {
    Put(entry, *cordoned, &parsed_.cordons);
  } else if (const auto marked = NameBehind(kMarksPrefix, key)) {
    Put(entry, *marked, &parsed_.marks);
  } else if (const auto model = NameBehind(kProfilePrefix, key)) {
    PutNamed(entry, *model, &v1::ModelProfile::model, &parsed_.profiles);
  } else if (absl::StartsWith(key, kRefusalPrefix)) {
    Put(entry, key, &parsed_.refusals);
  } else if (const auto stopped = NameBehind(kStoppedPrefix, key)) {
    Put(entry, *stopped, &parsed_.stopped);
  } else if (key == kPauseKey) {
    v1::ClusterPause pause;
    if (pause.ParseFromString(entry.value())) parsed_.pause = std::move(pause);
  } else if (key == kLinksKey) {
    if (!parsed_.links.ParseFromString(entry.value())) parsed_.links.Clear();
  } else if (key == kSpeedsKey) {
    if (!parsed_.speeds.ParseFromString(entry.value())) parsed_.speeds.Clear();
  }
}

void DesiredState::TakeGang(const std::string& replica, const v1::StateEntry& entry) const {
  v1::GangRecord record;
  if (!record.ParseFromString(entry.value()) || record.deployment() != replica) return;
  if (entry.removed()) {
    parsed_.removed_epochs[replica] = record.epoch();
  } else {
    parsed_.gangs[replica] = std::move(record);
  }
}

void DesiredState::Drop(const std::string& key) const {
  if (const auto name = NameBehind(kDeploymentPrefix, key)) parsed_.deployments.erase(*name);
  if (const auto node = NameBehind(kCrashPrefix, key)) parsed_.crashes.erase(*node);
  if (const auto node = NameBehind(kCordonPrefix, key)) parsed_.cordons.erase(*node);
  if (const auto node = NameBehind(kMarksPrefix, key)) parsed_.marks.erase(*node);
  if (const auto tenant = NameBehind(kTenantPrefix, key)) parsed_.tenants.erase(*tenant);
  if (const auto model = NameBehind(kProfilePrefix, key)) parsed_.profiles.erase(*model);
  if (const auto id = NameBehind(kApiKeyPrefix, key)) parsed_.api_keys.erase(*id);
  if (const auto replica = NameBehind(kGangPrefix, key)) {
    parsed_.gangs.erase(*replica);
    parsed_.removed_epochs.erase(*replica);
  }
  parsed_.refusals.erase(key);
  if (const auto name = NameBehind(kStoppedPrefix, key)) parsed_.stopped.erase(*name);
  if (key == kPauseKey) parsed_.pause.reset();
  if (key == kLinksKey) parsed_.links.Clear();
  if (key == kSpeedsKey) parsed_.speeds.Clear();
}

const v1::Cordon* DesiredState::FindCordon(const std::string& node_id) const {
  const auto found = cordons().find(node_id);
  return found == cordons().end() ? nullptr : &found->second;
}

const v1::NodeMarks* DesiredState::FindMarks(const std::string& node_id) const {
  const auto& marks = Fresh().marks;
  const auto found = marks.find(node_id);
  return found == marks.end() ? nullptr : &found->second;
}

const v1::ModelProfile* DesiredState::FindProfile(const std::string& model) const {
  const auto found = profiles().find(model);
  return found == profiles().end() ? nullptr : &found->second;
}

const v1::Deployment* DesiredState::FindDeployment(const std::string& name) const {
  const auto found = deployments().find(name);
  return found == deployments().end() ? nullptr : &found->second;
}

const v1::GangRecord* DesiredState::FindGang(const std::string& replica) const {
  const auto found = gangs().find(replica);
  return found == gangs().end() ? nullptr : &found->second;
}

}  // namespace macrame::agentd
