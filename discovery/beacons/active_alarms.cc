#include "discovery/beacons/active_alarms.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace macrame::discovery {

void ActiveAlarms::Raise(const std::string& key, const v1::Reason& reason) {
  const auto found = problems_.find(key);
  if (found != problems_.end()) {
    found->second = reason;
    return;
  }
  if (problems_.size() >= kProblemsMax) return;
  problems_[key] = reason;
  spdlog::warn("discovery: {} ({}){}{}", reason.message(), reason.code(),
               reason.remedy().empty() ? "" : ". ", reason.remedy());
}

void ActiveAlarms::Clear(const std::string& key) {
  const auto found = problems_.find(key);
  if (found == problems_.end()) return;
  spdlog::info("discovery: over: {} ({})", found->second.message(), found->second.code());
  problems_.erase(found);
}

std::vector<v1::Reason> ActiveAlarms::Problems() const {
  std::vector<v1::Reason> problems;
  for (const auto& [key, reason] : problems_) problems.push_back(reason);
  return problems;
}

}  // namespace macrame::discovery
