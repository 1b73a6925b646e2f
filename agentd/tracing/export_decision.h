#pragma once

// What follows a try to send spans: they are taken, given up, or sent again after a pause
// (https://opentelemetry.io/docs/specs/otlp/#otlphttp-response: again after 429, 502, 503 and 504,
// with the server's Retry-After where it names one, and where nobody answered). Pure: chance is
// handed in.

#include <optional>

#include "proto/monotonic_time.h"

namespace macrame::agentd {

struct ExportLimits {
  int tries = 5;
  Duration first_pause = std::chrono::seconds(1);  // twice as long after each try
  Duration pause_max = std::chrono::seconds(30);   // of what a server asks for, too
};

struct TryOutcome {
  int http_status = 0;  // 0: there was no answer
  std::optional<Duration> retry_after{};
};

struct ExportDecision {
  enum class Kind { kTaken, kGivenUp, kAgain };
  Kind kind = Kind::kTaken;
  Duration pause{};  // of kAgain
};

// After the try of this number, from 1. `chance`: 0 to 1; pauses are spread by it over their upper
// half, so that agents don't come back all at once.
ExportDecision DecideExport(const TryOutcome& outcome, int tries_made, double chance,
                            const ExportLimits& limits);

}  // namespace macrame::agentd
