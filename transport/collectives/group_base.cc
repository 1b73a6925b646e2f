#include "transport/collectives/group_base.h"

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace macrame::transport {

absl::Status GroupBase::Copy(const void* in, void* out, size_t bytes) {
  if (in != out && bytes > 0) std::memmove(out, in, bytes);
  return absl::OkStatus();
}

absl::Status GroupBase::WrongSize(std::span<const std::byte> in,
                                  std::span<const std::byte> out) const {
  return absl::InvalidArgumentError(
      absl::StrCat(in.size(), " bytes of each of ", size(), " ranks do not fill ", out.size()));
}

absl::Status GroupBase::WrongRank(int rank) const {
  return absl::InvalidArgumentError(absl::StrCat("there is no rank ", rank, " among ", size()));
}

absl::Status GroupBase::CheckReaches(int peer) const {
  if (peer < 0 || peer >= size() || peer == rank()) return WrongRank(peer);
  if (wire_->Reaches(peer)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rank ", rank(), " has no link to rank ", peer));
}

absl::Status GroupBase::SendTo(std::span<const std::byte> bytes, int peer) {
  const absl::Status good = CheckReaches(peer);
  if (!good.ok()) return good;
  const Send send{peer, bytes};
  return wire_->Exchange({&send, 1}, {});
}

absl::Status GroupBase::ReceiveFrom(std::span<std::byte> bytes, int peer) {
  const absl::Status good = CheckReaches(peer);
  if (!good.ok()) return good;
  const Receive receive{peer, bytes};
  return wire_->Exchange({}, {&receive, 1});
}

absl::Status GroupBase::SendAndReceive(std::span<const std::byte> out, int to,
                                       std::span<std::byte> in, int from) {
  absl::Status good = CheckReaches(to);
  if (good.ok()) good = CheckReaches(from);
  if (!good.ok()) return good;
  const Send send{to, out};
  const Receive receive{from, in};
  return wire_->Exchange({&send, 1}, {&receive, 1});
}

std::unique_ptr<Group> MakeGroup(std::unique_ptr<Wire> wire, Topology topology) {
  // Two ranks are neighbours on both sides: a mesh in either case.
  if (topology == Topology::kRing && wire->size() > 2) return MakeRingGroup(std::move(wire));
  return MakeMeshGroup(std::move(wire));
}

}  // namespace macrame::transport
