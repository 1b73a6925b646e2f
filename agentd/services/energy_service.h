#pragma once

// What models and keys take of the nodes' energy, as this agent knows it: it looks at all gangs
// each kEnergyLookInterval with the tick that is there anyway, counts what this gateway answered,
// and tells clusterctl of all gateways. Owner thread, but for OnUsed.

#include <functional>
#include <map>
#include <string>

#include "agentd/cores/energy_ledger.h"
#include "agentd/gangs/gang_controller.h"
#include "agentd/node/member_monitor.h"
#include "agentd/node/node_views.h"
#include "agentd/node/peer_channels.h"
#include "agentd/services/metered_backend.h"
#include "macrame/v1/access.pb.h"
#include "transport/dispatcher.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

class EnergyService {
 public:
  struct Parts {
    transport::Dispatcher& dispatcher;
    NodeViews& views;
    GangController& gang_controller;
    PeerChannels& channels;
    const MemberMonitor& members;
    NodeId self;
  };

  explicit EnergyService(Parts parts) : parts_(std::move(parts)) {}

  // For clusterctl, and for members that ask in its name.
  void Register(transport::RpcServer& server);
  void Tick();
  // The keys of the cluster: what others send is counted as without a key.
  void SetKeys(const std::map<std::string, v1::ApiKey>& keys);
  // A request that this gateway handed on is over.
  void Note(const UsedRequest& used);

  const v1::ModelEnergy* Find(const std::string& gang, uint64_t epoch) const {
    return ledger_.Find(gang, epoch);
  }
  // Of this gateway.
  std::vector<v1::KeyEnergy> Keys() const { return ledger_.Keys(); }

 private:
  template <typename Response>
  using Reply = transport::RpcServer::Reply<Response>;

  void Tell(const transport::Caller& caller, Reply<v1::GetKeyEnergyResponse> reply);
  v1::GetKeyEnergyResponse Own() const;

  Parts parts_;
  EnergyLedger ledger_;
  MonotonicTime looked_at_;
  std::map<std::string, std::string> key_of_digest_;
};

}  // namespace macrame::agentd
