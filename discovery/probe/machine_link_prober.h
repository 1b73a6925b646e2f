#pragma once

// LinkProber of this machine: questions are asked on a worker thread, never two at once.

#include <functional>
#include <memory>
#include <string>

#include "discovery/probe/link_facts.h"
#include "discovery/probe/link_prober.h"
#include "discovery/probe/panic_reports.h"
#include "proto/monotonic_time.h"
#include "transport/dispatcher.h"

namespace macrame::discovery {

class MachineLinkProber final : public LinkProber {
 public:
  struct Options {
    Duration interval = std::chrono::seconds(30);
    std::string root;                 // Linux: below which /proc and /sys are
    CommandRunner* runner = nullptr;  // a Mac's commands; null: real ones. Outlives the prober
    bool is_mac = false;
    VerbsLister verbs;  // Linux; any thread
    // Also when the system says that an interface, an address or a device changed.
    bool watch = true;
    std::string panic_reports = kPanicReportsFolder;  // a Mac's folder of them
  };

  MachineLinkProber(transport::Dispatcher& dispatcher, LinkInputs inputs, Options options);
  ~MachineLinkProber() override;  // waits for the worker, at most a command's time to be killed

  void Start(std::function<void(const v1::LinkFacts&)> on_facts) override;
  void Stop() override;
  void ProbeNow(std::function<void()> done) override;
  const v1::LinkFacts& facts() const override;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace macrame::discovery
