#include "tests/sim/sim_platform.h"

#include <utility>

#include "tests/sim/sim_beacons.h"
#include "tests/sim/sim_parts.h"

namespace macrame::agentd::sim {

std::unique_ptr<runtime::RankSupervisor> SimPlatform::MakeSupervisor(
    runtime::SupervisorOptions options) {
  return std::make_unique<SimSupervisor>(
      SimSupervisor::Parts{parts_.scheduler, parts_.dice, dispatcher_, parts_.process, parts_.host,
                           parts_.room, parts_.on_launch, parts_.on_stop},
      std::move(options.node_id));
}

std::unique_ptr<discovery::InventoryProber> SimPlatform::MakeInventoryProber(
    discovery::InventoryInputs inputs, uint64_t first_revision) {
  return std::make_unique<SimInventoryProber>(parts_.process, parts_.facts, inputs.node_id,
                                              first_revision);
}

std::unique_ptr<discovery::LinkProber> SimPlatform::MakeLinkProber(discovery::LinkInputs inputs,
                                                                   Duration) {
  return std::make_unique<SimLinkProber>(dispatcher_, parts_.process, parts_.facts, inputs);
}

std::unique_ptr<LinkMeasurer> SimPlatform::MakeLinkMeasurer() {
  return std::make_unique<SimLinkMeasurer>(parts_.network, dispatcher_, parts_.process);
}

std::unique_ptr<ModelLibrary> SimPlatform::MakeModelLibrary(std::vector<std::string>,
                                                            const std::string&) {
  return std::make_unique<SimModelLibrary>(dispatcher_);
}

std::unique_ptr<SecondEngineProbe> SimPlatform::MakeSecondEngineProbe() {
  return std::make_unique<NoSecondEngine>();
}

std::unique_ptr<DeviceProbe> SimPlatform::MakeDeviceProbe() { return std::make_unique<NoGpu>(); }

std::unique_ptr<discovery::BeaconService> SimPlatform::MakeBeaconService(
    discovery::BeaconServiceOptions options, const v1::NodeIdentity& self,
    std::optional<discovery::BeaconTrust>, discovery::BeaconServiceCallbacks callbacks) {
  return std::make_unique<SimBeaconService>(parts_.network, parts_.process, dispatcher_, options,
                                            self, std::move(callbacks));
}

std::unique_ptr<transport::RpcServer> SimPlatform::MakeServer() {
  return parts_.network.MakeServer(parts_.process, parts_.node);
}

PeerChannels::MakeChannel SimPlatform::ChannelMaker(const NodeId& self) {
  return [this, self](const NodeId& node, const auto&, const auto&) {
    return parts_.network.Connect(parts_.process, self, node, dispatcher_);
  };
}

// No gateway is simulated, which alone has orders of its own; one would find no address.
std::unique_ptr<transport::PeerChannel> SimPlatform::ConnectToSelf(const std::string&,
                                                                   const NodeId&) {
  return parts_.network.ConnectToSelf(parts_.process, dispatcher_);
}

}  // namespace macrame::agentd::sim
