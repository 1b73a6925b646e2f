#pragma once

// The RPC edge of events: clusterctl asks any agent, which asks all live members. And what this
// agent sees, put into its log. Owner thread.

#include <map>
#include <optional>
#include <string>

#include "agentd/cores/election.h"
#include "agentd/cores/event_log.h"
#include "agentd/cores/gang_reconciler.h"
#include "agentd/node/member_monitor.h"
#include "agentd/node/node_views.h"
#include "agentd/node/peer_channels.h"
#include "agentd/state/state_replicator.h"
#include "macrame/v1/operation.pb.h"
#include "transport/dispatcher.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

class EventService {
 public:
  struct Parts {
    transport::Dispatcher& dispatcher;
    const Election& election;
    PeerChannels& channels;
    const MemberMonitor& members;
    const NodeViews& views;
    const StateReplicator& replicator;
    NodeId self;
  };

  explicit EventService(Parts parts) : parts_(std::move(parts)), log_(parts_.self) {}

  // For clusterctl, and for members that ask in its name.
  void Register(transport::RpcServer& server);

  void NoteMember(const discovery::MembershipEvent& event);
  // Who is obeyed may have changed.
  void NoteCoordinator();
  // The desired state may have changed.
  void NoteState();
  // While this node leads.
  void NoteDeployment(const Notify& news);

 private:
  template <typename Response>
  using Reply = transport::RpcServer::Reply<Response>;

  void List(const transport::Caller& caller, const v1::ListEventsRequest& request,
            Reply<v1::ListEventsResponse> reply);

  Parts parts_;
  EventLog log_;
  std::optional<FencePair> obeyed_;
};

}  // namespace macrame::agentd
