#include "agentd/state/revocations.h"

#include <spdlog/spdlog.h>

#include "agentd/base/log_text.h"
#include "agentd/base/rpc_methods.h"
#include "transport/trust.h"

namespace macrame::agentd {
namespace {

constexpr size_t kSignatureBytesMax = 256;
constexpr size_t kHostnameBytesMax = 255;

}  // namespace

void Revocations::SetAuthority(std::string authority_pem, std::string cluster_id) {
  authority_pem_ = std::move(authority_pem);
  cluster_id_ = std::move(cluster_id);
  state_revision_ = 0;
  v1::RevocationList saved;
  if (saved.ParseFromString(parts_.store.loaded_revocations())) Take(saved);
  TakeState();
}

const v1::Revocation* Revocations::Find(const NodeId& node) const {
  const auto found = revoked_.find(node);
  return found == revoked_.end() ? nullptr : &found->second;
}

v1::RevocationList Revocations::List() const {
  v1::RevocationList list;
  for (const auto& [node, revocation] : revoked_) *list.add_revocations() = revocation;
  return list;
}

bool Revocations::IsSigned(const v1::Revocation& one) const {
  return transport::IsRevocationSigned(authority_pem_, cluster_id_, NodeId(one.node_id()),
                                       one.revoked_unix_ms(), one.signature());
}

void Revocations::TakeState() {
  const StateTable& table = parts_.replicator.table();
  if (authority_pem_.empty() || state_revision_ == table.revision() + 1) return;
  state_revision_ = table.revision() + 1;
  v1::RevocationList list;
  const v1::StateEntry* entry = table.Find(kRevokedKey);
  if (entry != nullptr && list.ParseFromString(entry->value())) Take(list);
}

void Revocations::Take(const v1::RevocationList& list) {
  bool changed = false;
  size_t looked_at = 0;
  for (const v1::Revocation& one : list.revocations()) {
    // A longer list is nobody's work.
    if (++looked_at > kRevokedMax) break;
    const NodeId node(one.node_id());
    if (Has(node) || full() || authority_pem_.empty() || !IsValidNodeId(one.node_id()) ||
        one.signature().size() > kSignatureBytesMax) {
      continue;
    }
    if (!IsSigned(one)) {
      spdlog::warn("a revocation of node {} is not signed by this cluster's authority: ignored",
                   ShortId(node));
      continue;
    }
    v1::Revocation& kept = revoked_[node] = one;
    if (kept.hostname().size() > kHostnameBytesMax) kept.clear_hostname();
    spdlog::warn("node {} ({}) is revoked: it is not a member any more", kept.hostname(),
                 ShortId(node));
    changed = true;
  }
  if (!changed) return;
  const absl::Status saved = parts_.store.SaveRevocations(List().SerializeAsString());
  if (!saved.ok()) {
    spdlog::error("a revocation is not on this node's disk: {}", LogText(saved));
  }
  // Later: this may be the answer of a call to one of them, whose channel goes.
  parts_.dispatcher.Post([this] {
    std::set<NodeId> nodes;
    for (const auto& [node, revocation] : revoked_) nodes.insert(node);
    parts_.on_changed(nodes);
  });
}

void Revocations::Announce(const v1::Revocation& revocation) {
  v1::TakeRevocationsRequest request;
  *request.mutable_revoked()->add_revocations() = revocation;
  Take(request.revoked());
  for (const NodeId& node : parts_.members.Live()) {
    if (node.value() == revocation.node_id()) continue;
    transport::PeerChannel* channel = parts_.channels.For(node);
    if (channel == nullptr) continue;
    channel->Call(kTakeRevocations, request, kTellRevokedTimeout,
                  [node](const absl::StatusOr<v1::TakeRevocationsResponse>& response) {
                    if (response.ok()) return;
                    spdlog::warn(
                        "node {} was not told of a revocation, and hears of it from the desired "
                        "state: {}",
                        ShortId(node), LogText(response.status()));
                  });
  }
}

void Revocations::TellCoordinator() {
  const std::optional<FencePair> coordinator = parts_.election.Coordinator(parts_.dispatcher.Now());
  if (!coordinator.has_value() || Has(coordinator->coordinator)) return;
  transport::PeerChannel* channel = parts_.channels.For(coordinator->coordinator);
  if (channel == nullptr) return;
  v1::TakeRevocationsRequest request;
  *request.mutable_revoked() = List();
  channel->Call(
      kTakeRevocations, request, kTellRevokedTimeout,
      [](const absl::StatusOr<v1::TakeRevocationsResponse>&) {});  // told again until it is written
}

bool Revocations::IsWritten() const {
  v1::RevocationList written;
  const v1::StateEntry* entry = parts_.replicator.table().Find(kRevokedKey);
  if (entry != nullptr) written.ParseFromString(entry->value());
  std::set<std::string> there;
  for (const v1::Revocation& one : written.revocations()) {
    // One that nobody would believe is written away: many of them could hide the others.
    const v1::Revocation* own = Find(NodeId(one.node_id()));
    const bool same = own != nullptr && own->signature() == one.signature();
    if (!same && !IsSigned(one)) return false;
    there.insert(one.node_id());
  }
  for (const auto& [node, revocation] : revoked_) {
    if (!there.contains(node.value())) return false;
  }
  return true;
}

void Revocations::Tick() {
  const MonotonicTime now = parts_.dispatcher.Now();
  if (revoked_.empty() || writing_ || now < write_from_) return;
  if (!parts_.election.Leading(now).has_value()) {
    write_from_ = now + kRevokedToldPause;
    if (!IsWritten()) TellCoordinator();
    return;
  }
  write_from_ = now + kRevokedWritePause;
  for (const auto& [node, revocation] : revoked_) {
    if (!parts_.member_writer.listed().contains(node) || parts_.members.IsMember(node)) continue;
    parts_.member_writer.Forget(node, [](const absl::StatusOr<v1::ForgetNodeResponse>&) {});
    break;
  }
  if (IsWritten()) return;
  writing_ = true;
  parts_.replicator.Write(std::string(kRevokedKey), List().SerializeAsString(),
                          [this](const absl::Status& status) {
                            writing_ = false;
                            if (status.ok()) return;
                            spdlog::warn("revocations were not written: {}", LogText(status));
                          });
}

}  // namespace macrame::agentd
