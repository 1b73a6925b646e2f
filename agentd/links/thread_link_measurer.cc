#include "agentd/links/thread_link_measurer.h"

#include <utility>

namespace macrame::agentd {

bool ThreadLinkMeasurer::Measure(const transport::MeterTarget& target,
                                 std::function<void(v1::LinkMeasurement)> done) {
  if (alive_ == nullptr) return false;
  if (worker_ == nullptr) worker_ = std::make_unique<transport::WorkerThread>();
  // The callback is kept on this side: what it holds belongs to the owner thread.
  auto kept = std::make_shared<std::function<void(v1::LinkMeasurement)>>(std::move(done));
  return worker_->Add(
      [&dispatcher = dispatcher_, target, kept, weak = std::weak_ptr<bool>(alive_)] {
        v1::LinkMeasurement measured = transport::MeasureLink(target);
        dispatcher.Post([kept, weak, measured = std::move(measured)]() mutable {
          if (!weak.expired()) (*kept)(std::move(measured));
        });
      });
}

void ThreadLinkMeasurer::Stop() {
  alive_.reset();
  worker_.reset();
}

}  // namespace macrame::agentd
