#include "agentd/node/peer_channels.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "transport/tls_credentials.h"

namespace macrame::agentd {
namespace {

void EndCalls(const NodeId& node, const std::unique_ptr<transport::PeerChannel>& channel) {
  if (channel == nullptr) return;
  channel->EndCalls(
      absl::UnavailableError(absl::StrCat("node ", ShortId(node), " was given up meanwhile")));
}

}  // namespace

void PeerChannels::UseTls(const transport::NodeCredentials& credentials) {
  credentials_ = transport::TlsChannelCredentials(credentials);
  if (std::exchange(plain_, false)) {
    for (const auto& [node, channel] : std::exchange(channels_, {})) EndCalls(node, channel);
  }
  for (auto& [node, channel] : channels_) channel->SetCredentials(credentials_);
}

void PeerChannels::UsePlain() {
  channels_.clear();
  plain_ = true;
  credentials_ = transport::PlainChannelCredentials();
}

bool PeerChannels::SetAddresses(const NodeId& node, const std::vector<v1::NodeAddress>& addresses,
                                uint32_t control_port) {
  transport::PeerChannel* channel = For(node);
  if (channel == nullptr || control_port == 0) return false;
  std::vector<std::string> targets;
  for (const v1::NodeAddress& address : addresses) {
    if (targets.size() == kAddressesTriedMax) break;
    // A link-local address says nothing without an interface of this machine.
    if (absl::StartsWith(address.ip(), "fe80:")) continue;
    targets.push_back(HostPort(address.ip(), control_port));
  }
  if (targets.empty()) return false;
  channel->SetAddresses(std::move(targets));
  return true;
}

transport::PeerChannel* PeerChannels::For(const NodeId& node) {
  if (credentials_ == nullptr || revoked_.contains(node)) return nullptr;
  std::unique_ptr<transport::PeerChannel>& channel = channels_[node];
  if (channel == nullptr) {
    channel = make_(node, credentials_, plain_ ? "" : transport::NodeTlsName(node));
  }
  return channel.get();
}

// Those whose calls end may call again: by then it is not found here.
void PeerChannels::Forget(const NodeId& node) {
  const auto found = channels_.extract(node);
  if (!found.empty()) EndCalls(node, found.mapped());
}

void PeerChannels::SetRevoked(std::set<NodeId> nodes) {
  revoked_ = std::move(nodes);
  for (const NodeId& node : std::set(revoked_)) Forget(node);
}

void PeerChannels::Clear() { channels_.clear(); }

}  // namespace macrame::agentd
