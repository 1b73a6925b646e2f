#include "agentd/node/heartbeat_sender.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/hash/hash.h"
#include "agentd/base/log_text.h"
#include "agentd/base/rpc_methods.h"
#include "proto/reasons.h"
#include "transport/status_codec.h"

namespace macrame::agentd {
namespace {

// Targets are put together anew at least so often: addresses are found without an event.
constexpr Duration kTargetsKept = std::chrono::seconds(1);
// A candidate that was not reached in this time is no reason to hurry any more.
constexpr Duration kSearchedFor = std::chrono::seconds(10);
constexpr int kSlowDoublingsMax = 4;

std::string TextOf(const discovery::HeartbeatTarget& target) {
  std::string text = std::to_string(target.control_port);
  for (const v1::NodeAddress& address : target.addresses) text += " " + address.ip();
  return text;
}

bool IsLive(const discovery::HeartbeatTarget& target) {
  return target.state == v1::NODE_STATE_ALIVE || target.state == v1::NODE_STATE_SUSPECT;
}

size_t HashOf(const std::vector<v1::NodeIdentity>& known) {
  size_t hash = known.size();
  for (const v1::NodeIdentity& identity : known) {
    hash = absl::HashOf(hash, identity.node_id(), identity.incarnation(), identity.control_port());
    for (const v1::NodeAddress& address : identity.addresses()) {
      hash = absl::HashOf(hash, address.ip());
    }
  }
  return hash;
}

}  // namespace

bool CallsFirst(const NodeId& node, const NodeId& other) {
  if (node.value().empty() || other.value().empty()) return true;
  const bool lower = ((node.value().back() ^ other.value().back()) & 1) == 0;
  return (node < other) == lower;
}

Duration FullInterval(const HeartbeatOptions& options, size_t members) {
  const Duration grown = options.full_interval * static_cast<int64_t>(members) /
                         static_cast<int64_t>(options.full_interval_members);
  return std::clamp(grown, options.full_interval, options.full_interval_max);
}

HeartbeatSender::HeartbeatSender(transport::Dispatcher& dispatcher, PeerChannels& channels,
                                 MemberMonitor& members, NodeId self, HeartbeatOptions options,
                                 Callbacks callbacks)
    : dispatcher_(dispatcher),
      channels_(channels),
      members_(members),
      self_(std::move(self)),
      options_(options),
      callbacks_(std::move(callbacks)) {}

// --- what is due ---------------------------------------------------------------------------------

Duration HeartbeatSender::TimeoutOf(const Link& link) const {
  const bool is_first = link.last_exchange == MonotonicTime() && link.failures < 3;
  return is_first ? options_.dial_timeout : options_.timeout;
}

MonotonicTime HeartbeatSender::DueAt(const discovery::HeartbeatTarget& target,
                                     const Link& link) const {
  // An answer, or the timeout, comes first.
  if (link.unanswered >= kHeartbeatsUnansweredMax) return link.last_sent + options_.timeout;
  if (!link.connected && link.unanswered > 0) return link.last_sent + TimeoutOf(link);
  // Found at another address: no reason to wait for what the old one says.
  if (!link.tried.empty() && link.tried != TextOf(target)) return MonotonicTime();
  return IsLive(target) ? MemberDueAt(target.node, link) : CandidateDueAt(target, link);
}

MonotonicTime HeartbeatSender::CandidateDueAt(const discovery::HeartbeatTarget& target,
                                              const Link& link) const {
  const bool is_new = target.state == v1::NODE_STATE_UNSPECIFIED && link.tried.empty();
  if (is_new) {
    const bool is_our_turn = CallsFirst(self_, target.node);
    return is_our_turn ? MonotonicTime() : link.known_since + options_.dial_grace;
  }
  // What can be heard is likely to answer.
  if (link.called_for || (target.state == v1::NODE_STATE_UNSPECIFIED && link.failures <= 1)) {
    return link.last_sent + options_.interval;
  }
  const int doublings = std::clamp(link.failures - 2, 0, kSlowDoublingsMax);
  return link.last_sent +
         std::min(options_.slow_interval * (1 << doublings), options_.slow_interval_max);
}

MonotonicTime HeartbeatSender::MemberDueAt(const NodeId& node, const Link& link) const {
  const bool is_our_turn = CallsFirst(self_, node);
  const auto after = [&](Duration wait) { return is_our_turn ? wait : wait + wait / 4; };
  MonotonicTime due = link.last_exchange + after(FullInterval(options_, targets_.size()));
  if (!is_our_turn) {
    due = std::min(due, link.last_answer == MonotonicTime()
                            ? link.known_since + options_.reverse_first
                            : link.last_answer + options_.reverse_interval);
  }
  if (dispatcher_.Now() < fresh_until_) due = std::min(due, link.last_sent + options_.interval);
  const MonotonicTime silent = std::max(link.last_beacon + options_.beacon_silence,
                                        link.last_exchange + after(options_.interval));
  due = std::min(due, silent);
  if (link.called_for) due = std::min(due, link.last_sent + options_.interval);
  if (link.failures > 0) {
    due = std::min(due, link.last_sent + options_.interval * std::min(link.failures, 8));
  }
  // Who is silent is asked twice as often, before it is suspect.
  Duration pause = dispatcher_.Now() >= silent ? options_.interval / 2 : options_.interval;
  // What is under way brings the news with its answer.
  const bool has_news = link.news != 0 && link.unanswered == 0;
  if (has_news && link.news != callbacks_.news_heard(node)) {
    const bool is_urgent = callbacks_.is_urgent(node);
    if (is_urgent) pause = options_.interval / 2;
    due = std::min(due, link.last_exchange + after(is_urgent ? pause : options_.news_interval));
  }
  return std::max(due, link.last_sent + pause);
}

bool HeartbeatSender::IsDialling(const Link& link) const {
  return !link.connected && link.unanswered > 0 && dispatcher_.Now() - link.last_sent < kDialSlot;
}

bool HeartbeatSender::IsLost(const discovery::HeartbeatTarget& target, const Link& link) const {
  const MonotonicTime now = dispatcher_.Now();
  if (target.state == v1::NODE_STATE_UNSPECIFIED) return now - link.known_since < kSearchedFor;
  if (target.state == v1::NODE_STATE_SUSPECT) return true;
  return target.state == v1::NODE_STATE_ALIVE &&
         now - std::max(link.last_beacon, link.last_exchange) > options_.beacon_silence;
}

// --- sending -------------------------------------------------------------------------------------

void HeartbeatSender::Wake() {
  next_due_ = MonotonicTime();
  targets_stale_ = true;
}

const std::vector<discovery::HeartbeatTarget>& HeartbeatSender::Targets() {
  const MonotonicTime now = dispatcher_.Now();
  if (targets_stale_ || now - targets_at_ >= kTargetsKept) {
    targets_ = members_.table().HeartbeatTargets();
    targets_at_ = now;
    targets_stale_ = false;
  }
  return targets_;
}

const discovery::HeartbeatTarget* HeartbeatSender::TargetOf(const NodeId& node) {
  for (const discovery::HeartbeatTarget& target : Targets()) {
    if (target.node == node) return &target;
  }
  return nullptr;
}

HeartbeatSender::Link& HeartbeatSender::LinkOf(const NodeId& node) {
  const auto [place, is_new] = links_.try_emplace(node);
  if (is_new) place->second.known_since = dispatcher_.Now();
  return place->second;
}

void HeartbeatSender::TakeAddresses() {
  Wake();
  if (!channels_.ready()) return;
  for (const discovery::HeartbeatTarget& target : Targets()) {
    if (IsLive(target)) {
      channels_.SetAddresses(target.node, target.addresses, target.control_port);
    }
  }
}

void HeartbeatSender::Tick() {
  if (!channels_.ready()) return;
  const MonotonicTime now = dispatcher_.Now();
  if (now < next_due_) return;
  next_due_ = now + options_.interval;
  is_searching_ = false;
  std::set<NodeId> present;
  std::vector<Due> due;
  for (const discovery::HeartbeatTarget& target : Targets()) {
    present.insert(target.node);
    Link& link = LinkOf(target.node);
    is_searching_ |= IsLost(target, link);
    const MonotonicTime at = DueAt(target, link);
    const bool is_full = link.unanswered >= kHeartbeatsUnansweredMax;
    if (at <= now && !is_full) {
      due.push_back({&target, &link, at});
    } else {
      next_due_ = std::min(next_due_, std::max(at, now));
      // Others call by the same channel.
      if (IsLive(target) && !link.connected) {
        channels_.SetAddresses(target.node, target.addresses, target.control_port);
      }
    }
  }
  SendDue(std::move(due));
  std::erase_if(links_, [&](const auto& entry) {
    return !present.contains(entry.first) && entry.second.unanswered == 0;
  });
}

// The longest due first; of those that are not connected a few at a time.
void HeartbeatSender::SendDue(std::vector<Due> due) {
  std::sort(due.begin(), due.end(), [](const Due& a, const Due& b) { return a.at < b.at; });
  int dials = 0;
  for (const auto& [node, link] : links_) dials += IsDialling(link);
  std::optional<v1::HeartbeatRequest> request;
  for (const Due& one : due) {
    if (!one.link->connected && dials++ >= kFirstCallsMax) {
      next_due_ = MonotonicTime();
      continue;
    }
    if (!request.has_value()) request = callbacks_.make();
    Send(*one.target, *one.link, *request);
    next_due_ = std::min(next_due_, DueAt(*one.target, *one.link));
  }
}

void HeartbeatSender::SendNews() {
  SendNow([this](const NodeId& node, const Link& link) {
    return link.connected || callbacks_.is_urgent(node);
  });
}

void HeartbeatSender::SendToAll() {
  SendNow([](const NodeId&, const Link&) { return true; });
}

void HeartbeatSender::KeepFresh() {
  const MonotonicTime now = dispatcher_.Now();
  if (now >= fresh_until_) next_due_ = MonotonicTime();
  fresh_until_ = now + kKeptFresh;
}

void HeartbeatSender::SendNow(const std::function<bool(const NodeId&, const Link&)>& wants) {
  if (!channels_.ready()) return;
  std::optional<v1::HeartbeatRequest> request;
  for (const discovery::HeartbeatTarget& target : Targets()) {
    if (!IsLive(target)) continue;
    Link& link = LinkOf(target.node);
    if (link.unanswered >= kHeartbeatsUnansweredMax || !wants(target.node, link)) continue;
    if (!request.has_value()) request = callbacks_.make();
    Send(target, link, *request);
  }
}

void HeartbeatSender::NoteReceived(const NodeId& node) {
  LinkOf(node).last_exchange = dispatcher_.Now();
}

void HeartbeatSender::NoteBeacon(const discovery::HeardBeacon& beacon,
                                 MemberMonitor::BeaconWorth worth) {
  if (worth == MemberMonitor::BeaconWorth::kNothing) return;
  Link& link = LinkOf(beacon.node);
  // An agent that never tells its news is asked for them as if it were not heard.
  if (beacon.news != 0) link.news = beacon.news;
  if (link.news != 0) link.last_beacon = dispatcher_.Now();
  if (worth == MemberMonitor::BeaconWorth::kWantsHeartbeat) link.called_for = true;
  const bool has_news = link.news != 0 && link.news != callbacks_.news_heard(beacon.node);
  if (link.called_for || has_news) next_due_ = MonotonicTime();
}

std::map<NodeId, std::string> HeartbeatSender::Refused() const {
  std::map<NodeId, std::string> refused;
  for (const auto& [node, link] : links_) {
    if (link.refusals >= kRefusalsTold) refused[node] = link.refused_by;
  }
  return refused;
}

void HeartbeatSender::SendTo(const NodeId& node) {
  const discovery::HeartbeatTarget* target = channels_.ready() ? TargetOf(node) : nullptr;
  if (target == nullptr) return;
  Link& link = LinkOf(node);
  if (link.unanswered < kHeartbeatsUnansweredMax) Send(*target, link, callbacks_.make());
}

void HeartbeatSender::SendLease(const NodeId& node, const v1::LeaseRequest& lease, LeaseDone done) {
  const discovery::HeartbeatTarget* target = channels_.ready() ? TargetOf(node) : nullptr;
  if (target == nullptr) return done(absl::UnavailableError("the node has no address"));
  Link& link = LinkOf(node);
  if (link.unanswered >= kHeartbeatsUnansweredMax) {
    return done(absl::UnavailableError("the node leaves too many calls unanswered"));
  }
  v1::HeartbeatRequest request = callbacks_.make();
  *request.mutable_lease() = lease;
  Send(*target, link, std::move(request), std::move(done));
}

void HeartbeatSender::Fill(const NodeId& node, Link& link, v1::HeartbeatRequest& request) {
  const v1::Inventory& inventory = callbacks_.inventory();
  request.set_inventory_revision(inventory.revision());
  request.set_known_inventory_revision(callbacks_.known_revision(node));
  if (link.wants_inventory || link.inventory_sent != inventory.revision()) {
    *request.mutable_inventory() = inventory;
    link.inventory_sent = inventory.revision();
  }
  const v1::NodeLinks& links = callbacks_.links();
  request.set_links_revision(links.revision());
  request.set_known_links_revision(callbacks_.known_links_revision(node));
  if (links.revision() != 0 && (link.wants_links || link.links_sent != links.revision())) {
    *request.mutable_links() = links;
    link.links_sent = links.revision();
  }
  AddGossip(link, request);
}

void HeartbeatSender::AddGossip(Link& link, v1::HeartbeatRequest& request) {
  const MonotonicTime now = dispatcher_.Now();
  if (now - link.gossip_looked_at < options_.gossip_interval) return;
  link.gossip_looked_at = now;
  std::vector<v1::NodeIdentity> known = members_.table().KnownIdentities();
  const size_t hash = HashOf(known);
  if (hash == link.gossip_told && now - link.gossip_told_at < options_.gossip_interval_max) return;
  link.gossip_told = hash;
  link.gossip_told_at = now;
  for (v1::NodeIdentity& identity : known) *request.add_known() = std::move(identity);
}

void HeartbeatSender::Send(const discovery::HeartbeatTarget& target, Link& link,
                           v1::HeartbeatRequest request, LeaseDone lease_done) {
  const MonotonicTime now = dispatcher_.Now();
  link.last_sent = now;
  std::string text = TextOf(target);
  if (text != link.tried) link.connected = false;
  link.tried = std::move(text);
  if (!channels_.SetAddresses(target.node, target.addresses, target.control_port)) {
    if (lease_done) lease_done(absl::UnavailableError("the node has no address"));
    return;
  }
  Fill(target.node, link, request);
  ++link.unanswered;
  channels_.For(target.node)
      ->Call(kHeartbeat, request, TimeoutOf(link),
             [this, node = target.node, now,
              lease_done = std::move(lease_done)](absl::StatusOr<v1::HeartbeatResponse> response) {
               OnAnswer(node, now, std::move(response), lease_done);
             });
}

void HeartbeatSender::OnFailure(const NodeId& node, Link& link, const absl::Status& status) {
  next_due_ = MonotonicTime();
  ++link.failures;
  const bool is_timeout = absl::IsDeadlineExceeded(status);
  if (!is_timeout || link.failures >= kHeartbeatsUnansweredMax) link.connected = false;
  if (link.failures == 1) {
    spdlog::info("heartbeat to {} failed: {}", ShortId(node), LogText(status));
  }
  if (transport::IsHandshakeFailure(status)) {
    ++link.refusals;
    link.refused_by = std::string(status.message());
  } else {
    link.refusals = 0;
  }
  if (const v1::Reason reason = ReasonOf(status); reason.code() == reasons::kNodeRevoked) {
    own_refusal_ = reason;
  }
  members_.HeartbeatFailed(node, transport::IsConnectionRefused(status)
                                     ? discovery::HeartbeatFailure::kRefused
                                     : discovery::HeartbeatFailure::kTimeout);
}

std::optional<Duration> HeartbeatSender::RoundTrip(const NodeId& node) const {
  const auto link = links_.find(node);
  return link == links_.end() ? std::nullopt : link->second.round_trip;
}

void HeartbeatSender::OnAnswer(const NodeId& node, MonotonicTime asked_at,
                               absl::StatusOr<v1::HeartbeatResponse> response,
                               const LeaseDone& lease_done) {
  Link& link = LinkOf(node);
  link.unanswered = std::max(0, link.unanswered - 1);
  if (!response.ok()) {
    OnFailure(node, link, response.status());
    if (lease_done) lease_done(response.status());
    return;
  }
  if (!link.connected) next_due_ = MonotonicTime();  // room for the next to be dialled
  link.failures = link.refusals = 0;
  own_refusal_.Clear();
  // The channel holds the peer to the id in its certificate; its answer must agree. And where
  // another machine answers at this address, it does not speak for the member.
  const bool is_its_own = response->identity().node_id() == node.value() &&
                          members_.HeardMember(response->identity(), "", /*answered=*/true,
                                               asked_at) == discovery::Admission::kTaken;
  if (!is_its_own) {
    if (lease_done) lease_done(absl::PermissionDeniedError("another node answered"));
    return;
  }
  link.connected = true;
  link.called_for = false;
  link.last_answer = dispatcher_.Now();
  link.round_trip = link.last_answer - asked_at;
  // Without a word of its own it does not take this node for who it is, yet: it is asked again
  // soon.
  if (response->has_own()) link.last_exchange = dispatcher_.Now();
  link.wants_inventory = response->wants_inventory();
  link.wants_links = response->wants_links();
  if (link.wants_inventory) SendTo(node);
  absl::StatusOr<v1::LeaseResponse> lease = absl::UnimplementedError("no lease in the answer");
  if (!response->has_own() || response->has_refused()) {
    lease = absl::PermissionDeniedError("this node is not taken for who it is");
  } else if (response->has_lease()) {
    lease = std::move(*response->mutable_lease());
  }
  callbacks_.on_answer(node, std::move(*response));
  if (lease_done) lease_done(std::move(lease));
}

}  // namespace macrame::agentd
