#include "agentd/cores/event_log.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/same_event.h"

namespace macrame::agentd {
namespace {

bool IsAlike(const v1::Event& a, const v1::Event& b) {
  return a.kind() == b.kind() && a.subject() == b.subject() && a.message() == b.message();
}

// An event, and the agents that tell of it: each tells once of one, so a second of the same agent
// is another.
struct Told {
  v1::Event event;
  std::set<std::string> seen_by;
};

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
  std::vector<Told> kept;
  size_t recent = 0;  // the first that may still be told of by another
  for (const v1::Event& event : all) {
    while (recent < kept.size() &&
           event.at_unix_ms() - kept[recent].event.at_unix_ms() > kSameEventMs) {
      ++recent;
    }
    const auto first = kept.begin() + static_cast<std::ptrdiff_t>(recent);
    const auto known = std::find_if(first, kept.end(), [&](const Told& earlier) {
      return IsAlike(earlier.event, event) && !earlier.seen_by.contains(event.seen_by());
    });
    if (known != kept.end()) {
      known->seen_by.insert(event.seen_by());
    } else {
      kept.push_back({event, {event.seen_by()}});
    }
  }
  for (Told& one : kept) *merged.add_events() = std::move(one.event);
  return merged;
}

}  // namespace macrame::agentd
