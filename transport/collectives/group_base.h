#pragma once

// What collectives over a mesh and over a ring share. Internal to transport/collectives.

#include <memory>
#include <span>

#include "absl/status/status.h"
#include "transport/collectives/group.h"
#include "transport/collectives/wire.h"

namespace macrame::transport {

class GroupBase : public Group {
 public:
  explicit GroupBase(std::unique_ptr<Wire> wire) : wire_(std::move(wire)) {}

  int rank() const override { return wire_->rank(); }
  int size() const override { return wire_->size(); }
  Backend backend() const override { return wire_->backend(); }
  absl::Status SendTo(std::span<const std::byte> bytes, int peer) override;
  absl::Status ReceiveFrom(std::span<std::byte> bytes, int peer) override;
  absl::Status SendAndReceive(std::span<const std::byte> out, int to, std::span<std::byte> in,
                              int from) override;
  WireStats stats() const override { return wire_->stats(); }
  void ShutDown() override { wire_->ShutDown(); }

 protected:
  Wire& wire() { return *wire_; }
  static absl::Status Copy(const void* in, void* out, size_t bytes);
  absl::Status WrongSize(std::span<const std::byte> in, std::span<const std::byte> out) const;
  absl::Status WrongRank(int rank) const;
  absl::Status CheckReaches(int peer) const;

 private:
  std::unique_ptr<Wire> wire_;
};

std::unique_ptr<Group> MakeMeshGroup(std::unique_ptr<Wire> wire);
std::unique_ptr<Group> MakeRingGroup(std::unique_ptr<Wire> wire);

}  // namespace macrame::transport
