#pragma once

// When which pair of addresses is measured: at once when it is new or something about it changed,
// seldom otherwise, and ever more seldom when it fails. Pure.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "macrame/v1/link.pb.h"
#include "proto/monotonic_time.h"

namespace macrame::agentd {

struct LinkPair {
  std::string to_node_id;
  std::string from_ip, to_ip;
  std::string from_interface, to_interface;
  v1::InterfaceKind kind = v1::INTERFACE_KIND_UNSPECIFIED;

  auto Key() const { return std::tie(to_node_id, from_ip, to_ip); }
  bool operator<(const LinkPair& other) const { return Key() < other.Key(); }
};

inline constexpr Duration kLinkRefreshInterval = std::chrono::minutes(10);
inline constexpr Duration kLinkRetryFirst = std::chrono::seconds(5);
// Between any two measurements of one node.
inline constexpr Duration kLinkPause = std::chrono::milliseconds(100);
inline constexpr size_t kPairsPerPeerMax = 32;

// The pairs worth measuring from one node to another: one subnet first; no loopback, wildcard or
// bridge address, no VPN unless allowed. Two agents in one network stack have their loopback alone.
std::vector<LinkPair> PairsBetween(const v1::LinkFacts& from, const v1::LinkFacts& to,
                                   bool allow_vpn);

class LinkSchedule {
 public:
  // The pairs that there are now; those that are gone are forgotten.
  void SetPairs(const std::vector<LinkPair>& pairs);
  // Those that are not there yet.
  void AddPairs(const std::vector<LinkPair>& pairs);
  // Everything, or one peer's pairs, at once; what is under way once more, since what it finds may
  // be of before the change.
  void Hurry(const std::string& to_node_id = "");
  // One peer's pairs that failed, at once: it can be reached again.
  void RetryFailed(const std::string& to_node_id);
  // What is to be measured now; marks it as under way.
  std::optional<LinkPair> Next(MonotonicTime now);
  void Done(const LinkPair& pair, bool ok, MonotonicTime now);
  bool IsIdle() const;  // nothing under way and nothing waits that was never measured
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    MonotonicTime due{};
    int failures = 0;
    bool measured = false;
  };
  void NoteChanged(const LinkPair& pair);

  std::map<LinkPair, Entry> entries_;
  std::optional<LinkPair> running_;
  bool again_ = false;  // what is under way changed since it began
  MonotonicTime not_before_{};
};

}  // namespace macrame::agentd
