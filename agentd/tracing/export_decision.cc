#include "agentd/tracing/export_decision.h"

#include <algorithm>

namespace macrame::agentd {
namespace {

constexpr int kTakenFirst = 200, kTakenLast = 299;

bool IsWorthAnotherTry(int http_status) {
  return http_status == 0 || http_status == 429 || (http_status >= 502 && http_status <= 504);
}

}  // namespace

ExportDecision DecideExport(const TryOutcome& outcome, int tries_made, double chance,
                            const ExportLimits& limits) {
  using Kind = ExportDecision::Kind;
  if (outcome.http_status >= kTakenFirst && outcome.http_status <= kTakenLast) {
    return {Kind::kTaken};
  }
  if (!IsWorthAnotherTry(outcome.http_status) || tries_made >= limits.tries) {
    return {Kind::kGivenUp};
  }
  if (outcome.retry_after.has_value()) {
    return {Kind::kAgain, std::clamp(*outcome.retry_after, Duration(0), limits.pause_max)};
  }
  Duration pause = limits.first_pause;
  for (int i = 1; i < tries_made && pause < limits.pause_max; ++i) pause *= 2;
  pause = std::min(pause, limits.pause_max);
  const double share = 0.5 + 0.5 * std::clamp(chance, 0.0, 1.0);
  return {Kind::kAgain, std::chrono::duration_cast<Duration>(pause * share)};
}

}  // namespace macrame::agentd
