#pragma once

// Orders that the coordinator did not acknowledge because it stopped being it. Where giving one
// twice is the same as once, it is given again.

#include <chrono>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/reasons.h"

namespace macrame::cli {

// How long an order is given again. An agent that finds no coordinator waits as long by itself, so
// where there is none this adds nothing.
inline constexpr std::chrono::milliseconds kCoordinatorChangeMax{5000};
inline constexpr std::chrono::milliseconds kCoordinatorChangePause{200};

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename Response>
const absl::Status& StatusOf(const absl::StatusOr<Response>& response) {
  return response.status();
}

// `order` returns a Status or a StatusOr. Not again when `stops` says so.
template <typename Order>
auto GiveOrder(
    const Order& order, std::chrono::milliseconds limit = kCoordinatorChangeMax,
    const std::function<bool()>& stops = [] { return false; }) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (true) {
    auto done = order();
    const bool is_lost = ReasonOf(StatusOf(done)).code() == reasons::kNoCoordinator;
    if (!is_lost || stops() || std::chrono::steady_clock::now() >= until) return done;
    std::this_thread::sleep_for(kCoordinatorChangePause);
  }
}

}  // namespace macrame::cli
