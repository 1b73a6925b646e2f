#include "discovery/probe/link_flaps.h"

#include <algorithm>

namespace macrame::discovery {
namespace {

v1::Fact CarrierOf(const v1::LinkFacts& facts, const v1::ThunderboltPort& port) {
  if (port.interface_name().empty()) return v1::FACT_UNKNOWN;
  for (const v1::LinkInterface& interface : facts.interfaces()) {
    if (interface.name() != port.interface_name()) continue;
    // One that was switched off has no carrier whatever is plugged in.
    const bool says_nothing =
        interface.has_carrier() == v1::FACT_NO && interface.is_up() != v1::FACT_YES;
    return says_nothing ? v1::FACT_UNKNOWN : interface.has_carrier();
  }
  return v1::FACT_UNKNOWN;
}

std::set<std::string> PeersOf(const v1::ThunderboltPort& port) {
  std::set<std::string> peers;
  for (const v1::ThunderboltPeer& peer : port.peers()) {
    if (!peer.domain_uuid().empty()) peers.insert(peer.domain_uuid());
  }
  return peers;
}

// Also when either is not known: a computer is listed some time after its link is there.
bool MayBeTheSame(const std::set<std::string>& before, const std::set<std::string>& now) {
  return before.empty() || now.empty() ||
         std::any_of(before.begin(), before.end(),
                     [&](const std::string& peer) { return now.contains(peer); });
}

}  // namespace

void LinkFlaps::Note(v1::LinkFacts& facts, MonotonicTime now) {
  std::erase_if(sockets_,
                [&](const auto& entry) { return now - entry.second.seen_at > kRemembered; });
  std::set<Key> noted;
  for (v1::ThunderboltPort& port : *facts.mutable_ports()) {
    const Key key(port.socket(), port.socket() == 0 ? port.domain_uuid() : "");
    if (key == Key() || !noted.insert(key).second) continue;
    Socket* const socket = Find(key);
    if (socket == nullptr) continue;
    socket->seen_at = now;
    Follow(facts, port, now, *socket);
    auto& drops = socket->drops;
    while (!drops.empty() && (now - drops.front() > kRemembered || drops.size() > kDropsMax)) {
      drops.pop_front();
    }
    port.set_drops_last_hour(static_cast<uint32_t>(drops.size()));
  }
}

LinkFlaps::Socket* LinkFlaps::Find(const Key& key) {
  const auto known = sockets_.find(key);
  if (known != sockets_.end()) return &known->second;
  return sockets_.size() < kSocketsMax ? &sockets_[key] : nullptr;
}

void LinkFlaps::Follow(const v1::LinkFacts& facts, const v1::ThunderboltPort& port,
                       MonotonicTime now, Socket& socket) {
  if (socket.gone_since && now - *socket.gone_since > kReturnsWithin) {
    // What comes now is a new link.
    socket.was_there = socket.had_carrier = false;
    socket.peers.clear();
    socket.gone_since.reset();
  }
  const v1::Fact carrier = CarrierOf(facts, port);
  // A dock's socket never has one, and tells by itself what is connected.
  const bool lost_carrier = socket.had_carrier && carrier == v1::FACT_NO;
  const bool is_there =
      carrier == v1::FACT_YES || (port.connected() == v1::FACT_YES && !lost_carrier);
  if (!is_there) {
    const bool is_gone = lost_carrier || port.connected() == v1::FACT_NO;
    if (is_gone && socket.was_there && !socket.gone_since) socket.gone_since = now;
    return;
  }
  std::set<std::string> peers = PeersOf(port);
  if (socket.gone_since && MayBeTheSame(socket.peers, peers)) socket.drops.push_back(now);
  socket.gone_since.reset();
  socket.was_there = true;
  socket.had_carrier = socket.had_carrier || carrier == v1::FACT_YES;
  if (!peers.empty()) socket.peers = std::move(peers);
}

}  // namespace macrame::discovery
