#include "discovery/beacons/hearing_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::discovery {

void HearingTable::AddInterface(const std::string& interface_name, MonotonicTime now) {
  interfaces_.try_emplace(interface_name, PerInterface{now, {}});
}

void HearingTable::RemoveInterface(const std::string& interface_name) {
  interfaces_.erase(interface_name);
}

void HearingTable::Heard(const std::string& interface_name, const NodeId& peer, bool lists_us,
                         MonotonicTime now) {
  const auto found = interfaces_.find(interface_name);
  if (found == interfaces_.end()) return;
  auto& peers = found->second.peers;
  if (!peers.contains(peer) && peers.size() >= kHeardPerInterfaceMax) {
    peers.erase(std::min_element(peers.begin(), peers.end(), [](const auto& a, const auto& b) {
      return a.second.heard < b.second.heard;
    }));
  }
  const auto [place, is_new] = peers.try_emplace(peer);
  Peer& entry = place->second;
  // One that comes back after a silence gets its time to hear us again.
  if (is_new || now - entry.heard > kHeardFor) {
    entry = Peer{.heard = now, .first_heard = now, .listed_us = {}};
  }
  entry.heard = now;
  if (lists_us) {
    entry.listed_us = now;
    entry.ever_listed_us = true;
  }
}

Hearing HearingTable::StateOf(const std::string& interface_name, MonotonicTime now) const {
  const auto found = interfaces_.find(interface_name);
  if (found == interfaces_.end()) return Hearing::kTooEarly;
  bool heard_any = false;
  bool judged_any = false;
  for (const auto& [node, peer] : found->second.peers) {
    if (now - peer.heard > kHeardFor) continue;
    heard_any = true;
    if (peer.ever_listed_us && now - peer.listed_us <= kHeardFor) return Hearing::kBothWays;
    if (now - peer.first_heard >= kHearingJudgedAfter) judged_any = true;
  }
  if (judged_any) return Hearing::kHeardNotAnswered;
  if (heard_any || now - found->second.since < kHearingJudgedAfter) return Hearing::kTooEarly;
  return Hearing::kHeardNobody;
}

std::vector<v1::Reason> HearingTable::Problems(MonotonicTime now) const {
  std::vector<v1::Reason> problems;
  const bool hears_others = other_heard_.has_value() && now - *other_heard_ <= kHeardFor;
  for (const auto& [name, entry] : interfaces_) {
    switch (StateOf(name, now)) {
      case Hearing::kTooEarly:
      case Hearing::kBothWays:
        break;
      case Hearing::kHeardNobody:
        if (hears_others) break;
        problems.push_back(MakeReason(
            reasons::kHeardNobody, absl::StrCat("no peer's beacon has come in by interface ", name),
            self_.value()));
        break;
      case Hearing::kHeardNotAnswered: {
        std::string who;
        for (const auto& [node, peer] : entry.peers) {
          if (now - peer.heard <= kHeardFor) {
            absl::StrAppend(&who, who.empty() ? "" : ", ", ShortId(node));
          }
        }
        problems.push_back(
            MakeReason(reasons::kNotAnswered,
                       absl::StrCat("by interface ", name, " this node hears ", who,
                                    ", but none of them says that it hears this node"),
                       self_.value()));
        break;
      }
    }
  }
  return problems;
}

std::vector<NodeId> HearingTable::HeardLately(MonotonicTime now) const {
  std::map<NodeId, MonotonicTime> last;
  for (const auto& [name, entry] : interfaces_) {
    for (const auto& [node, peer] : entry.peers) {
      if (now - peer.heard <= kHeardFor) last[node] = std::max(last[node], peer.heard);
    }
  }
  std::vector<std::pair<MonotonicTime, NodeId>> order;
  for (const auto& [node, heard] : last) order.emplace_back(heard, node);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<NodeId> nodes;
  for (auto& [heard, node] : order) nodes.push_back(std::move(node));
  return nodes;
}

}  // namespace macrame::discovery
