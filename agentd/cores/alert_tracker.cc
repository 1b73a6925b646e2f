#include "agentd/cores/alert_tracker.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "agentd/cores/health.h"
#include "proto/reason_codes.h"

namespace macrame::agentd {
namespace {

// Notices (IsNotice) that are told all the same.
constexpr std::string_view kToldNotices[] = {reasons::kThermal, reasons::kSlowerThanPredicted,
                                             reasons::kGpuWedged, reasons::kCertExpiring,
                                             reasons::kWriteLost};

std::string KeyOf(const Problem& problem) {
  if (!problem.model.empty()) return absl::StrCat("model\n", problem.model);
  return absl::StrCat(problem.reason.code(), "\n", problem.reason.node_id());
}

}  // namespace

bool IsAlert(std::string_view code) {
  return !IsNotice(code) || std::find(std::begin(kToldNotices), std::end(kToldNotices), code) !=
                                std::end(kToldNotices);
}

std::vector<Alert> AlertTracker::Raised() const {
  std::vector<Alert> raised;
  for (const auto& [key, known] : known_) {
    if (known.is_told) raised.push_back({false, known.reason, known.since_unix_ms});
  }
  return raised;
}

std::vector<Alert> AlertTracker::Update(const std::vector<Problem>& problems, MonotonicTime now,
                                        uint64_t now_unix_ms) {
  for (const Problem& problem : problems) {
    const std::string& code = problem.reason.code();
    if (code.empty() || (problem.model.empty() && !IsAlert(code))) continue;
    const auto [place, is_new] = known_.try_emplace(KeyOf(problem));
    Known& known = place->second;
    // One that came back before it was told was away in between.
    const bool came_back = !known.is_told && now - known.seen_at > options_.raise_after / 2;
    if (is_new || came_back) {
      known.came_at = now;
      known.since_unix_ms = now_unix_ms;
    }
    known.reason = problem.reason;
    known.seen_at = now;
  }
  std::vector<Alert> alerts;
  for (auto it = known_.begin(); it != known_.end();) {
    Known& known = it->second;
    const Duration away = now - known.seen_at;
    if (!known.is_told && away == Duration::zero() && now - known.came_at >= options_.raise_after) {
      known.is_told = true;
      alerts.push_back({false, known.reason, known.since_unix_ms});
    }
    const bool is_over = away >= options_.over_after;
    if (is_over && known.is_told) alerts.push_back({true, known.reason, known.since_unix_ms});
    it = is_over ? known_.erase(it) : std::next(it);
  }
  return alerts;
}

}  // namespace macrame::agentd
