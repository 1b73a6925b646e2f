#include "agentd/heartbeat_sender.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <set>

#include "agentd/log_text.h"
#include "agentd/rpc_methods.h"
#include "proto/reasons.h"
#include "transport/status_codec.h"

namespace macrame::agentd {
namespace {

std::string TextOf(const discovery::HeartbeatTarget& target) {
  std::string text = std::to_string(target.control_port);
  for (const v1::NodeAddress& address : target.addresses) text += " " + address.ip();
  return text;
}

}  // namespace

HeartbeatSender::HeartbeatSender(transport::Dispatcher& dispatcher, PeerChannels& channels,
                                 MemberMonitor& members, HeartbeatOptions options,
                                 Callbacks callbacks)
    : dispatcher_(dispatcher),
      channels_(channels),
      members_(members),
      options_(options),
      callbacks_(std::move(callbacks)) {}

MonotonicTime HeartbeatSender::DueAt(const discovery::HeartbeatTarget& target,
                                     const Link& link) const {
  // An answer, or the timeout, comes first.
  if (link.unanswered >= kHeartbeatsUnansweredMax) return link.last_sent + options_.timeout;
  // Found at another address: no reason to wait for what the old one says.
  if (link.tried != TextOf(target)) return MonotonicTime();
  const bool slow = target.state == v1::NODE_STATE_DEAD ||
                    (target.state == v1::NODE_STATE_UNSPECIFIED && link.failures > 1);
  if (slow) return link.last_sent + options_.slow_interval;
  return std::max(link.last_sent + options_.interval,
                  link.last_received + options_.interval + options_.interval / 4);
}

void HeartbeatSender::Tick() {
  if (!channels_.ready()) return;
  const MonotonicTime now = dispatcher_.Now();
  if (now < next_due_) return;
  next_due_ = now + options_.interval;
  std::optional<v1::HeartbeatRequest> request;
  std::set<NodeId> present;
  for (const discovery::HeartbeatTarget& target : members_.table().HeartbeatTargets()) {
    present.insert(target.node);
    Link& link = links_[target.node];
    const bool is_full = link.unanswered >= kHeartbeatsUnansweredMax;
    if (!is_full && DueAt(target, link) <= now) {
      if (!request.has_value()) request = callbacks_.make();
      Send(target, link, *request);
    }
    next_due_ = std::min(next_due_, DueAt(target, link));
  }
  std::erase_if(links_, [&](const auto& entry) {
    return !present.contains(entry.first) && entry.second.unanswered == 0;
  });
}

void HeartbeatSender::SendToAll() {
  if (!channels_.ready()) return;
  std::optional<v1::HeartbeatRequest> request;
  for (const discovery::HeartbeatTarget& target : members_.table().HeartbeatTargets()) {
    if (target.state != v1::NODE_STATE_ALIVE && target.state != v1::NODE_STATE_SUSPECT) continue;
    Link& link = links_[target.node];
    if (link.unanswered >= kHeartbeatsUnansweredMax) continue;
    if (!request.has_value()) request = callbacks_.make();
    Send(target, link, *request);
  }
}

void HeartbeatSender::NoteReceived(const NodeId& node) {
  const auto link = links_.find(node);
  if (link != links_.end()) link->second.last_received = dispatcher_.Now();
}

std::map<NodeId, std::string> HeartbeatSender::Refused() const {
  std::map<NodeId, std::string> refused;
  for (const auto& [node, link] : links_) {
    if (link.refusals >= kRefusalsTold) refused[node] = link.refused_by;
  }
  return refused;
}

void HeartbeatSender::SendTo(const NodeId& node) {
  if (!channels_.ready()) return;
  for (const discovery::HeartbeatTarget& target : members_.table().HeartbeatTargets()) {
    if (target.node != node) continue;
    Link& link = links_[node];
    if (link.unanswered < kHeartbeatsUnansweredMax) Send(target, link, callbacks_.make());
    return;
  }
}

void HeartbeatSender::Send(const discovery::HeartbeatTarget& target, Link& link,
                           v1::HeartbeatRequest request) {
  const MonotonicTime now = dispatcher_.Now();
  link.last_sent = now;
  link.tried = TextOf(target);
  if (!channels_.SetAddresses(target.node, target.addresses, target.control_port)) return;
  transport::PeerChannel* channel = channels_.For(target.node);
  const v1::Inventory& inventory = callbacks_.inventory();
  request.set_inventory_revision(inventory.revision());
  request.set_known_inventory_revision(callbacks_.known_revision(target.node));
  if (link.wants_inventory || link.inventory_sent != inventory.revision()) {
    *request.mutable_inventory() = inventory;
    link.inventory_sent = inventory.revision();
  }
  const v1::NodeLinks& links = callbacks_.links();
  request.set_links_revision(links.revision());
  request.set_known_links_revision(callbacks_.known_links_revision(target.node));
  if (links.revision() != 0 && (link.wants_links || link.links_sent != links.revision())) {
    *request.mutable_links() = links;
    link.links_sent = links.revision();
  }
  if (now - link.last_gossip >= options_.gossip_interval) {
    link.last_gossip = now;
    for (v1::NodeIdentity& known : members_.table().KnownIdentities()) {
      *request.add_known() = std::move(known);
    }
  }
  ++link.unanswered;
  channel->Call<v1::HeartbeatResponse>(
      kHeartbeat, request, options_.timeout,
      [this, node = target.node, now](absl::StatusOr<v1::HeartbeatResponse> response) {
        OnAnswer(node, now, std::move(response));
      });
}

void HeartbeatSender::OnAnswer(const NodeId& node, MonotonicTime asked_at,
                               absl::StatusOr<v1::HeartbeatResponse> response) {
  Link& link = links_[node];
  --link.unanswered;
  if (!response.ok()) {
    Wake();
    ++link.failures;
    if (link.failures == 1) {
      spdlog::info("heartbeat to {} failed: {}", ShortId(node), LogText(response.status()));
    }
    if (transport::IsHandshakeFailure(response.status())) {
      ++link.refusals;
      link.refused_by = std::string(response.status().message());
    } else {
      link.refusals = 0;
    }
    if (const v1::Reason reason = ReasonOf(response.status()); reason.code() == "NODE_REVOKED") {
      own_refusal_ = reason;
    }
    members_.HeartbeatFailed(node, transport::IsConnectionRefused(response.status())
                                       ? discovery::HeartbeatFailure::kRefused
                                       : discovery::HeartbeatFailure::kTimeout);
    return;
  }
  link.failures = link.refusals = 0;
  own_refusal_.Clear();
  // The channel holds the peer to the id in its certificate; its answer must agree.
  if (response->identity().node_id() != node.value()) return;
  link.wants_inventory = response->wants_inventory();
  link.wants_links = response->wants_links();
  const discovery::Admission admission =
      members_.HeardMember(response->identity(), "", /*answered=*/true, asked_at);
  // Another machine answers at this address: it does not speak for the member.
  if (admission != discovery::Admission::kTaken) return;
  if (link.wants_inventory) SendTo(node);
  callbacks_.on_answer(node, std::move(*response));
}

}  // namespace macrame::agentd
