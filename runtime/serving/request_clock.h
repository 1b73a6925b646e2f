#pragma once

// How long a request took at its entry rank, and in what: RequestTimings. Kept only for requests
// that ask for it. Pure: whoever has it hands in the time. Engine thread.

#include <cstdint>
#include <optional>

#include "macrame/v1/rank.pb.h"
#include "proto/monotonic_time.h"

namespace macrame::runtime::engine {

class RequestClock {
 public:
  // When it came to the rank, and when its prompt was ready for the engine.
  RequestClock(MonotonicTime received, MonotonicTime prepared)
      : received_(received), prepared_(prepared) {}

  // Its first step is ordered. Called again it does nothing, as FirstToken.
  void Start(MonotonicTime now);
  void FirstToken(MonotonicTime now);
  bool has_answered() const { return answered_.has_value(); }
  // A step with some of its tokens was run, of which this rank waited so long in collectives;
  // unset: that is not known. A step before its first token is a prefill's.
  void AddStep(std::optional<Duration> waited);
  void Interrupt() { ++interruptions_; }

  // Of a request that is over now.
  v1::RequestTimings Timings(MonotonicTime now) const;

 private:
  struct Steps {
    uint32_t count = 0;
    std::optional<Duration> waited{};
  };

  const MonotonicTime received_;
  const MonotonicTime prepared_;
  std::optional<MonotonicTime> started_;
  std::optional<MonotonicTime> answered_;
  Steps prefill_;
  Steps decode_;
  uint32_t interruptions_ = 0;
};

}  // namespace macrame::runtime::engine
