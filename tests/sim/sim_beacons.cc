#include "tests/sim/sim_beacons.h"

#include <algorithm>
#include <utility>

namespace macrame::agentd::sim {

SimBeaconService::SimBeaconService(SimNetwork& network, ProcessPtr process,
                                   transport::Dispatcher& dispatcher,
                                   const discovery::BeaconServiceOptions& options,
                                   const v1::NodeIdentity& self,
                                   discovery::BeaconServiceCallbacks callbacks)
    : network_(network),
      process_(std::move(process)),
      dispatcher_(dispatcher),
      self_(self),
      callbacks_(std::move(callbacks)),
      schedule_(options.intervals) {
  discovery::Interface interface;
  interface.name = "en0";
  interface.index = 1;
  interface.kind = v1::INTERFACE_KIND_ETHERNET;
  interface.is_up = true;
  interface.addresses.push_back({IpOf(process_->machine), false, 24, "10.0.0.255"});
  interfaces_.push_back(interface);
  v1::NodeAddress address;
  address.set_ip(IpOf(process_->machine));
  address.set_interface_name(interface.name);
  address.set_interface_kind(interface.kind);
  address.set_prefix_length(24);
  self_.clear_addresses();
  *self_.add_addresses() = address;
}

void SimBeaconService::Start() {
  *running_ = true;
  network_.Listen(process_, [this, running = running_](const SimBeacon& beacon, bool to_all) {
    if (!*running) return;
    // What is sent to everybody waits in the socket; what is for this process alone wakes it.
    if (to_all && takes_turns_) {
      kept_.push_back(beacon);
    } else {
      Hear(beacon);
    }
  });
  schedule_.StartBurst(dispatcher_.Now());
  Arm();
}

void SimBeaconService::SetAllPeersConnected(bool connected) {
  if (std::exchange(all_connected_, connected) == connected) return;
  schedule_.SetSettled(connected, dispatcher_.Now());
  Arm();
}

void SimBeaconService::SetSignsOfLife(bool wanted) {
  if (std::exchange(signs_of_life_, wanted) == wanted) return;
  schedule_.SetSignsOfLife(wanted, dispatcher_.Now());
  Arm();
}

void SimBeaconService::SetTakesTurns(bool takes_turns) {
  if (std::exchange(takes_turns_, takes_turns) == takes_turns) return;
  Arm();
}

void SimBeaconService::Turn() {
  if (!*running_) return;
  SendDue();
  for (const SimBeacon& beacon : std::exchange(kept_, {})) Hear(beacon);
}

int SimBeaconService::Ask(const NodeId& member) {
  if (!*running_ || !ways_.contains(member)) return 0;
  const auto ask = [this, member] {
    network_.SendBeacon(process_->machine, ways_[member], Make(Kind::kReplyWanted),
                        /*to_everybody=*/false);
  };
  if (process_->is_alive()) ask();
  dispatcher_.PostAfter(discovery::kAskAgain, [ask, running = running_] {
    if (*running) ask();
  });
  return 2;
}

SimBeacon SimBeaconService::Make(Kind kind) {
  SimBeacon beacon{self_, ++sequence_, 0, dispatcher_.UnixMs(), kind == Kind::kReplyWanted};
  if (kind == Kind::kSignOfLife) beacon.news = callbacks_.news();
  return beacon;
}

void SimBeaconService::Arm() {
  if (!*running_) return;
  if (timer_ != 0) dispatcher_.Cancel(timer_);
  timer_ = 0;
  if (takes_turns_ && !schedule_.in_burst()) return;
  timer_ = dispatcher_.PostAt(schedule_.NextDue(), [this, running = running_] {
    if (!*running) return;
    SendDue();
    Arm();
  });
}

void SimBeaconService::SendDue() {
  const MonotonicTime now = dispatcher_.Now();
  const bool in_burst = schedule_.in_burst();
  const bool is_due = schedule_.TakeDue(now);
  const bool is_sign_due = schedule_.TakeSignOfLife(now);
  if (!process_->is_alive()) return;
  if (is_due) {
    network_.Broadcast(process_->machine, Make(in_burst ? Kind::kReplyWanted : Kind::kWhole));
  }
  if (is_sign_due) network_.Broadcast(process_->machine, Make(Kind::kSignOfLife));
}

void SimBeaconService::Hear(const SimBeacon& beacon) {
  const v1::NodeIdentity& identity = beacon.identity;
  if (identity.node_id() == self_.node_id()) {
    return callbacks_.on_own_id_elsewhere(identity, beacon.news != 0);
  }
  const NodeId node(identity.node_id());
  const int from = MachineAt(identity.addresses(0).ip());
  ways_[node] = from;
  if (beacon.reply_wanted) {
    const MonotonicTime now = dispatcher_.Now();
    const auto [last, is_new] = answered_.try_emplace(from, now);
    if (is_new || now - last->second >= discovery::kAnswerInterval) {
      last->second = now;
      network_.SendBeacon(process_->machine, from, Make(Kind::kWhole), /*to_everybody=*/false);
    }
  }
  callbacks_.on_peer_clock(node, beacon.sent_unix_ms);
  callbacks_.on_peer(identity);
  callbacks_.on_beacon({node, identity.machine(), identity.control_port(), identity.incarnation(),
                        beacon.sequence, beacon.news});
}

}  // namespace macrame::agentd::sim
