#pragma once

// Measures this node's links, and lets others measure theirs. ThreadLinkMeasurer
// (thread_link_measurer.h) does it over TCP; a simulation has its own. Owner thread for all calls
// and callbacks.

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "macrame/v1/link.pb.h"
#include "transport/link_meter.h"

namespace macrame::agentd {

class LinkMeasurer {
 public:
  virtual ~LinkMeasurer() = default;

  // A peer measures the way to this own address: transport::LinkMeter::Open.
  virtual absl::StatusOr<transport::LinkMeter::Offer> Open(const std::string& ip) = 0;
  // `done` once, later; never after Stop. One at a time. False: not begun.
  virtual bool Measure(const transport::MeterTarget& target,
                       std::function<void(v1::LinkMeasurement)> done) = 0;
  virtual void Stop() = 0;
};

}  // namespace macrame::agentd
