#pragma once

// Time as pure code sees it: an instant of the monotonic clock, handed in by a shell. Wall-clock
// time appears only in messages for people, as `…_unix_ms`.

#include <chrono>

namespace macrame {

using Duration = std::chrono::microseconds;
using MonotonicTime = std::chrono::time_point<std::chrono::steady_clock, Duration>;

}  // namespace macrame
