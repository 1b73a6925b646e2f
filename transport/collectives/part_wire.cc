#include "transport/collectives/part_wire.h"

#include <utility>

#include "proto/check.h"

namespace macrame::transport {
namespace {

class PartWire : public Wire {
 public:
  PartWire(std::shared_ptr<Wire> whole, int first, int size)
      : whole_(std::move(whole)), first_(first), size_(size) {
    MACRAME_CHECK(first >= 0 && size > 0 && first + size <= whole_->size() &&
                  whole_->rank() >= first && whole_->rank() < first + size)
        << "rank " << whole_->rank() << " of " << whole_->size() << " is not in [" << first << ", "
        << first + size << ")";
  }

  int rank() const override { return whole_->rank() - first_; }
  int size() const override { return size_; }
  Backend backend() const override { return whole_->backend(); }
  bool Reaches(int peer) const override { return whole_->Reaches(first_ + peer); }

  absl::Status Exchange(std::span<const Send> sends, std::span<const Receive> receives) override {
    sends_.assign(sends.begin(), sends.end());
    receives_.assign(receives.begin(), receives.end());
    for (Send& send : sends_) send.peer += first_;
    for (Receive& receive : receives_) receive.peer += first_;
    return whole_->Exchange(sends_, receives_);
  }

  absl::Status CheckPeer(int peer) override { return whole_->CheckPeer(first_ + peer); }
  WireStats stats() const override { return whole_->stats(); }
  void ShutDown() override { whole_->ShutDown(); }

 private:
  const std::shared_ptr<Wire> whole_;
  const int first_, size_;
  std::vector<Send> sends_;  // with the whole wire's numbers
  std::vector<Receive> receives_;
};

}  // namespace

std::unique_ptr<Wire> MakePartWire(std::shared_ptr<Wire> whole, int first, int size) {
  return std::make_unique<PartWire>(std::move(whole), first, size);
}

}  // namespace macrame::transport
