#pragma once

// The Platform of an agent on a simulated machine.

#include <memory>

#include "agentd/platform.h"
#include "tests/sim/sim_network.h"
#include "tests/sim/sim_parts.h"
#include "tests/sim/sim_ranks.h"

namespace macrame::agentd::sim {

class SimPlatform final : public Platform {
 public:
  struct Parts {
    Scheduler& scheduler;
    Dice& dice;
    SimNetwork& network;
    ProcessPtr process;
    NodeId node;
    MachineClock clock;
    RankHost& host;
    const SimFacts& facts;
    std::function<int()> room;
    std::function<LaunchFacts(const v1::LaunchSpec&)> on_launch;
    std::function<void(const v1::StopRanksRequest&)> on_stop;
  };
  explicit SimPlatform(Parts parts)
      : parts_(std::move(parts)),
        dispatcher_(parts_.scheduler, parts_.dice, parts_.process, parts_.clock) {}

  transport::Dispatcher& dispatcher() override { return dispatcher_; }
  std::function<uint64_t()> Random() override {
    return [this] { return parts_.dice.Next(); };
  }
  std::unique_ptr<runtime::RankSupervisor> MakeSupervisor(
      runtime::SupervisorOptions options) override;
  std::unique_ptr<discovery::InventoryProber> MakeInventoryProber(discovery::InventoryInputs inputs,
                                                                  uint64_t first_revision) override;
  std::unique_ptr<discovery::LinkProber> MakeLinkProber(discovery::LinkInputs inputs,
                                                        Duration interval) override;
  std::unique_ptr<LinkMeasurer> MakeLinkMeasurer() override;
  std::unique_ptr<ModelLibrary> MakeModelLibrary(std::vector<std::string> folders,
                                                 const std::string& rankd_path) override;
  std::unique_ptr<SecondEngineProbe> MakeSecondEngineProbe() override;
  std::unique_ptr<DeviceProbe> MakeDeviceProbe() override;
  std::unique_ptr<discovery::BeaconService> MakeBeaconService(
      discovery::BeaconServiceOptions options, const v1::NodeIdentity& self,
      std::optional<discovery::BeaconTrust> trust,
      discovery::BeaconServiceCallbacks callbacks) override;
  std::unique_ptr<transport::RpcServer> MakeServer() override;
  PeerChannels::MakeChannel ChannelMaker(const NodeId& self) override;
  std::unique_ptr<transport::PeerChannel> ConnectToSelf(const std::string& socket_path,
                                                        const NodeId& self) override;

 private:
  Parts parts_;
  SimDispatcher dispatcher_;
};

}  // namespace macrame::agentd::sim
