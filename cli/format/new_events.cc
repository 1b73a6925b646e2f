#include "cli/format/new_events.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/same_event.h"

namespace macrame::cli {
namespace {

std::string KeyOf(const v1::Event& event) {
  return absl::StrCat(event.kind(), "\n", event.subject(), "\n", event.message());
}

}  // namespace

std::vector<v1::Event> NewEvents::Take(const v1::ListEventsResponse& response) {
  for (auto& [what, known] : known_) {
    for (Known& one : known) one.is_told = false;
  }
  // Those that are told as before come first, so that none is taken for another agent's view of one
  // of them.
  std::vector<const v1::Event*> others;
  for (const v1::Event& event : response.events()) {
    if (!NoteTold(event, 0)) others.push_back(&event);
  }
  std::vector<v1::Event> fresh;
  for (const v1::Event* event : others) {
    if (NoteTold(*event, kSameEventMs)) continue;
    known_[KeyOf(*event)].push_back({event->at_unix_ms(), event->seen_by(), true});
    fresh.push_back(*event);
  }
  return fresh;
}

uint64_t NewEvents::newest_unix_ms(uint64_t now_unix_ms) const {
  uint64_t newest = 0;
  for (const auto& [what, known] : known_) {
    for (const Known& one : known) {
      if (one.at_unix_ms <= now_unix_ms) newest = std::max(newest, one.at_unix_ms);
    }
  }
  return newest;
}

bool NewEvents::NoteTold(const v1::Event& event, uint64_t apart_max_ms) {
  const auto known = known_.find(KeyOf(event));
  if (known == known_.end()) return false;
  for (Known& one : known->second) {
    const uint64_t apart =
        std::max(one.at_unix_ms, event.at_unix_ms()) - std::min(one.at_unix_ms, event.at_unix_ms());
    const bool is_same = one.seen_by == event.seen_by() && apart == 0;
    const bool is_alike = one.seen_by != event.seen_by() && apart <= apart_max_ms;
    if (one.is_told || !(is_same || (apart_max_ms > 0 && is_alike))) continue;
    one.is_told = true;
    return true;
  }
  return false;
}

}  // namespace macrame::cli
