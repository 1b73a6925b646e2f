#pragma once

// LinkMeasurer over TCP. A measurement blocks for up to some two seconds, on a thread of its own.

#include <memory>

#include "agentd/links/link_measurer.h"
#include "transport/dispatcher.h"
#include "transport/worker_thread.h"

namespace macrame::agentd {

class ThreadLinkMeasurer final : public LinkMeasurer {
 public:
  explicit ThreadLinkMeasurer(transport::Dispatcher& dispatcher) : dispatcher_(dispatcher) {}
  ~ThreadLinkMeasurer() override { Stop(); }
  ThreadLinkMeasurer(const ThreadLinkMeasurer&) = delete;
  ThreadLinkMeasurer& operator=(const ThreadLinkMeasurer&) = delete;

  absl::StatusOr<transport::LinkMeter::Offer> Open(const std::string& ip) override {
    return meter_.Open(ip);
  }
  bool Measure(const transport::MeterTarget& target,
               std::function<void(v1::LinkMeasurement)> done) override;
  void Stop() override;

 private:
  transport::Dispatcher& dispatcher_;
  transport::LinkMeter meter_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::unique_ptr<transport::WorkerThread> worker_;  // from the first measurement on
};

}  // namespace macrame::agentd
