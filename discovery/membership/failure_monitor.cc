#include "discovery/membership/failure_monitor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/reasons.h"

namespace macrame::discovery {
namespace {

std::string Seconds(Duration duration) {
  return absl::StrFormat("%.1f s", std::chrono::duration<double>(duration).count());
}

}  // namespace

void FailureMonitor::Add(const NodeId& node, MonotonicTime now) {
  Peer peer;
  peer.last_heard = now;
  peer.last_exchange = now;
  peer.last_probe = now;
  peers_[node] = peer;
}

FailureEffects FailureMonitor::Hear(const NodeId& node, MonotonicTime now) {
  const auto found = peers_.find(node);
  if (found == peers_.end()) return {};
  found->second.last_exchange = std::max(found->second.last_exchange, now);
  return Revive(node, found->second, now);
}

FailureEffects FailureMonitor::BeaconReceived(const NodeId& node, MonotonicTime now) {
  const auto found = peers_.find(node);
  if (found == peers_.end()) return {};
  Peer& peer = found->second;
  const bool is_trusted = now - peer.last_exchange <= limits_.beacons_trusted_for;
  if (peer.state == v1::NODE_STATE_DEAD || !is_trusted) return {};
  return Revive(node, peer, now);
}

void FailureMonitor::BeaconOfDeadReceived(const NodeId& node) {
  if (const auto found = peers_.find(node); found != peers_.end()) found->second.is_refused = false;
}

FailureEffects FailureMonitor::Revive(const NodeId& node, Peer& peer, MonotonicTime now) {
  const bool was_alive = peer.state == v1::NODE_STATE_ALIVE;
  peer.state = v1::NODE_STATE_ALIVE;
  peer.last_heard = std::max(peer.last_heard, now);
  peer.refusals = 0;
  peer.asks = 0;
  peer.is_refused = false;
  peer.grace = Duration(0);
  if (was_alive) return {};
  return {FailureEffect{FailureEffect::Kind::kBecameAlive, node, {}}};
}

FailureEffects FailureMonitor::HeartbeatFailed(const NodeId& node, HeartbeatFailure failure,
                                               MonotonicTime now) {
  const auto found = peers_.find(node);
  // A time-out says no more than the silence that Tick sees.
  if (found == peers_.end() || failure == HeartbeatFailure::kTimeout) return {};
  Peer& peer = found->second;
  if (peer.state == v1::NODE_STATE_DEAD) return {};
  ++peer.refusals;
  FailureEffects effects;
  Judge(node, peer, now, effects);
  if (peer.state != v1::NODE_STATE_DEAD && peer.refusals < limits_.refusals_until_dead) {
    effects.push_back({FailureEffect::Kind::kProbe, node, {}});
  }
  return effects;
}

void FailureMonitor::NoteAsked(const NodeId& node, int asks) {
  if (const auto found = peers_.find(node); found != peers_.end()) found->second.asks += asks;
}

FailureEffects FailureMonitor::Tick(MonotonicTime now) {
  NoteOwnPause(now);
  BlameSelfFirst(now);
  FailureEffects effects;
  for (auto& [node, peer] : peers_) {
    Judge(node, peer, now, effects);
    if (peer.state != v1::NODE_STATE_DEAD && now - peer.last_heard >= limits_.ask_after) {
      effects.push_back({FailureEffect::Kind::kAsk, node, {}});
    }
    // Here alone, where a pause of this process has been taken out.
    if (!peer.is_refused || now - peer.last_heard < limits_.gone_after * widening_) continue;
    peer.is_refused = false;
    effects.push_back({FailureEffect::Kind::kGone, node, {}});
  }
  return effects;
}

void FailureMonitor::NoteOwnPause(MonotonicTime now) {
  const Duration late = ticked_ ? now - last_tick_ - limits_.tick_interval : Duration(0);
  ticked_ = true;
  last_tick_ = now;
  if (late > limits_.late_tick) {
    widening_ = std::min(widening_ * 2, limits_.widen_max);
    last_late_ = now;
    for (auto& [node, peer] : peers_) {
      peer.last_heard = std::min(now, peer.last_heard + late);
      peer.last_exchange = std::min(now, peer.last_exchange + late);
    }
  } else if (widening_ > 1 && now - last_late_ >= limits_.narrow_after) {
    widening_ /= 2;
    last_late_ = now;
  }
}

void FailureMonitor::BlameSelfFirst(MonotonicTime now) {
  size_t counted = 0;
  size_t silent = 0;
  for (const auto& [node, peer] : peers_) {
    if (peer.state == v1::NODE_STATE_DEAD) continue;
    ++counted;
    if (now - peer.last_heard >= limits_.suspect_after * widening_) ++silent;
  }
  // With a single peer its silence says as much about it as about us.
  if (silent < 2 || silent * 2 < counted) return;
  for (auto& [node, peer] : peers_) {
    if (peer.state != v1::NODE_STATE_DEAD && now - peer.last_heard >= limits_.suspect_after) {
      peer.grace = limits_.dead_after;
    }
  }
}

void FailureMonitor::Judge(const NodeId& node, Peer& peer, MonotonicTime now,
                           FailureEffects& effects) {
  if (peer.state == v1::NODE_STATE_DEAD) return;
  const Duration silence = now - peer.last_heard;
  const bool is_unanswered = peer.asks >= limits_.asks_until_dead;
  const Duration limit = is_unanswered ? limits_.unanswered_after : limits_.dead_after;
  if (silence >= limit * widening_ + peer.grace) {
    std::string message = absl::StrCat("not heard for ", Seconds(silence));
    if (is_unanswered) absl::StrAppend(&message, ", and ", peer.asks, " beacons not answered");
    effects.push_back(Die(node, peer, std::move(message)));
    return;
  }
  if (peer.refusals >= limits_.refusals_until_dead && silence >= limits_.refused_after) {
    effects.push_back(
        Die(node, peer,
            absl::StrCat("refused ", peer.refusals, " connections in a row and was not heard for ",
                         Seconds(silence), ": the machine is there, but no agent runs on it")));
    peer.is_refused = true;
    return;
  }
  if (silence < limits_.suspect_after * widening_) return;
  if (peer.state == v1::NODE_STATE_ALIVE) {
    peer.state = v1::NODE_STATE_SUSPECT;
    effects.push_back({FailureEffect::Kind::kBecameSuspect, node,
                       MakeReason(reasons::kNodeSuspect,
                                  absl::StrCat("not heard for ", Seconds(silence)), node.value())});
  }
  if (now - peer.last_probe >= limits_.heartbeat_interval / 2) {
    peer.last_probe = now;
    effects.push_back({FailureEffect::Kind::kProbe, node, {}});
  }
}

FailureEffect FailureMonitor::Die(const NodeId& node, Peer& peer, std::string message) {
  peer.state = v1::NODE_STATE_DEAD;
  return {FailureEffect::Kind::kBecameDead, node,
          MakeReason(reasons::kNodeDead, std::move(message), node.value())};
}

v1::NodeState FailureMonitor::StateOf(const NodeId& node) const {
  const auto found = peers_.find(node);
  return found == peers_.end() ? v1::NODE_STATE_UNSPECIFIED : found->second.state;
}

Duration FailureMonitor::SilenceOf(const NodeId& node, MonotonicTime now) const {
  const auto found = peers_.find(node);
  return found == peers_.end() ? Duration(0) : now - found->second.last_heard;
}

}  // namespace macrame::discovery
