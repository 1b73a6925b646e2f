#pragma once

// BeaconService over SimNetwork: when beacons are sent is up to the agent's own BeaconSchedule.

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "discovery/beacons/beacon_service.h"
#include "tests/sim/sim_network.h"

namespace macrame::agentd::sim {

class SimBeaconService final : public discovery::BeaconService {
 public:
  SimBeaconService(SimNetwork& network, ProcessPtr process, transport::Dispatcher& dispatcher,
                   const discovery::BeaconServiceOptions& options, const v1::NodeIdentity& self,
                   discovery::BeaconServiceCallbacks callbacks);
  ~SimBeaconService() override { Stop(); }

  void Start() override;
  void Stop() override { *running_ = false; }
  void SetAllPeersConnected(bool connected) override;
  void SetSignsOfLife(bool wanted) override;
  void SetTakesTurns(bool takes_turns) override;
  void Turn() override;
  int Ask(const NodeId& member) override;
  void NotePeerConnected(const NodeId&) override {}
  const std::vector<discovery::Interface>& interfaces() const override { return interfaces_; }
  std::vector<v1::Reason> Problems() const override { return {}; }

 private:
  enum class Kind { kWhole, kReplyWanted, kSignOfLife };

  SimBeacon Make(Kind kind);
  void Arm();
  void SendDue();
  void Hear(const SimBeacon& beacon);

  SimNetwork& network_;
  const ProcessPtr process_;
  transport::Dispatcher& dispatcher_;
  v1::NodeIdentity self_;
  const discovery::BeaconServiceCallbacks callbacks_;
  discovery::BeaconSchedule schedule_;
  std::vector<discovery::Interface> interfaces_;
  std::shared_ptr<bool> running_ = std::make_shared<bool>(false);
  bool takes_turns_ = false;
  bool all_connected_ = false;
  bool signs_of_life_ = false;
  uint64_t sequence_ = 0;
  transport::Dispatcher::TimerId timer_ = 0;
  std::vector<SimBeacon> kept_;  // until the next turn
  std::map<NodeId, int> ways_;   // where members' beacons come from
  std::map<int, MonotonicTime> answered_;
};

}  // namespace macrame::agentd::sim
