#pragma once

// What this node says of itself: identity, inventory, load and ranks. Owner thread.

#include <string>
#include <vector>

#include "agentd/cores/energy_meter.h"
#include "discovery/base/interfaces.h"
#include "discovery/probe/inventory.h"
#include "macrame/v1/node.pb.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/supervisor/rank_supervisor.h"
#include "transport/dispatcher.h"

namespace macrame::agentd {

// Load is not sampled more often, on a node with ranks and without.
inline constexpr Duration kLoadSampleInterval = std::chrono::milliseconds(400);
inline constexpr Duration kIdleLoadSampleInterval = std::chrono::milliseconds(1900);

class OwnNode {
 public:
  OwnNode(transport::Dispatcher& dispatcher, v1::NodeIdentity identity,
          discovery::InventoryProber& prober, runtime::RankSupervisor& supervisor);

  const v1::NodeIdentity& identity() const { return identity_; }
  NodeId id() const { return NodeId(identity_.node_id()); }
  void SetControlPort(uint32_t port) { identity_.set_control_port(port); }
  void SetGatewayPort(uint32_t port) { identity_.set_gateway_port(port); }
  void SetAddresses(const std::vector<v1::NodeAddress>& addresses);

  const v1::Inventory& inventory() const { return prober_.inventory(); }
  const v1::NodeLoad& load();
  const std::vector<v1::RankStatus>& ranks();
  // The supervisor's ranks changed.
  void ForgetRanks() {
    ranks_known_ = false;
    load_at_ = MonotonicTime();
  }
  runtime::NodeMemory memory();
  // It is about to stop: it takes no ranks from here on.
  void SetDraining() { draining_ = true; }
  bool draining() const { return draining_; }

 private:
  transport::Dispatcher& dispatcher_;
  v1::NodeIdentity identity_;
  discovery::InventoryProber& prober_;
  runtime::RankSupervisor& supervisor_;
  v1::NodeLoad load_;
  MonotonicTime load_at_;
  std::vector<v1::RankStatus> ranks_;
  MonotonicTime ranks_at_;
  bool ranks_known_ = false;
  bool draining_ = false;
  EnergyMeter energy_;
};

}  // namespace macrame::agentd
