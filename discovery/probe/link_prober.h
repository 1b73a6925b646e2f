#pragma once

// Keeps this machine's link facts up to date. Owner thread: the dispatcher's; questions are asked
// on a worker thread, never two at once.

#include <functional>
#include <memory>
#include <string>

#include "discovery/probe/link_facts.h"
#include "macrame/v1/link.pb.h"
#include "proto/monotonic_time.h"
#include "transport/dispatcher.h"

namespace macrame::discovery {

class LinkProber {
 public:
  struct Options {
    Duration interval = std::chrono::seconds(30);
    std::string root;                 // Linux: below which /proc and /sys are
    CommandRunner* runner = nullptr;  // a Mac's commands; null: real ones. Outlives the prober
    bool is_mac = false;
    VerbsLister verbs;  // Linux; any thread
    // Also when the system says that an interface, an address or a device changed.
    bool watch = true;
  };

  LinkProber(transport::Dispatcher& dispatcher, LinkInputs inputs, Options options);
  ~LinkProber();  // waits for the worker, at most a command's time to be killed

  // Asks at once and then periodically. `on_facts` runs on the owner thread when the first facts
  // are there and after each change.
  void Start(std::function<void(const v1::LinkFacts&)> on_facts);
  void Stop();
  // Asks now; `done` (may be empty) runs on the owner thread when that probe, not one that was
  // under way already, has been taken in.
  void ProbeNow(std::function<void()> done);

  const v1::LinkFacts& facts() const;  // empty node_id before the first

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace macrame::discovery
