#pragma once

// Keeps this machine's link facts up to date. Owner thread: the dispatcher's. MachineLinkProber
// (machine_link_prober.h) asks the machine; a simulation has its own.

#include <functional>

#include "macrame/v1/link.pb.h"

namespace macrame::discovery {

class LinkProber {
 public:
  virtual ~LinkProber() = default;

  // Asks at once and then periodically. `on_facts` runs on the owner thread when the first facts
  // are there and after each change.
  virtual void Start(std::function<void(const v1::LinkFacts&)> on_facts) = 0;
  virtual void Stop() = 0;
  // Asks now; `done` (may be empty) runs on the owner thread when that probe, not one that was
  // under way already, has been taken in.
  virtual void ProbeNow(std::function<void()> done) = 0;

  virtual const v1::LinkFacts& facts() const = 0;  // empty node_id before the first
};

}  // namespace macrame::discovery
