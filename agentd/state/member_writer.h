#pragma once

// The list of members (cores/member_list.h): writes it while this node leads, tells the election
// what it says, and takes out of it whom a person forgets. Owner thread.

#include <functional>
#include <set>

#include "agentd/cores/member_list.h"
#include "agentd/node/member_monitor.h"
#include "agentd/state/lease_client.h"
#include "agentd/state/state_replicator.h"
#include "macrame/v1/cluster.pb.h"
#include "transport/dispatcher.h"

namespace macrame::agentd {

class MemberWriter {
 public:
  using Forgotten = std::function<void(absl::StatusOr<v1::ForgetNodeResponse>)>;
  struct Parts {
    transport::Dispatcher& dispatcher;
    const Election& election;
    LeaseClient& leases;
    StateReplicator& replicator;
    MemberMonitor& members;
    NodeId self;
  };

  MemberWriter(Parts parts, Consistency consistency);

  // The desired state may have changed.
  void Take();
  void BeginLeading();
  // Another coordinator is obeyed: what this side was told to do alone is over.
  void ForgetAlone();
  // Each 100 ms or so.
  void Tick();

  const std::set<NodeId>& listed() const { return listed_; }
  // Coordinator only. The errors of WithoutMember, or of the write.
  void Forget(const NodeId& node, Forgotten done);
  // On a node that obeys nobody: `node` counts no more here, so that those who are left may elect.
  // What they elect writes it down.
  absl::StatusOr<v1::ForgetNodeResponse> ForgetAlone(const NodeId& node);

 private:
  std::set<NodeId> Live() const;
  void Write(const v1::MemberList& list, std::function<void(const absl::Status&)> done);

  Parts parts_;
  MemberList list_;
  std::set<NodeId> listed_;
  std::set<NodeId> forgotten_alone_;
  bool writing_ = false;
  bool uncommitted_ = false;  // the list in the table; written again until it is acknowledged
  uint64_t revision_ = 0;     // of the state that `listed_` is from
};

}  // namespace macrame::agentd
