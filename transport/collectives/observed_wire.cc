#include "transport/collectives/observed_wire.h"

#include <utility>

namespace macrame::transport {
namespace {

class ObservedWire : public Wire {
 public:
  ObservedWire(std::unique_ptr<Wire> wire, WireObserver* observer)
      : wire_(std::move(wire)), observer_(observer) {}

  int rank() const override { return wire_->rank(); }
  int size() const override { return wire_->size(); }
  Backend backend() const override { return wire_->backend(); }
  bool Reaches(int peer) const override { return wire_->Reaches(peer); }
  absl::Status Exchange(std::span<const Send> sends, std::span<const Receive> receives) override {
    observer_->BeginExchange();
    absl::Status status = wire_->Exchange(sends, receives);
    observer_->EndExchange();
    return status;
  }
  absl::Status CheckPeer(int peer) override { return wire_->CheckPeer(peer); }
  WireStats stats() const override { return wire_->stats(); }
  void ShutDown() override { wire_->ShutDown(); }

 private:
  const std::unique_ptr<Wire> wire_;
  WireObserver* const observer_;
};

}  // namespace

std::unique_ptr<Wire> MakeObservedWire(std::unique_ptr<Wire> wire, WireObserver* observer) {
  return std::make_unique<ObservedWire>(std::move(wire), observer);
}

}  // namespace macrame::transport
