#pragma once

// The Platform of a real agent: this machine, its processes, and the network.

#include "agentd/platform.h"
#include "transport/asio_dispatcher.h"

namespace macrame::agentd {

class MachinePlatform final : public Platform {
 public:
  // `dispatcher` outlives this.
  explicit MachinePlatform(transport::AsioDispatcher& dispatcher) : dispatcher_(dispatcher) {}

  transport::Dispatcher& dispatcher() override { return dispatcher_; }
  std::function<uint64_t()> Random() override;
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
  transport::AsioDispatcher& dispatcher_;
};

}  // namespace macrame::agentd
