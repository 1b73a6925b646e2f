#include "agentd/cores/event_log.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

bool IsSame(const v1::Event& a, const v1::Event& b) {
  return a.seen_by() != b.seen_by() && a.kind() == b.kind() && a.subject() == b.subject() &&
         a.message() == b.message();
}

}  // namespace

void EventLog::Add(uint64_t now_unix_ms, std::string_view kind, const std::string& subject,
                   const std::string& message, const v1::Reason& reason) {
  v1::Event event;
  event.set_at_unix_ms(now_unix_ms);
  event.set_seen_by(self_.value());
  event.set_kind(std::string(kind));
  event.set_subject(subject);
  event.set_message(message);
  if (!reason.code().empty()) *event.mutable_reason() = reason;
  event.set_sequence(++sequence_);
  events_.push_back(std::move(event));
  if (events_.size() > kEventsMax) events_.pop_front();
}

void EventLog::Observe(const DesiredState& desired, const std::map<std::string, std::string>& names,
                       uint64_t now_unix_ms) {
  std::map<std::string, bool> models, cordons;
  for (const auto& [name, wanted] : desired.deployments()) models[name] = true;
  for (const auto& [node, cordon] : desired.cordons()) cordons[node] = cordon.drain();
  const auto name_of = [&](const std::string& node) {
    const auto found = names.find(node);
    return found == names.end() ? node.substr(0, 8) : found->second;
  };
  const v1::ClusterPause* present = desired.pause();
  const std::string pause = present == nullptr   ? ""
                            : present->stopped() ? "was stopped"
                                                 : "was drained";
  if (has_looked_) {
    if (pause != pause_) {
      Add(now_unix_ms, kClusterEvent, "the cluster", pause.empty() ? "was started" : pause);
    }
    for (const auto& [name, is_wanted] : models) {
      if (!models_.contains(name)) Add(now_unix_ms, kModelEvent, name, "was asked for");
    }
    for (const auto& [name, was_wanted] : models_) {
      if (!models.contains(name)) Add(now_unix_ms, kModelEvent, name, "was unloaded");
    }
    for (const auto& [node, drains] : cordons) {
      const auto before = cordons_.find(node);
      if (before != cordons_.end() && before->second == drains) continue;
      Add(now_unix_ms, kCordonEvent, name_of(node), drains ? "is to be drained" : "was cordoned");
    }
    for (const auto& [node, drained] : cordons_) {
      if (!cordons.contains(node)) Add(now_unix_ms, kCordonEvent, name_of(node), "was uncordoned");
    }
  }
  has_looked_ = true;
  pause_ = pause;
  models_ = std::move(models);
  cordons_ = std::move(cordons);
}

v1::ListEventsResponse EventLog::Since(uint64_t since_unix_ms) const {
  v1::ListEventsResponse response;
  for (const v1::Event& event : events_) {
    if (event.at_unix_ms() > since_unix_ms) *response.add_events() = event;
  }
  return response;
}

v1::ListEventsResponse MergeEvents(const std::vector<v1::ListEventsResponse>& told) {
  std::vector<v1::Event> all;
  v1::ListEventsResponse merged;
  for (const v1::ListEventsResponse& one : told) {
    all.insert(all.end(), one.events().begin(), one.events().end());
    merged.mutable_missing()->MergeFrom(one.missing());
  }
  std::stable_sort(all.begin(), all.end(), [](const v1::Event& a, const v1::Event& b) {
    return a.at_unix_ms() < b.at_unix_ms();
  });
  for (v1::Event& event : all) {
    const auto& kept = merged.events();
    const auto too_old = std::find_if(kept.rbegin(), kept.rend(), [&](const v1::Event& earlier) {
      return event.at_unix_ms() - earlier.at_unix_ms() > kSameEventMs;
    });
    const bool is_known = std::any_of(
        kept.rbegin(), too_old, [&](const v1::Event& earlier) { return IsSame(earlier, event); });
    if (!is_known) *merged.add_events() = std::move(event);
  }
  return merged;
}

}  // namespace macrame::agentd
