#include "agentd/cores/link_schedule.h"

#include <algorithm>

#include "transport/links/ipv4.h"

namespace macrame::agentd {
namespace {

constexpr int kBackoffDoublingsMax = 6;  // 5 s to some 5 min
constexpr char kLoopback[] = "127.0.0.1";

struct Held {
  const v1::LinkInterface* interface;
  std::string ip;
  uint32_t address;
  transport::Ipv4Subnet subnet;
};

std::vector<Held> AddressesOf(const v1::LinkFacts& facts, bool allow_vpn) {
  std::vector<Held> held;
  for (const v1::LinkInterface& interface : facts.interfaces()) {
    if (interface.is_up() == v1::FACT_NO || interface.has_carrier() == v1::FACT_NO) continue;
    if (interface.kind() == v1::INTERFACE_KIND_LOOPBACK ||
        interface.kind() == v1::INTERFACE_KIND_BRIDGE ||
        (interface.kind() == v1::INTERFACE_KIND_VPN && !allow_vpn)) {
      continue;
    }
    for (const v1::NodeAddress& address : interface.addresses()) {
      const auto ip = transport::ParseIpv4(address.ip());
      if (!ip || transport::IsLoopback(*ip) || transport::IsNoHost(*ip)) continue;
      held.push_back(
          {&interface, address.ip(), *ip, transport::SubnetOf(*ip, address.prefix_length())});
    }
  }
  return held;
}

bool ShareStack(const v1::LinkFacts& from, const v1::LinkFacts& to, const std::vector<Held>& mine,
                const std::vector<Held>& theirs) {
  if (from.hardware_id().empty() || from.hardware_id() != to.hardware_id()) return false;
  if (mine.empty() && theirs.empty()) return true;
  return std::any_of(mine.begin(), mine.end(), [&](const Held& a) {
    return std::any_of(theirs.begin(), theirs.end(), [&](const Held& b) {
      return a.address == b.address && a.interface->name() == b.interface->name();
    });
  });
}

// Whatever address packets are sent from, they leave by the interface in the receiver's subnet: a
// pair with another interface's address would measure that one, and outlive it.
bool HasSubnetOf(const std::vector<Held>& held, const Held& other) {
  return std::any_of(held.begin(), held.end(),
                     [&](const Held& one) { return one.subnet == other.subnet; });
}

// The slower of the two decides what can be expected.
v1::InterfaceKind KindOf(const Held& a, const Held& b) {
  return a.interface->kind() == v1::INTERFACE_KIND_THUNDERBOLT ? b.interface->kind()
         : b.interface->kind() == v1::INTERFACE_KIND_THUNDERBOLT
             ? a.interface->kind()
             : std::max(a.interface->kind(), b.interface->kind());
}

}  // namespace

std::vector<LinkPair> PairsBetween(const v1::LinkFacts& from, const v1::LinkFacts& to,
                                   bool allow_vpn) {
  const std::vector<Held> mine = AddressesOf(from, allow_vpn), theirs = AddressesOf(to, allow_vpn);
  if (ShareStack(from, to, mine, theirs)) {
    return {{to.node_id(), kLoopback, kLoopback, "lo", "lo", v1::INTERFACE_KIND_LOOPBACK}};
  }
  std::vector<LinkPair> near, far;
  for (const Held& a : mine) {
    for (const Held& b : theirs) {
      if (a.address == b.address) continue;
      LinkPair pair{to.node_id(),        a.ip,        b.ip, a.interface->name(),
                    b.interface->name(), KindOf(a, b)};
      // A cable's addresses lead to its other end and nowhere else.
      const bool local = transport::IsLinkLocal(a.address) || transport::IsLinkLocal(b.address) ||
                         a.interface->kind() == v1::INTERFACE_KIND_THUNDERBOLT ||
                         b.interface->kind() == v1::INTERFACE_KIND_THUNDERBOLT;
      if (a.subnet == b.subnet) {
        near.push_back(std::move(pair));
      } else if (!local && !HasSubnetOf(mine, b) && !HasSubnetOf(theirs, a)) {
        far.push_back(std::move(pair));
      }
    }
  }
  near.insert(near.end(), far.begin(), far.end());
  if (near.size() > kPairsPerPeerMax) near.resize(kPairsPerPeerMax);
  return near;
}

void LinkSchedule::SetPairs(const std::vector<LinkPair>& pairs) {
  std::map<LinkPair, Entry> entries;
  for (const LinkPair& pair : pairs) {
    const auto known = entries_.find(pair);
    const bool same = known != entries_.end() &&
                      known->first.from_interface == pair.from_interface &&
                      known->first.to_interface == pair.to_interface;
    if (!same) NoteChanged(pair);
    entries.emplace(pair, same ? known->second : Entry{});
  }
  entries_ = std::move(entries);
}

void LinkSchedule::AddPairs(const std::vector<LinkPair>& pairs) {
  for (const LinkPair& pair : pairs) {
    if (entries_.try_emplace(pair).second) NoteChanged(pair);
  }
}

void LinkSchedule::NoteChanged(const LinkPair& pair) {
  if (running_.has_value() && running_->Key() == pair.Key()) again_ = true;
}

void LinkSchedule::Hurry(const std::string& to_node_id) {
  for (auto& [pair, entry] : entries_) {
    if (!to_node_id.empty() && pair.to_node_id != to_node_id) continue;
    entry.due = MonotonicTime();
    entry.failures = 0;
    entry.measured = false;
    NoteChanged(pair);
  }
}

void LinkSchedule::RetryFailed(const std::string& to_node_id) {
  for (auto& [pair, entry] : entries_) {
    if (pair.to_node_id != to_node_id || entry.failures == 0) continue;
    entry.due = MonotonicTime();
    entry.failures = 0;
  }
}

std::optional<LinkPair> LinkSchedule::Next(MonotonicTime now) {
  if (now < not_before_ || running_.has_value()) return std::nullopt;  // one at a time
  auto best = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->second.due > now) continue;
    if (best == entries_.end() || it->second.due < best->second.due) best = it;
  }
  if (best == entries_.end()) return std::nullopt;
  again_ = false;
  running_ = best->first;
  return running_;
}

void LinkSchedule::Done(const LinkPair& pair, bool ok, MonotonicTime now) {
  not_before_ = now + kLinkPause;
  running_.reset();
  const auto found = entries_.find(pair);
  if (found == entries_.end() || again_) return;
  Entry& entry = found->second;
  entry.measured = true;
  entry.failures = ok ? 0 : entry.failures + 1;
  const int doublings = std::min(std::max(entry.failures - 1, 0), kBackoffDoublingsMax);
  entry.due = now + (ok ? kLinkRefreshInterval : kLinkRetryFirst * (1 << doublings));
}

bool LinkSchedule::IsIdle() const {
  return !running_.has_value() &&
         std::all_of(entries_.begin(), entries_.end(),
                     [](const auto& entry) { return entry.second.measured; });
}

}  // namespace macrame::agentd
