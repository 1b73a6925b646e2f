#pragma once

// This node's certificate: read or made at the start, made anew or renewed in time, and handed to
// whoever shows it. Owner thread.
//
// A keeper (a node with the secret file) makes its own anew; the authority's key is read from the
// file for that and is in memory no longer than it takes. Other nodes ask one member after the
// other for a new one until a keeper signs it, and write it to their membership.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agentd/cores/certificate_watch.h"
#include "agentd/node/certificate_asker.h"
#include "agentd/node/member_monitor.h"
#include "agentd/node/peer_channels.h"
#include "transport/dispatcher.h"
#include "transport/trust.h"

namespace macrame::agentd {

inline constexpr Duration kDatesLookedAt = std::chrono::seconds(60);
// Whose clock is set by more than this has its certificate looked at at once, and gets a new one
// whatever was tried before: it is what keeps the node out.
inline constexpr Duration kClockSet = std::chrono::hours(12);
// After all members were asked in vain.
inline constexpr Duration kRenewPause = std::chrono::minutes(5);
// Between two new certificates, whatever the clocks say.
inline constexpr Duration kRenewedAtMost = std::chrono::hours(1);

// What a node needs of its cluster while it runs: no authority's key.
struct ClusterTrust {
  std::string cluster_id;
  std::string cluster_name;
  std::string beacon_key;
  transport::NodeCredentials node;
};

class NodeTrust {
 public:
  using OnRenewed = std::function<void(const transport::NodeCredentials&)>;

  NodeTrust(transport::Dispatcher& dispatcher, NodeId self, std::string secret_path,
            PeerChannels& channels, MemberMonitor& members, OnRenewed on_renewed);

  // From the secret file, else from the membership beside it. NOT_FOUND when neither is there.
  absl::StatusOr<ClusterTrust> Load();
  // A membership that was got with a token: written, and taken when there was one before.
  absl::Status Take(const transport::NodeMembership& membership);
  // NOT_KEEPER when this node has no secret file, or one of another cluster than it runs with.
  absl::StatusOr<transport::ClusterSecret> ReadSecret() const;

  // Each 100 ms or so; looks each kDatesLookedAt, and when the clock was set.
  void Tick();
  bool loaded() const { return dates_.has_value(); }
  bool keeper() const { return keeper_; }
  const std::string& cluster_id() const { return cluster_id_; }
  const std::string& cluster_name() const { return cluster_name_; }
  const std::string& authority_pem() const { return authority_pem_; }
  std::vector<v1::Reason> Problems() const;

 private:
  int64_t NowS() const { return static_cast<int64_t>(dispatcher_.UnixMs() / 1000); }
  absl::Status Note(const transport::NodeCredentials& node);
  // Since it was asked last, by more than kClockSet.
  bool ClockWasSet(MonotonicTime now);
  void Renew();
  void MakeAnew();
  // What a keeper signed is worth taking: its clock may be wrong.
  absl::Status CheckFresh(const NodeId& keeper, const std::string& certificate_pem) const;
  absl::Status TakeSigned(const NodeId& keeper, const std::string& certificate_pem,
                          const std::string& key_pem);

  transport::Dispatcher& dispatcher_;
  const NodeId self_;
  const std::string secret_path_;
  const OnRenewed on_renewed_;

  bool keeper_ = false;
  std::string cluster_id_, cluster_name_;
  std::string authority_pem_;
  std::optional<TrustDates> dates_;
  std::optional<int64_t> clock_offset_ms_;  // of the wall clock to the steady one
  MonotonicTime looked_at_;
  MonotonicTime renew_from_;   // not before
  std::string renew_failure_;  // of a keeper, which signs itself
  CertificateAsker asker_;
};

}  // namespace macrame::agentd
