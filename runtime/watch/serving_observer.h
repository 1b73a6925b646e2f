#pragma once

// What hears how rank 0 serves: requests as they come and go, beside the steps. Engine thread.

#include <cstdint>

#include "proto/monotonic_time.h"
#include "runtime/model/step/step_observer.h"

namespace macrame::runtime::engine {

enum class RequestMoment : uint8_t {
  kArrived = 1,
  kStarted = 2,     // its first tokens go into a step; again after a preemption
  kFirstToken = 3,  // of its answer
  kEnded = 4,
};

class ServingObserver : public StepObserver {
 public:
  virtual void OnRequest(uint64_t id, RequestMoment moment) = 0;
  // How long the step that comes next should take; zero: too little was measured to know.
  virtual void ExpectStep(Duration expected) = 0;
};

}  // namespace macrame::runtime::engine
