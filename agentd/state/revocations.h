#pragma once

// Nodes that were taken out of the cluster for good, and that they stay out. Owner thread.
//
// A revocation is signed by the cluster's authority, so only a keeper makes one, and every node
// checks it by itself, whoever brought it: the desired state (key "meta/revoked"), or a keeper that
// tells each member at once, because the coordinator may be the one that is revoked. What a node
// has once heard it keeps, on its disk too; a list with less in it takes nothing back. The
// coordinator writes to the desired state what that lacks, told by whoever knows more, and takes
// the node off the list of members.

#include <functional>
#include <map>
#include <set>
#include <string>

#include "agentd/cores/election.h"
#include "agentd/cores/state_store.h"
#include "agentd/node/peer_channels.h"
#include "agentd/state/member_writer.h"
#include "agentd/state/state_replicator.h"
#include "macrame/v1/enrolment.pb.h"
#include "transport/dispatcher.h"

namespace macrame::agentd {

inline constexpr std::string_view kRevokedKey = "meta/revoked";
inline constexpr size_t kRevokedMax = 256;
inline constexpr Duration kTellRevokedTimeout = std::chrono::seconds(3);
inline constexpr Duration kRevokedWritePause = std::chrono::seconds(1);
// The coordinator is told again so often of what the desired state lacks.
inline constexpr Duration kRevokedToldPause = std::chrono::seconds(5);

class Revocations {
 public:
  struct Parts {
    transport::Dispatcher& dispatcher;
    const Election& election;
    StateStore& store;
    StateReplicator& replicator;
    MemberWriter& member_writer;
    MemberMonitor& members;
    PeerChannels& channels;
    NodeId self;
    // Everyone who is revoked: when that has changed.
    std::function<void(const std::set<NodeId>&)> on_changed;
  };

  explicit Revocations(Parts parts) : parts_(std::move(parts)) {}

  // Whose signatures count. Nothing is believed before.
  void SetAuthority(std::string authority_pem, std::string cluster_id);
  // The desired state may have changed.
  void TakeState();
  // What is signed by the authority, and new, is taken; the rest is left out.
  void Take(const v1::RevocationList& list);
  // On a keeper: taken here, and told to each live member.
  void Announce(const v1::Revocation& revocation);
  // Each 100 ms or so.
  void Tick();

  bool Has(const NodeId& node) const { return revoked_.contains(node); }
  bool full() const { return revoked_.size() >= kRevokedMax; }
  // Null when it is not revoked.
  const v1::Revocation* Find(const NodeId& node) const;

 private:
  v1::RevocationList List() const;
  // All that is known here is in the desired state.
  bool IsWritten() const;
  void TellCoordinator();
  bool IsSigned(const v1::Revocation& one) const;

  Parts parts_;
  std::string authority_pem_;
  std::string cluster_id_;
  std::map<NodeId, v1::Revocation> revoked_;
  uint64_t state_revision_ = 0;
  bool writing_ = false;
  MonotonicTime write_from_;
};

}  // namespace macrame::agentd
